"""Prototypes whose state is the state of windows: each window has an instance of the author's class.

A container treats them as any other prototype: their timer is set to the end of the window that closes first, and their
state holds the windows that are open.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import msgspec

from penstock.app.element import Emitted, ProcessingElement, overrides
from penstock.app.stepwise import Stepwise, emissions, field_of
from penstock.app.stream import Emission
from penstock.app.window.aggregate import Reducing
from penstock.app.window.windowing import Window, Windowing, of_watermark
from penstock.errors import LateEventError
from penstock.kinds.coding import msgpack_decoder, msgpack_encoder
from penstock.kinds.defaults import maker
from penstock.kinds.fields import is_immutable
from penstock.kinds.moments import SECOND, microseconds, moment

Body = TypeVar("Body")


class WindowPart(msgspec.Struct, Generic[Body], array_like=True):
    """A window, or a part that several windows share.

    Args:
        end: the end of the span of event time; microseconds, as all times here.
        closed: whether it has closed and is kept for late events.
        again: whether a late event has come in this micro-batch.
    """

    state: Body
    end: int
    closed: bool = False
    again: bool = False


class Windowed(Stepwise):
    """Base of the prototypes of windows."""

    body: ClassVar[type[ProcessingElement]]
    windowing: ClassVar[Any]
    holds: ClassVar[tuple[str, ...]]
    """The names, in `FIELDS`, of the state fields that the prototype has."""
    time_of: ClassVar[Callable[[Any], datetime] | None]
    """Reads an event's time; None for windows by count of events without times."""

    @classmethod
    def meaning(cls) -> dict[str, Any]:
        """Add the exact windows, the field that holds the event time, and the reducers; see `Stepwise.meaning`."""
        reducers = {"reducers": cls.body.meaning()} if issubclass(cls.body, Reducing) else {}
        return {**super().meaning(), **cls.windowing.meaning(), "field of the time": field_of(cls.time_of), **reducers}

    @property
    def _mark(self) -> int:
        """The watermark, which closes windows; before all times if there is none."""
        return of_watermark(self._context.watermark)

    @property
    def _fired(self) -> int:
        """The watermark up to which windows have been closed; an event of a window that ended before it is late."""
        return of_watermark(self._context.fired)

    def _made(self) -> Any:
        """Return the state of a new window."""
        return maker(self.body)()

    def _enter(self, state: Any, start: int, end: int) -> Any:
        """Set the key, the context and the window on a window's state, before one of its hooks is called; returns the state."""
        state.key, state._context, state.window = self.key, self._context.windowed, _window(start, end)
        return state

    def _time(self, event: Any) -> int:
        """Return an event's time (us), or the processing time if events have no times."""
        reader = type(self).time_of
        return round(self._context.now * SECOND) if reader is None else microseconds(reader(event))

    def _wake(self, at: int | None) -> None:
        self._context.due = None if at is None else at / SECOND

    def _wake_by(self, at: int) -> None:
        """Set the timer for a time (us), unless it is set for an earlier one."""
        due = self._context.due
        self._context.due = at / SECOND if due is None else min(due, at / SECOND)

    def _late(self, time: int) -> LateEventError:
        return LateEventError(
            f"the event is of {moment(time).isoformat()}, and its windows have closed: the watermark was "
            f"{moment(self._fired).isoformat()}"
        )


@lru_cache(maxsize=16_384)
def _window(start: int, end: int) -> Window:
    """Return the window between two times (us); cached, as many keys and events share it."""
    return Window(moment(start), moment(end))


