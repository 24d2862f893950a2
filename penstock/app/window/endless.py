"""One window for all events of a key, which never closes: its result so far is said again and again."""

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
from penstock.app.window.windowed import Events, Part, Windowed
from penstock.app.window.windowing import FOREVER, Windowing, micros, span
from penstock.errors import TopologyError
from penstock.kinds.coding import msgpack_decoder, msgpack_encoder


@dataclass(frozen=True, init=False)
class Global(Windowing):
    """One window for all events of a key, whose result so far is said again and again; it never closes.

    Parameters
    ----------
    every: a span of event time, after each of which in which an event came there is a result; from midnight in UTC.
    after: or so many events, in the order in which they come.

    Raises
    ------
    TopologyError: not one of the two is given, or it is zero.

    Examples
    --------
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
        """Whether results are by time: what comes in each span is then merged when the watermark has passed it."""
        return self.timed

    def check(self, name: str, body: type[ProcessingElement]) -> None:
        """Refuse what a window that never closes has no use for, and ask for what it needs."""
        if not overrides(body, "on_close"):
            raise TopologyError(f"Element {name} has a window of {self}: give it on_close, which says the result so far.")
        for hook in ("on_batch", "on_late"):
            if overrides(body, hook):
                raise TopologyError(
                    f"Element {name} has a window of {self}, which says when there is a result: leave out {hook}."
                )
        if self.merges and not overrides(body, "merge"):
            raise TopologyError(
                f"Element {name}: a window of {self} takes in the events of each span once the watermark has passed it, so "
                "give it `def merge(self, other)`, which takes in the state of a later part."
            )

    def keeper(self, body: type[ProcessingElement], has_times: bool) -> type[Windowed]:
        """By time or by count; with a time, what has not been said when the input has ended is said then."""
        if self.timed:
            return ByTime
        return ByCountToTheEnd if has_times else ByCount

    @cached_property
    def every_us(self) -> int:
        """Microseconds from result to result; 0, where events are counted."""
        return 0 if self.every is None else micros(self.every)

    def __str__(self) -> str:
        return f"all, result every {f'{self.after:,} events' if self.every is None else span(self.every_us)}"


class ByTime(Windowed):
    """A result for each span of event time in which an event came: of the events before its end, whatever the order of
    delivery.
    """

    form = "one window, with results by time"
    holds = ("open", "whole")

    if TYPE_CHECKING:  # fields of each prototype, typed by its body
        open: dict[int, Part[Any]]
        whole: Events[Any] | None

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Hand it to its span, which waits for the watermark.

        Raises
        ------
        LateEventError: the result at the span's end has been said.
        """
        every = self.windowing.every_us
        time = self._time(event)
        start = time // every * every
        if start + every <= self._fired:
            raise self._late(time)
        part = self.open.get(start)
        if part is None:
            part = self.open[start] = Part(self.body(), start + every)
        yield from emissions(self._enter(part.state, start, part.end).on_event(event))
        self.rearm()

    def is_due(self) -> bool:
        """Whether the watermark has passed the end of a span."""
        return bool(self.open) and self.open[min(self.open)].end <= self._mark

    def step(self) -> Iterator[Emission]:
        """Take in the first span, and say the result so far."""
        whole = self._take_in()
        yield from emissions(self._enter(whole.state, whole.first, whole.last).on_close())

    def skip(self) -> None:
        """Take in the first span and say nothing; a span that cannot be taken in, or not be kept, is left out."""
        start, kind = min(self.open), Events[self.body] | None  # type: ignore[name-defined]
        before = msgpack_encoder().encode(self.whole)
        try:
            self._take_in()
            content = msgpack_encoder().encode(self.whole)
            msgpack_decoder(kind).decode(content)
            kept = len(content) < LARGEST_STATE // 2  # the spans that are open take room besides
        except Exception:  # whatever the author's merge raises, which is in a dead letter
            kept = False
        if not kept:
            self.whole = msgpack_decoder(kind).decode(before)
            self.open.pop(start, None)

    def _take_in(self) -> Events[Any]:
        start = min(self.open)
        part = self.open.pop(start)
        whole = self.whole
        if whole is None:
            whole = self.whole = Events(self.body(), start, part.end)
        whole.last = part.end
        self._enter(whole.state, whole.first, whole.last).merge(self._enter(part.state, start, part.end))
        return whole

    def rearm(self) -> None:
        """At the end of the first span."""
        self._wake(self.open[min(self.open)].end if self.open else None)

    def is_empty(self) -> bool:
        """Whether there has been no event."""
        return not self.open and self.whole is None


class ByCount(Windowed):
    """A result after every so many events, in the order in which they come."""

    form = "one window, with results by count"
    holds = ("whole",)

    on_timer = ProcessingElement.on_timer  # none: where there is no event time, there is no end

    if TYPE_CHECKING:  # a field of each prototype, typed by its body
        whole: Events[Any] | None

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Hand it to the state, and say the result where that is due."""
        due = self.would_say()
        yield from self.without_result(event)
        if due:
            assert self.whole is not None
            yield from self._say(self.whole)

    def would_say(self) -> bool:
        """Whether the next event is one after which there is a result."""
        windowing: Global = self.windowing
        assert windowing.after is not None
        return ((0 if self.whole is None else self.whole.seen) + 1) % windowing.after == 0

    def without_result(self, event: Any) -> Iterator[Emission]:
        """Hand it to the state."""
        time = self._time(event)
        whole = self.whole
        if whole is None:
            whole = self.whole = Events(self.body(), time, time)
        whole.seen, whole.last = whole.seen + 1, time
        yield from emissions(self._enter(whole.state, whole.first, time).on_event(event))

    def is_empty(self) -> bool:
        """Whether there has been no event."""
        return self.whole is None

    def _say(self, whole: Events[Any]) -> Iterator[Emission]:
        yield from emissions(self._enter(whole.state, whole.first, whole.last).on_close())


class ByCountToTheEnd(ByCount):
    """A result after every so many events, and, as events have times, one at the end of the input of what came since."""

    on_timer = Stepwise.on_timer
    said: bool = False
    """Whether the end of the input has been dealt with."""

    def without_result(self, event: Any) -> Iterator[Emission]:
        """Hand it to the state, and ask to be woken at the end of the input."""
        yield from super().without_result(event)
        self.rearm()

    @property
    def _unsaid(self) -> bool:
        return not self.said and self.whole is not None and self.whole.seen % self.windowing.after != 0

    def is_due(self) -> bool:
        """Whether the input has ended and something is left."""
        return self._unsaid and self._mark >= FOREVER

    def step(self) -> Iterator[Emission]:
        """Say what is left."""
        assert self.whole is not None
        self.said = True
        yield from self._say(self.whole)

    def skip(self) -> None:
        """Leave it unsaid."""
        self.said = True

    def rearm(self) -> None:
        """Only at the end of the input."""
        self._wake(FOREVER if self._unsaid else None)
