"""Windows of a fixed number of events of a key."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.app.arguments import checked
from penstock.app.element import ProcessingElement, overrides
from penstock.app.stepwise import Stepwise, emissions
from penstock.app.stream import Emission
from penstock.app.window.windowed import Events, Windowed, copied
from penstock.app.window.windowing import FOREVER, Windowing
from penstock.errors import TopologyError


@dataclass(frozen=True, init=False)
class Count(Windowing):
    """Windows of a fixed number of events of a key, in the order of arrival.

    Args:
        size: the number of events of a window.
        every: the number of events from one start to the next; ``size`` by default.

    Raises:
        TopologyError: a number is below one, or the size is not a multiple of ``every``.

    Examples:
        >>> print(Count(100))
        100 events
    """

    size: int
    every: int

    @property
    def timed(self) -> bool:
        """False: windows by count are not spans of time."""
        return False

    @checked()
    def __init__(self, size: int, every: int | None = None, *, at: str | None = None) -> None:
        super().__init__(at=at)
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "every", size if every is None else every)
        if not 1 <= self.every <= self.size or self.size % self.every:
            raise TopologyError(
                f"A window of {size} events every {every}: give whole numbers above zero, the first a multiple of the second."
            )

    @property
    def merges(self) -> bool:
        """Whether windows share events."""
        return self.every < self.size

    def check(self, name: str, body: type[ProcessingElement]) -> None:
        """Refuse a class that cannot merge the parts that windows share."""
        if self.merges and (not overrides(body, "merge") or overrides(body, "on_batch")):
            raise TopologyError(
                f"Element {name}: windows of {self} share their events, so give it `def merge(self, other)`, and no on_batch."
            )

    def keeper(self, body: type[ProcessingElement], has_times: bool) -> type[Windowed]:
        """Return the prototype; if events have times, it also closes the last window when the input ends."""
        return CountedToTheEnd if has_times else Counted

    def __str__(self) -> str:
        return f"{self.size:,} events" + ("" if self.every == self.size else f" every {self.every:,}")


class Counted(Windowed):
    """Windows by count; overlapping windows consist of several parts, which they share."""

    form = "windows by count"
    holds = ("parts",)

    on_timer = ProcessingElement.on_timer  # no timer: without event time, the end of the input is not seen

    if TYPE_CHECKING:  # a field of each prototype, typed by its body
        parts: list[Events[Any]]

    unsaid: int = 0
    """The number of events since the last window was closed."""

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Pass the event to the last part, and close the window that it fills."""
        filled = self.would_say()
        yield from self._take_in(event)
        if filled:
            yield from self._close()
            del self.parts[0]

    def would_say(self) -> bool:
        """Whether the next event fills a window."""
        windowing: Count = self.windowing
        return sum(part.seen for part in self.parts) + 1 == windowing.size

    def without_result(self, event: Any) -> Iterator[Emission]:
        """Pass the event to the last part, and drop the window that it fills without a result."""
        yield from self._take_in(event)
        self.unsaid = 0
        del self.parts[0]

    def _take_in(self, event: Any) -> Iterator[Emission]:
        windowing: Count = self.windowing
        time = self._time(event)
        if not self.parts or self.parts[-1].seen == windowing.every:
            self.parts.append(Events(self._made(), time, time))
        part = self.parts[-1]
        part.seen, part.last, self.unsaid = part.seen + 1, time, self.unsaid + 1
        yield from emissions(self._enter(part.state, part.first, time).on_event(event))

    def on_batch(self) -> Iterator[Emission]:
        """Emit early results of the open window."""
        if self.parts and overrides(self.body, "on_batch"):
            part = self.parts[-1]
            yield from emissions(self._enter(part.state, part.first, part.last).on_batch())

    def is_empty(self) -> bool:
        """Whether no event is kept."""
        return not self.parts

    def _close(self) -> Iterable[Emission]:
        self.unsaid = 0
        first, last = self.parts[0].first, self.parts[-1].last
        whole = self.parts[0].state
        if len(self.parts) > 1:
            whole = self._enter(self._made(), first, last)
            for part in self.parts:
                whole.merge(copied(part.state))
        state = self._enter(whole, first, last)
        return emissions(state.on_close() if overrides(self.body, "on_close") else state.on_batch())


class CountedToTheEnd(Counted):
    """Windows by count of events that have times: the last window is closed when the input ends."""

    on_timer = Stepwise.on_timer

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Pass the event to the last part, and set the timer for the end of the input."""
        yield from super().on_event(event)
        self.rearm()

    def without_result(self, event: Any) -> Iterator[Emission]:
        """Pass the event to the last part without a result, and set the timer for the end of the input."""
        yield from super().without_result(event)
        self.rearm()

    def is_due(self) -> bool:
        """Whether the input has ended, and events are left that no result covers."""
        return self.unsaid > 0 and self._mark >= FOREVER

    def step(self) -> Iterator[Emission]:
        """Close the window of the events that are left."""
        closing = self._close()
        self.parts = []
        yield from closing

    def skip(self) -> None:
        """Drop the events that are left."""
        self.parts, self.unsaid = [], 0

    def rearm(self) -> None:
        """Set the timer for the end of the input, if events are left that no result covers."""
        self._wake(FOREVER if self.unsaid else None)
