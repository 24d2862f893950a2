"""The base of all kinds of windows, and their times: microseconds since the epoch, UTC."""

from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock.app.duration import Duration, seconds
from penstock.app.element import ProcessingElement
from penstock.errors import ConfigurationError
from penstock.kinds.moments import SECOND, microseconds, whole

if TYPE_CHECKING:
    from penstock.app.window.windowed import Windowed

DAY = 86_400 * SECOND
FOREVER = 253_402_300_799 * SECOND
"""The end of the year 9999: later than any event, and the watermark once the input has ended."""


class Window(NamedTuple):
    """A window: events from ``start`` to before ``end``, in UTC.

    The start and the end of a window by count are the times of its first and its last event.
    """

    start: datetime
    end: datetime


LONGEST = 365_250 * DAY
"""The longest window, a thousand years."""

EARLIEST, LATEST = (microseconds(at.replace(tzinfo=UTC)) for at in (datetime.min, datetime.max))
"""The first and the last time that there is, in microseconds since the epoch."""


def of_watermark(mark: float | None) -> int:
    """Convert a watermark from seconds to microseconds; without one, return a time before all events."""
    return -FOREVER if mark is None else whole(mark)


class Planned(NamedTuple):
    """Windows in Spark's terms: their length, interval and offset, in microseconds."""

    size_us: int
    every_us: int
    offset_us: int


ALLOWED = "allowed (us)"
"""The name in `Windowing.meaning` of the time for which closed windows are kept; new code may shorten it."""


@dataclass(frozen=True, kw_only=True)
class Windowing:
    """The division of an element's events into windows. Each kind of window is a derived class in a module of its own.

    Args:
        at: the datetime field that holds the events' time; by default the source's ``event_time``.
        allowed: how long a closed window's state is kept for late events, measured by the watermark.
    """

    at: str | None = None
    allowed: Duration = 0.0

    def __post_init__(self) -> None:
        _ = self.allowed_us  # refuses what is no duration

    @property
    def timed(self) -> bool:
        """Whether windows are spans of event time, so that they decide which events are late."""
        return True

    def by(self, field: str) -> Self:
        """Return a copy of these windows that takes the events' times from a field."""
        same = copy(self)
        object.__setattr__(same, "at", field)
        return same

    @cached_property
    def allowed_us(self) -> int:
        """The time after which a closed window is dropped, in microseconds."""
        return micros(self.allowed)

    @property
    def closes(self) -> bool:
        """Whether windows end, with a result at the end."""
        return True

    @property
    def merges(self) -> bool:
        """Whether states of windows are merged, so that a class must define ``merge``."""
        return False

    @property
    def disjoint(self) -> bool:
        """Whether each time lies in one window, whose start follows from ``every_us`` and ``offset_us`` alone."""
        return False

    def check(self, name: str, body: type[ProcessingElement]) -> None:
        """Refuse a class that lacks a hook that these windows need, or has one that they never call.

        Raises:
            TopologyError: names the element, the hook, and what to do.
        """

    def keeper(self, body: type[ProcessingElement], has_times: bool) -> type["Windowed"]:
        """Return the base of the prototype that keeps the windows of a class.

        Args:
            has_times: whether the events hold their times.
        """
        raise NotImplementedError

    def planned(self) -> "Planned | str":
        """Return the windows in Spark's terms, or why Spark cannot plan them."""
        return f"Spark plans no windows of {self}"

    def meaning(self) -> dict[str, Any]:
        """Return the facts about windows that stored state depends on; see `Stepwise.meaning`."""
        exact = {f"{name} (us)": getattr(self, f"{name}_us", None) for name in ("size", "every", "offset", "gap")}
        return {
            "windows": str(self),
            **{name: value for name, value in exact.items() if value is not None},
            ALLOWED: self.allowed_us,
        }


def micros(duration: Duration) -> int:
    """Convert a duration of a window to microseconds.

    Raises:
        ConfigurationError: it is no duration, or one by which windows would end after the last time that there is.
    """
    exact = round(seconds(duration) * SECOND)
    if exact > LONGEST:
        raise ConfigurationError(f"A window, or its allowed lateness, of {duration!r}: give 1,000 years at most.")
    return exact


def span(micros: int) -> str:
    """Return a number of microseconds as text with a unit, such as ``10 s``."""
    for unit, size in (("d", DAY), ("h", 3600 * SECOND), ("min", 60 * SECOND), ("s", SECOND), ("ms", 1000)):
        if micros >= size and micros % size == 0:
            return f"{micros // size} {unit}"
    return f"{micros / SECOND:g} s"
