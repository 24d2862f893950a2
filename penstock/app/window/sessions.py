"""Windows that end when no event of the key has come for so long."""

from dataclasses import dataclass
from functools import cached_property

from penstock.app.arguments import checked
from penstock.app.duration import Duration
from penstock.app.element import ProcessingElement, overrides
from penstock.app.window.windowed import Part, Spans, Windowed
from penstock.app.window.windowing import Planned, Windowing, micros, span
from penstock.errors import TopologyError


@dataclass(frozen=True, init=False)
class Session(Windowing):
    """Windows that end when no event of the key has come for so long; an event between two joins them.

    Parameters
    ----------
    gap: after the last event, at which the window ends.

    Raises
    ------
    TopologyError: the gap is zero.

    Examples
    --------
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
        """Microseconds of the gap."""
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
        """Sessions grow, and merge."""
        return Sessions

    def planned(self) -> Planned | str:
        """Why Spark cannot plan sessions with the same rows."""
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
        first = min([time, *joined])
        whole = self.open.pop(joined[0]) if joined else Part(self.body(), end)
        self._enter(whole.state, first, whole.end)
        for start in joined[1:]:
            other = self.open.pop(start)
            whole.state.merge(self._enter(other.state, start, other.end))
            whole.again |= other.again
        whole.end, whole.closed = end, end <= self._fired
        self.open[first] = whole
        self.touched.difference_update(joined)
        return [first]
