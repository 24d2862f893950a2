"""One window for all events of a key, which never closes, and emits its result so far repeatedly."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.app.arguments import checked
from penstock.app.duration import Duration
from penstock.app.element import ProcessingElement, overrides
from penstock.app.state import LARGEST_STATE
from penstock.app.stepwise import Stepwise, emissions
from penstock.app.stream import Emission
from penstock.app.window.windowed import Events, Windowed, WindowPart
from penstock.app.window.windowing import FOREVER, Windowing, micros, span
from penstock.errors import TopologyError
from penstock.kinds.coding import msgpack_decoder, msgpack_encoder


@dataclass(frozen=True, init=False)
class Global(Windowing):
    """One window for all events of a key, which never closes, and emits its result so far repeatedly.

    Args:
        every: a span of event time, counted from midnight in UTC. There is a result after each span that has events.
        after: or a number of events, in the order of arrival. There is a result after every so many.

    Raises:
        TopologyError: neither or both of the two are given, or the given one is not above zero.

    Examples:
        >>> print(Global(every="1 minute"))
        all, result every 1 min
    """

    every: Duration | None
    after: int | None

    @checked()
    def __init__(self, *, every: Duration | None = None, after: int | None = None, at: str | None = None) -> None:
        super().__init__(at=at)
        object.__setattr__(self, "every", every)
        object.__setattr__(self, "after", after)
        if (every is None) == (after is None):
            raise TopologyError(
                "A global window never closes: say when to give its result so far, as Global(every='1 minute') or "
                "Global(after=100)."
            )
        whole = after is None or (type(after) is int and after > 0)
        if not whole or (every is not None and self.every_us <= 0):
            raise TopologyError(
                f"A global window with a result every {every or after}: give more than zero, and events as a whole number."
            )

    @property
    def timed(self) -> bool:
        """Whether results are by event time."""
        return self.every is not None

    @property
    def closes(self) -> bool:
        """False: a global window never ends."""
        return False

    @property
    def merges(self) -> bool:
        """Whether results are by time: the events of each span are then merged in when the watermark has passed it."""
        return self.timed

    def check(self, name: str, body: type[ProcessingElement]) -> None:
        """Refuse a class that lacks a hook that this window needs, or has one that it never calls."""
        if not overrides(body, "on_close"):
            raise TopologyError(f"Element {name} has a window of {self}: give it on_close, which emits the result so far.")
        for hook in ("on_batch", "on_late"):
            if overrides(body, hook):
                raise TopologyError(
                    f"Element {name} has a window of {self}, which itself defines when there is a result: leave out {hook}."
                )
        if self.merges and not overrides(body, "merge"):
            raise TopologyError(
                f"Element {name}: a window of {self} takes in the events of each span once the watermark has passed it, so "
                "give it `def merge(self, other)`, which takes in the state of a later part."
            )

    def keeper(self, body: type[ProcessingElement], has_times: bool) -> type[Windowed]:
        """Return the prototype, by time or by count. If events have times, a last result follows at the end of the input."""
        if self.timed:
            return ByTime
        return ByCountToTheEnd if has_times else ByCount

    @cached_property
    def every_us(self) -> int:
        """The span between results in microseconds; 0 if events are counted."""
        return 0 if self.every is None else micros(self.every)

    def __str__(self) -> str:
        return f"all, result every {f'{self.after:,} events' if self.every is None else span(self.every_us)}"


class ByTime(Windowed):
    """Emits a result for each span of event time that has events. It covers all events before the span's end, whatever their
    order of arrival.
    """

    form = "one window, with results by time"
    holds = ("open", "whole")

    if TYPE_CHECKING:  # fields of each prototype, typed by its body
        open: dict[int, WindowPart[Any]]
        whole: Events[Any] | None

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Pass the event to its span, which waits for the watermark.

        Raises:
            LateEventError: the result at the span's end has been emitted.
        """
        every = self.windowing.every_us
        time = self._time(event)
        start = time // every * every
        if start + every <= self._fired:
            raise self._late(time)
        part = self.open.get(start)
        if part is None:
            part = self.open[start] = WindowPart(self._made(), start + every)
        yield from emissions(self._enter(part.state, start, part.end).on_event(event))
        self.rearm()

    def is_due(self) -> bool:
        """Whether the watermark has passed the end of a span."""
        return bool(self.open) and self.open[min(self.open)].end <= self._mark

    def step(self) -> Iterator[Emission]:
        """Merge in the first span, and emit the result so far."""
        whole = self._take_in()
        yield from emissions(self._enter(whole.state, whole.first, whole.last).on_close())

    def skip(self) -> None:
        """Merge in the first span without a result; drop it if merging fails, or the merged state could not be stored."""
        start, kind = min(self.open), Events[self.body] | None  # type: ignore[name-defined]
        before = msgpack_encoder().encode(self.whole)
        try:
            self._take_in()
            content = msgpack_encoder().encode(self.whole)
            msgpack_decoder(kind).decode(content)
            storable = len(content) < LARGEST_STATE // 2  # leaves room for the spans that are open
        except Exception:  # from the author's merge; the failure of the step becomes a dead letter
            storable = False
        if not storable:
            self.whole = msgpack_decoder(kind).decode(before)
            self.open.pop(start, None)

    def _take_in(self) -> Events[Any]:
        start = min(self.open)
        part = self.open.pop(start)
        whole = self.whole
        if whole is None:
            whole = self.whole = Events(self._made(), start, part.end)
        whole.last = part.end
        self._enter(whole.state, whole.first, whole.last).merge(self._enter(part.state, start, part.end))
        return whole

    def rearm(self) -> None:
        """Set the timer for the end of the first span."""
        self._wake(self.open[min(self.open)].end if self.open else None)

    def is_empty(self) -> bool:
        """Whether no event has been kept."""
        return not self.open and self.whole is None


