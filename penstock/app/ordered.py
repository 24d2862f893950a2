"""Prototypes that pass events to the author's class in the order of event time, once no earlier event can come."""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from penstock.app.element import Element, InstanceContext, ProcessingElement, overrides, refuse_migrate
from penstock.app.joins import Held, held_time
from penstock.app.stepwise import Stepwise, emissions, field_of
from penstock.app.stream import Emission
from penstock.app.window.windowed import Windowed, copied
from penstock.app.window.windowing import of_watermark
from penstock.errors import LateEventError, TopologyError
from penstock.kinds.defaults import maker
from penstock.kinds.event import Event
from penstock.kinds.moments import SECOND, microseconds, moment

REARMED_AT_MOST = 1000
"""How often the body's timer may fire in a row, in a micro-batch, without an event in between, as one that always sets itself
again would. Windows, which close one after the other, are not bounded."""


class Ordered(Stepwise):
    """Holds events until the watermark has passed them; its fields are the body's instance and the held events by type.

    While the body processes an event, the watermark that it sees is the event's own time, so that its timers fire, and its
    windows close, at the right place between events.
    """

    form = "events held until they are in order"
    by_input = True

    body: ClassVar[type[ProcessingElement]]
    times: ClassVar[Mapping[type[Event], tuple[str, Callable[[Any], Any]]]]
    """By event type: the field that holds the events, and the function that reads their time."""

    if TYPE_CHECKING:  # a field of each prototype, typed by its body
        inner: Any

    wake: float | None = None
    """When the body's own timer is due, in seconds since the epoch; None without a timer."""
    in_a_row: int = 0
    """How often the body's timer has fired since the last event, in the present micro-batch."""
    if TYPE_CHECKING:
        in_micro_batch: InstanceContext | None = None
    else:
        in_micro_batch = None  # without an annotation, so that it is no field of the state

    @classmethod
    def meaning(cls) -> dict[str, Any]:
        """Add the fields that hold the event times, and the meaning of the body's own state; see `Stepwise.meaning`."""
        fields = [field_of(time_of) for _, time_of in cls.times.values()]
        inner = cls.body.meaning() if issubclass(cls.body, Stepwise) else {}
        return {
            **{f"{name} within": value for name, value in inner.items()},
            **super().meaning(),
            "fields of the times": fields,
        }

    def on_event(self, event: Any) -> None:
        """Hold the event until the watermark has passed it.

        Raises:
            LateEventError: later events have been processed already.
        """
        name, time_of = self.times[type(event)]
        time = microseconds(time_of(event))
        if time < of_watermark(self._context.fired):
            raise LateEventError(f"the event is of {moment(time).isoformat()}, and later ones have been handled in order")
        insort(getattr(self, name), Held(event, time), key=held_time)
        self.in_a_row = 0
        self.rearm()

    def is_due(self) -> bool:
        """Whether an event can be processed, or the body's timer is due."""
        return self._next() is not None

    def step(self) -> Iterator[Emission]:
        """Process the next event, or fire the body's timer, whichever comes first."""
        place = self._next()
        assert place is not None
        time, name = place
        if name is None:
            self.wake = None
            with self._as_of(time) as body:
                if isinstance(body, Stepwise):
                    yield from body.step() if body.is_due() else ()
                    body.rearm()
                else:
                    self.in_a_row += 1
                    yield from emissions(body.on_timer())
        else:
            held = getattr(self, name).pop(0)
            self.in_a_row = 0
            with self._as_of(time) as body:
                yield from emissions(body.on_event(held.event))

    def skip(self) -> Any:
        """Drop the next event and return it, or cancel the body's timer; see `Stepwise.skip`."""
        place = self._next()
        assert place is not None
        time, name = place
        if name is not None:
            event = getattr(self, name).pop(0).event
            return None if self._is_applied_without_result(event, time) else event
        self.wake = None
        with self._as_of(time) as body:
            if isinstance(body, Stepwise):
                body.skip()
                body.rearm()
        return None

    def _is_applied_without_result(self, event: Any, time: int) -> bool:
        """Apply an event whose result has failed, if the body can do so without the result; see `Stepwise.would_say`."""
        before = copied(self.inner)
        with self._as_of(time) as body:
            if not (isinstance(body, Stepwise) and body.would_say()):
                return False
            try:
                deque(emissions(body.without_result(event)), maxlen=0)
            except (Exception, SystemExit):  # the event itself is at fault
                self.inner = before
                return False
        return True

    def is_empty(self) -> bool:
        """Whether no event is held, and the body's state is empty, too."""
        inner = self.inner
        return not any(self._held().values()) and isinstance(inner, Stepwise) and inner.is_empty()

    def rearm(self) -> None:
        """Set the timer for when the watermark has passed the first held event, or for the body's own timer if earlier."""
        ends = [(held[0].time + 1) / SECOND for held in self._held().values() if held]
        self._context.due = min([*ends, *([] if self.wake is None else [self.wake])], default=None)

    def _next(self) -> tuple[int, str | None] | None:
        """Return the time (us) of the next step and the field that holds its event; the field is None for the body's timer,
        which precedes events of its time. Return None if nothing is due.
        """
        mark = of_watermark(self._context.watermark)
        heads = [(held[0].time, name) for name, held in self._held().items() if held and held[0].time < mark]
        first = min(heads, default=None)
        if self.in_micro_batch is not self._context:
            self.in_micro_batch, self.in_a_row = self._context, 0
        if self.in_a_row >= REARMED_AT_MOST:
            return first  # a timer that always sets itself again would keep the input from ending
        if self.wake is not None and round(self.wake * SECOND) <= (mark if first is None else first[0]):
            return round(self.wake * SECOND), None
        return first

    def _held(self) -> dict[str, list[Held[Any]]]:
        return {name: getattr(self, name) for name, _ in self.times.values()}

    @contextmanager
    def _as_of(self, time: int) -> Iterator[Any]:
        """Yield the body, which sees the given time (us) as the watermark within the block."""
        context, body = self._context, self.inner
        mark, context.watermark, context.due = context.watermark, time / SECOND, self.wake
        body.key, body._context = self.key, context
        try:
            yield body
        finally:
            self.wake, context.watermark = context.due, mark


