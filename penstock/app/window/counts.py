"""Windows of so many events of a key."""

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
    """Windows of so many events of a key, in the order in which they come.

    Parameters
    ----------
    size: events of a window. every: events from one's start to the next one's; ``size`` unless given.

    Raises
    ------
    TopologyError: a number is below one, or the size no multiple of ``every``.

    Examples
    --------
    >>> print(Count(100))
    100 events
    """

    size: int
    every: int

    @property
    def timed(self) -> bool:
        """False: windows by count are no spans of time."""
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
        """Where events have times, the last window is closed when the input has ended."""
        return CountedToTheEnd if has_times else Counted

    def __str__(self) -> str:
        return f"{self.size:,} events" + ("" if self.every == self.size else f" every {self.every:,}")


class Counted(Windowed):
    """Windows by count, of one part or several that windows share."""

    form = "windows by count"
    holds = ("parts",)

    on_timer = ProcessingElement.on_timer  # none: where there is no event time, there is no end

    if TYPE_CHECKING:  # a field of each prototype, typed by its body
        parts: list[Events[Any]]

    unsaid: int = 0
    """Events since a window was closed."""

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Hand it to the last part, and close the window that it fills."""
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
        """Hand it to the last part, and forget the window that it fills."""
        yield from self._take_in(event)
        self.unsaid = 0
        del self.parts[0]

    def _take_in(self, event: Any) -> Iterator[Emission]:
        windowing: Count = self.windowing
        time = self._time(event)
        if not self.parts or self.parts[-1].seen == windowing.every:
            self.parts.append(Events(self.body(), time, time))
        part = self.parts[-1]
        part.seen, part.last, self.unsaid = part.seen + 1, time, self.unsaid + 1
        yield from emissions(self._enter(part.state, part.first, time).on_event(event))

    def on_batch(self) -> Iterator[Emission]:
        """Early results of the window that is open."""
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
            whole = self._enter(self.body(), first, last)
            for part in self.parts:
                whole.merge(copied(part.state))
        state = self._enter(whole, first, last)
        return emissions(state.on_close() if overrides(self.body, "on_close") else state.on_batch())


class CountedToTheEnd(Counted):
    """Windows by count of events that have times: the last window is closed when the input has ended."""

    on_timer = Stepwise.on_timer

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Hand it to the last part, and ask to be woken at the end of the input."""
        yield from super().on_event(event)
        self.rearm()

    def without_result(self, event: Any) -> Iterator[Emission]:
        """Hand it to the last part without a result, and ask to be woken at the end of the input."""
        yield from super().without_result(event)
        self.rearm()

    def is_due(self) -> bool:
        """Whether the input has ended and something is left."""
        return self.unsaid > 0 and self._mark >= FOREVER

    def step(self) -> Iterator[Emission]:
        """Close what is left."""
        closing = self._close()
        self.parts = []
        yield from closing

    def skip(self) -> None:
        """Forget it."""
        self.parts, self.unsaid = [], 0

    def rearm(self) -> None:
        """Only at the end of the input."""
        self._wake(FOREVER if self.unsaid else None)