class ByCount(Windowed):
    """Emits a result after every ``after`` events, in the order of arrival."""

    form = "one window, with results by count"
    holds = ("whole",)

    on_timer = ProcessingElement.on_timer  # no timer: without event time, the end of the input is not seen

    if TYPE_CHECKING:  # a field of each prototype, typed by its body
        whole: Events[Any] | None

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Pass the event to the state, and emit the result if it is due."""
        due = self.would_say()
        yield from self.without_result(event)
        if due:
            assert self.whole is not None
            yield from self._say(self.whole)

    def would_say(self) -> bool:
        """Whether a result is due after the next event."""
        windowing: Global = self.windowing
        assert windowing.after is not None
        return ((0 if self.whole is None else self.whole.seen) + 1) % windowing.after == 0

    def without_result(self, event: Any) -> Iterator[Emission]:
        """Pass the event to the state, without a result."""
        time = self._time(event)
        whole = self.whole
        if whole is None:
            whole = self.whole = Events(self._made(), time, time)
        whole.seen, whole.last = whole.seen + 1, time
        yield from emissions(self._enter(whole.state, whole.first, time).on_event(event))

    def is_empty(self) -> bool:
        """Whether no event has been kept."""
        return self.whole is None

    def _say(self, whole: Events[Any]) -> Iterator[Emission]:
        yield from emissions(self._enter(whole.state, whole.first, whole.last).on_close())


class ByCountToTheEnd(ByCount):
    """Emits a result after every ``after`` events, and one at the end of the input if events came since the last result."""

    on_timer = Stepwise.on_timer
    said: bool = False
    """Whether the last result, at the end of the input, has been emitted or skipped."""

    def without_result(self, event: Any) -> Iterator[Emission]:
        """Pass the event to the state, and set the timer for the end of the input."""
        yield from super().without_result(event)
        self.rearm()

    @property
    def _unsaid(self) -> bool:
        return not self.said and self.whole is not None and self.whole.seen % self.windowing.after != 0

    def is_due(self) -> bool:
        """Whether the input has ended, and events are left that no result covers."""
        return self._unsaid and self._mark >= FOREVER

    def step(self) -> Iterator[Emission]:
        """Emit the last result."""
        assert self.whole is not None
        self.said = True
        yield from self._say(self.whole)

    def skip(self) -> None:
        """Skip the last result."""
        self.said = True

    def rearm(self) -> None:
        """Set the timer for the end of the input, if events are left that no result covers."""
        self._wake(FOREVER if self._unsaid else None)