class Spans(Windowed):
    """Windows that are spans of time: aligned ones and sessions."""

    holds = ("open",)

    if TYPE_CHECKING:  # a field of each prototype, typed by its body
        open: dict[int, WindowPart[Any]]  # by start

    touched: set[int] = set()
    """Starts of the windows that got an event in this micro-batch."""

    def on_event(self, event: Any) -> Emitted:
        """Pass the event to the windows that it belongs to.

        Raises:
            LateEventError: all of these have closed, and are not kept any more.
        """
        starts = self._windows(self._time(event))
        return self._hand(starts[0], event) if len(starts) == 1 else self._hand_to_all(starts, event)

    def _hand_to_all(self, starts: list[int], event: Any) -> Iterator[Emission]:
        flat = _is_immutable(cast(Any, type(event)))
        for number, start in enumerate(starts, 1):
            # Each window gets its own copy, the last one the event itself: a state may keep the event, and change it.
            yield from emissions(self._hand(start, event if flat or number == len(starts) else copied(event)))

    def _hand(self, start: int, event: Any) -> Emitted:
        part = self.open[start]
        state = self._enter(part.state, start, part.end)
        self.touched.add(start)
        self._wake_by(part.end + self.windowing.allowed_us if part.closed else part.end)
        if part.closed and overrides(self.body, "on_late"):
            return cast(Emitted, state.on_late(event))
        part.again = part.closed
        return cast(Emitted, state.on_event(event))

    def on_batch(self) -> Iterator[Emission]:
        """Emit early results of open windows, and new results of closed windows that got late events."""
        for start in self.batch_steps():
            yield from self.batch_step(start)
        self.rearm()

    def batch_steps(self) -> list[int]:
        """Return the starts of the windows that got an event."""
        return sorted(self.touched)

    def batch_step(self, start: int) -> Iterable[Emission]:
        """Return the early result of a window, or its new one if it has closed and got a late event."""
        part = self.open.get(start)
        was_closed_again = part is not None and part.again
        self.skip_batch_step(start)
        if part is None:
            return ()
        if was_closed_again and overrides(self.body, "on_close"):
            return emissions(self._enter(part.state, start, part.end).on_close())
        if overrides(self.body, "on_batch") and (was_closed_again or not part.closed):
            return emissions(self._enter(part.state, start, part.end).on_batch())
        return ()

    def skip_batch_step(self, start: int) -> None:
        """Note that a window's events of this micro-batch have had their result, or get none."""
        self.touched.discard(start)
        if start in self.open:
            self.open[start].again = False

    def is_due(self) -> bool:
        """Whether the watermark has passed the end of a window, or the time until which a closed one is kept."""
        return bool(self.open) and self._next()[0] <= self._mark

    def step(self) -> Iterable[Emission]:
        """Close the window that ends first, or drop it if it has closed; without late events, do both at once."""
        return self._pass(self._next()[1])

    def skip(self) -> None:
        """Close or drop the window that ends first, without a result."""
        start = self._next()[1]
        part = self.open[start]
        self._forget(start, part)
        part.closed = True

    def undo(self) -> Callable[[], None] | None:
        """Return a function that restores the windows, for reducers only: closing a window does not change their states."""
        if not (issubclass(self.body, Reducing) and self.body.merges_apart):
            return None
        before, closed, touched = dict(self.open), [part.closed for part in self.open.values()], set(self.touched)

        def back() -> None:
            self.open, self.touched = before, touched
            for part, was in zip(before.values(), closed, strict=True):
                part.closed = was

        return back

    def on_timer(self) -> Iterator[Emission]:
        """Close or drop the windows that the watermark has passed, in order of time."""
        mark = self._mark
        due = sorted((self._deadline(part), start) for start, part in self.open.items() if part.end <= mark)
        for deadline, start in due:
            if deadline <= mark:
                yield from self._pass(start)
        self.rearm()

    def rearm(self) -> None:
        """Set the timer for the window that is next to be closed or dropped."""
        self._wake(self._next()[0] if self.open else None)

    def is_empty(self) -> bool:
        """Whether no window is open or kept."""
        return not self.open

    def _pass(self, start: int) -> Iterator[Emission]:
        part = self.open[start]
        self._forget(start, part)
        if not part.closed:
            part.closed = True
            yield from emissions(self._enter(part.state, start, part.end).on_close())

    def _forget(self, start: int, part: WindowPart[Any]) -> None:
        """Remove a window whose time for late events is over."""
        if part.end + self.windowing.allowed_us <= self._mark:
            del self.open[start]
            self.touched.discard(start)  # in an ordered element, on_batch does not clear it

    def _windows(self, time: int) -> list[int]:
        raise NotImplementedError

    def _deadline(self, part: WindowPart[Any]) -> int:
        """Return when a window is to be closed, or, if it has closed, to be dropped; microseconds."""
        allowed: int = self.windowing.allowed_us
        return part.end + allowed * part.closed

    def _next(self) -> tuple[int, int]:
        return min((self._deadline(part), start) for start, part in self.open.items())


class Events(msgspec.Struct, Generic[Body], array_like=True):
    """A run of events in a window by count: their state, the times of the first and the last, and their number."""

    state: Body
    first: int
    last: int
    seen: int = 0


_is_immutable = lru_cache(is_immutable)


def copied(state: Any) -> Any:
    """Return a deep copy of a state or an event."""
    return msgpack_decoder(type(state)).decode(msgpack_encoder().encode(state))


FIELDS: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "open": lambda body: (dict[int, WindowPart[body]], msgspec.field(default_factory=dict)),  # type: ignore[valid-type]
    "parts": lambda body: (list[Events[body]], msgspec.field(default_factory=list)),  # type: ignore[valid-type]
    "whole": lambda body: (Events[body] | None, None),  # type: ignore[valid-type]
}
"""State fields by name, each with type and default: open windows by start; parts of windows by count; the global window."""


def windowed(body: type[ProcessingElement], windowing: Windowing, field: str | None) -> type[Windowed]:
    """Return the prototype that keeps an instance of ``body`` for each window.

    Args:
        field: the field of the events that holds their time; None for windows by count of events without times.
    """
    base = windowing.keeper(body, field is not None)
    made: Any = msgspec.defstruct(
        body.__name__,
        [(name, *FIELDS[name](body)) for name in base.holds],
        bases=(base,),
        module=body.__module__,
        dict=True,
        namespace={"body": body, "windowing": windowing, "time_of": None if field is None else attrgetter(field)},
    )
    prototype: type[Windowed] = made
    return prototype
