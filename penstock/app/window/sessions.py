"""Session windows, which end when no event of the key has come for a given time."""

from dataclasses import dataclass
from functools import cached_property

from penstock.app.arguments import checked
from penstock.app.duration import Duration
from penstock.app.element import ProcessingElement, overrides
from penstock.app.window.windowed import Spans, Windowed, WindowPart
from penstock.app.window.windowing import Planned, Windowing, micros, span
from penstock.errors import TopologyError


@dataclass(frozen=True, init=False)
class Session(Windowing):
    """Windows that end when no event of the key has come for the gap; an event between two sessions joins them.

    Args:
        gap: the time from the last event to the end of the window.

    Raises:
        TopologyError: the gap is zero.

    Examples:
        >>> print(Session("30 s"))
        session, gap 30 s
    """

    gap: Duration

    @checked()
    def __init__(self, gap: Duration, *, at: str | None = None, allowed: Duration = 0.0) -> None:
        super().__init__(at=at, allowed=allowed)
        object.__setattr__(self, "gap", gap)
        if self.gap_us <= 0:
            raise TopologyError(f"A session with a gap of {gap}: it must be longer than zero.")

    @cached_property
    def gap_us(self) -> int:
        """The gap in microseconds."""
        return micros(self.gap)

    @property
    def merges(self) -> bool:
        """True: an event may join two sessions."""
        return True

    def check(self, name: str, body: type[ProcessingElement]) -> None:
        """Refuse a class that cannot merge two sessions."""
        if not overrides(body, "merge"):
            raise TopologyError(
                f"Element {name}: an event may join two sessions, so give it `def merge(self, other)`, which takes in the "
                "state of the later one."
            )

    def keeper(self, body: type[ProcessingElement], has_times: bool) -> type[Windowed]:
        """Return the prototype, whose windows grow and merge."""
        return Sessions

    @property
    def longest_us(self) -> int:
        """How long a session lasts at least after an event, in microseconds."""
        return self.gap_us

    def planned(self) -> Planned | str:
        """Return why Spark cannot plan sessions with equal results."""
        return "Spark judges each event of a session by itself, and would drop late ones that an open session takes"

    def __str__(self) -> str:
        return f"session, gap {span(self.gap_us)}"


class Sessions(Spans):
    """Windows that grow with their events, and merge where an event joins them."""

    form = "sessions"

    def _windows(self, time: int) -> list[int]:
        gap = self.windowing.gap_us
        joined = sorted(start for start, part in self.open.items() if start < time + gap and time < part.end)
        end = max([time + gap, *(self.open[start].end for start in joined)])
        if end + self.windowing.allowed_us <= self._fired:
            raise self._late(time)
        if time < self._fired - self.windowing.allowed_us and not any(start <= time for start in joined):
            self._context.late_in_part += 1  # a session that it would have joined may have closed
        # The earliest session takes in the others, in the order of their times.
        first = min([time, *joined])
        whole = self.open.pop(joined[0]) if joined else WindowPart(self._made(), end)
        self._enter(whole.state, first, whole.end)
        for start in joined[1:]:
            other = self.open.pop(start)
            whole.state.merge(self._enter(other.state, start, other.end))
            whole.again |= other.again
        whole.end, whole.closed = end, end <= self._fired
        self.open[first] = whole
        self.touched.difference_update(joined)
        return [first]
