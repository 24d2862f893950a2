"""What all kinds of windows have in common, and their times: microseconds since the epoch, UTC."""

from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from penstock.app.duration import Duration, seconds
from penstock.app.element import ProcessingElement

if TYPE_CHECKING:
    from penstock.app.window.windowed import Windowed

SECOND = 1_000_000
DAY = 86_400 * SECOND
FOREVER = 253_402_300_799 * SECOND
"""The end of the year 9999: later than any event, and what the watermark is once the input has ended."""


class Window(NamedTuple):
    """A window: events from ``start`` to before ``end``, in UTC.

    A window by count has the time of its first event as start, and that of its last one as end.
    """

    start: datetime
    end: datetime


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOCAL_EPOCH = datetime(1970, 1, 1)


def microseconds(moment: datetime) -> int:
    """Since the epoch; a time without a zone is in UTC."""
    since = moment - (EPOCH if moment.tzinfo else LOCAL_EPOCH)
    return (
        since.days * 86_400 + since.seconds
    ) * SECOND + since.microseconds  # a float would be a microsecond off from 2243 on


def of_watermark(mark: float | None) -> int:
    """Microseconds of a watermark in seconds; before all times, where there is none."""
    return -FOREVER if mark is None else round(mark * SECOND)


def moment(at: int) -> datetime:
    """The time of a number of microseconds since the epoch."""
    return EPOCH + timedelta(microseconds=at)


class Planned(NamedTuple):
    """Windows in Spark's words: of a length, so often, from an offset, in microseconds."""

    size_us: int
    every_us: int
    offset_us: int


ALLOWED = "allowed (us)"
"""What `Windowing.meaning` calls how long windows are kept, which may become less."""


@dataclass(frozen=True, kw_only=True)
class Windowing:
    """How an element's events are divided into windows. A kind of window is a class derived from this, in a file of its own.

    Parameters
    ----------
    at: the field of the events that holds their time, a datetime; the source's ``event_time`` unless given.
    allowed: how long after a window has closed its state is kept for late events, by the watermark.
    """

    at: str | None = None
    allowed: Duration = 0.0

    @property
    def timed(self) -> bool:
        """Whether windows are spans of time, which know which events are late."""
        return True

    def by(self, field: str) -> Self:
        """The same windows, by the times that a field holds."""
        same = copy(self)
        object.__setattr__(same, "at", field)
        return same

    @cached_property
    def allowed_us(self) -> int:
        """Microseconds after which a closed window is forgotten."""
        return micros(self.allowed)

    @property
    def closes(self) -> bool:
        """Whether windows come to an end, at which there is a result."""
        return True

    @property
    def merges(self) -> bool:
        """Whether states are merged into one, so that a class must say how."""
        return False

    @property
    def disjoint(self) -> bool:
        """Whether a time lies in one window alone, whose start is a matter of ``every_us`` and ``offset_us``."""
        return False

    def check(self, name: str, body: type[ProcessingElement]) -> None:
        """Refuse a class that lacks a hook that these windows need, or has one that they cannot call.

        Raises
        ------
        TopologyError: names the element, the hook, and what to do.
        """

    def keeper(self, body: type[ProcessingElement], has_times: bool) -> type["Windowed"]:
        """The prototype that keeps the windows of a class.

        Parameters
        ----------
        has_times: whether the events hold a time.
        """
        raise NotImplementedError

    def planned(self) -> "Planned | str":
        """How Spark is to plan the windows, or why it cannot."""
        return f"Spark plans no windows of {self}"

    def meaning(self) -> dict[str, Any]:
        """What stored windows are known by; see `Stepwise.meaning`."""
        exact = {f"{name} (us)": getattr(self, f"{name}_us", None) for name in ("size", "every", "offset", "gap")}
        return {
            "windows": str(self),
            **{name: value for name, value in exact.items() if value is not None},
            ALLOWED: self.allowed_us,
        }


def micros(duration: Duration) -> int:
    """A duration in microseconds."""
    return round(seconds(duration) * SECOND)


def span(micros: int) -> str:
    """A duration as people write it, in microseconds."""
    for unit, size in (("d", DAY), ("h", 3600 * SECOND), ("min", 60 * SECOND), ("s", SECOND), ("ms", 1000)):
        if micros >= size and micros % size == 0:
            return f"{micros // size} {unit}"
    return f"{micros / SECOND:g} s"