def in_order(element: Element, fields: Sequence[str]) -> Element:
    """Return an element that processes the events of the given one in the order of their times.

    Args:
        fields: the fields that hold the times, one for each input.

    Raises:
        TopologyError: the element has no key, emits once per micro-batch, or has two inputs of the same event type.
    """
    prototype = element.prototype
    if prototype is None or not element.keyed:
        raise TopologyError(
            f"Element {element.name} is to get its events in order: give it a key, as only instances hold events."
        )
    body = prototype.body if issubclass(prototype, Windowed) else prototype
    refuse_migrate(element.name, body, "state beside events that are held")
    if overrides(body, "on_batch") or element.every is not None:
        raise TopologyError(
            f"Element {element.name} gets its events in order, long after their micro-batch: emit in on_event, on_close "
            "or on_timer, and not in on_batch or on_interval."
        )
    if element.expires is not None:
        raise TopologyError(f"Element {element.name} holds events until they are in order, which expires= would lose: drop it.")
    kinds = [stream.event_type for stream in element.inputs]
    times = {kind: (f"held{number}", attrgetter(field)) for number, (kind, field) in enumerate(zip(kinds, fields, strict=True))}
    if len(times) < len(kinds):
        raise TopologyError(
            f"Element {element.name} gets its events in order: give each of its inputs an event type of its own."
        )
    # Each prototype gets fields of its own: the body's instance, and a typed list of held events for each input.
    held: list[Any] = [
        (f"held{number}", list[Held[kind]], msgspec.field(default_factory=list))  # type: ignore[valid-type]
        for number, kind in enumerate(kinds)
    ]
    made: Any = msgspec.defstruct(
        prototype.__name__,
        [("inner", prototype, msgspec.field(default_factory=maker(prototype))), *held],
        bases=(Ordered,),
        module=prototype.__module__,
        dict=True,
        namespace={"body": prototype, "times": times},
    )
    note = f"{element.note}, in order" if element.note else "in order"
    return replace(element, body=made, timers="event", note=note, ordered=True)
