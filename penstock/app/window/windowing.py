"""Which windows an event belongs to. Times are in microseconds since the epoch, UTC."""

from bisect import bisect_left
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache, partial
from typing import Any, NamedTuple, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.app.arguments import checked
from penstock.app.duration import Duration, seconds
from penstock.errors import TopologyError

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


ALLOWED = "allowed (us)"
"""What `Windowing.meaning` calls how long windows are kept, which may become less."""


@dataclass(frozen=True, kw_only=True)
class Windowing:
    """How an element's events are divided into windows.

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
        return _micros(self.allowed)

    def meaning(self) -> dict[str, Any]:
        """What stored windows are known by; see `Stepwise.meaning`."""
        exact = {f"{name} (us)": getattr(self, f"{name}_us", None) for name in ("size", "every", "offset", "gap")}
        return {
            "windows": str(self),
            **{name: value for name, value in exact.items() if value is not None},
            ALLOWED: self.allowed_us,
        }


@dataclass(frozen=True, init=False)
class Sliding(Windowing):
    """Windows of one length that begin every so often, and overlap where that is less.

    Parameters
    ----------
    size, every: length of a window, and from one's start to the next one's.
    offset: of the starts, from midnight in UTC or in the zone on 1 January 1970.
    zone: a time zone, as ``"Europe/Zurich"``, for windows of whole days: they begin when clocks there first show midnight,
        or the offset's time of the day, or a later time where they skip it. No window begins on a day that they leave out.

    Raises
    ------
    TopologyError: a length is zero or out of its range, or there is no such zone.
    """

    size: Duration
    every: Duration
    offset: Duration
    zone: str | None

    @checked()
    def __init__(
        self, size: Duration, every: Duration, *, offset: Duration = 0.0, zone: str | None = None, at: str | None = None,
        allowed: Duration = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(at=at, allowed=allowed)
        for name, value in (("size", size), ("every", every), ("offset", offset), ("zone", zone)):
            object.__setattr__(self, name, value)
        if not 0 < self.every_us <= self.size_us:
            raise TopologyError(
                f"A window of {size} every {every}: both must be longer than zero, and the second no longer than the first, "
                "or events between windows would be in none."
            )
        if self.offset_us >= self.every_us:
            raise TopologyError(f"A window every {every} with an offset of {offset}: give a shorter one.")
        if zone is None:
            return
        if self.size_us % DAY or self.every_us % DAY:
            raise TopologyError(
                f"A window of {size} every {every} in a time zone: give whole days; shorter windows are the same in all zones "
                "but for an offset."
            )
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise TopologyError(f"There is no time zone {zone!r}; write one as 'Europe/Zurich'.") from error

    @cached_property
    def size_us(self) -> int:
        """Microseconds of a window; of clock time, in a zone."""
        return _micros(self.size)

    @cached_property
    def every_us(self) -> int:
        """Microseconds from start to start."""
        return _micros(self.every)

    @cached_property
    def offset_us(self) -> int:
        """Microseconds of the offset."""
        return _micros(self.offset)

    def starts(self, time: int) -> Iterator[int]:
        """Of the windows that a time lies in, the latest first."""
        shown = self._begins(time)
        if self.zone is None:
            yield from range(shown, time - self.size_us, -self.every_us)
            return
        while self._instant(shown + self.size_us) > time:
            start = self._instant(shown)
            if start < self._instant(shown + self.every_us):  # no window begins on a day that is left out
                yield start
            shown -= self.every_us

    def end(self, start: int) -> int:
        """Of the window that begins at a time."""
        return self._instant(self._begins(start) + self.size_us)

    def pane(self, time: int) -> int:
        """The start of the part that windows share; parts are ``every`` long where windows are a multiple of that."""
        return next(self.starts(time))

    @property
    def shared(self) -> bool:
        """Whether windows are made of whole panes, more than one."""
        return self.zone is None and self.size_us != self.every_us and self.size_us % self.every_us == 0

    def _begins(self, time: int) -> int:
        """What clocks show when the last window up to a time begins."""
        clock = time if self.zone is None else _clock(self.zone, time)
        shown = (clock - self.offset_us) // self.every_us * self.every_us + self.offset_us
        after = shown + self.every_us  # which clocks that have been put back may have shown already
        return shown if self.zone is None or self._instant(after) > time else after

    def _instant(self, shown: int) -> int:
        return shown if self.zone is None else _instant(self.zone, shown)

    def __str__(self) -> str:
        zone = "" if self.zone is None else f" in {self.zone}"
        offset = f" from {span(self.offset_us)}" if self.offset_us else ""
        every = "" if self.every_us == self.size_us else f" every {span(self.every_us)}"
        return f"{span(self.size_us)}{every}{offset}{zone}"


def _clock(zone: str, time: int) -> int:
    """What clocks in a zone show, as if it were UTC."""
    return microseconds(moment(time).astimezone(ZoneInfo(zone)).replace(tzinfo=None))


@lru_cache(maxsize=4096)
def _instant(zone: str, shown: int) -> int:
    """When clocks in a zone first show a time, or a later one where they skip it."""
    local = LOCAL_EPOCH + timedelta(microseconds=shown)
    first, second = (microseconds(local.replace(tzinfo=ZoneInfo(zone), fold=fold)) for fold in (0, 1))
    if first <= second:  # shown once, or twice
        return first
    return bisect_left(range(second, first), shown, key=partial(_clock, zone)) + second


class Tumbling(Sliding):
    """Windows of one length, one after the other; see `Sliding` for the parameters."""

    @checked()
    def __init__(
        self, size: Duration, *, offset: Duration = 0.0, zone: str | None = None, at: str | None = None,
        allowed: Duration = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(size, size, offset=offset, zone=zone, at=at, allowed=allowed)


@dataclass(frozen=True, init=False)
class Session(Windowing):
    """Windows that end when no event of the key has come for so long; an event between two joins them.

    Parameters
    ----------
    gap: after the last event, at which the window ends.

    Raises
    ------
    TopologyError: the gap is zero.
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
        return _micros(self.gap)

    def __str__(self) -> str:
        return f"session, gap {span(self.gap_us)}"


@dataclass(frozen=True, init=False)
class Count(Windowing):
    """Windows of so many events of a key, in the order in which they come.

    Parameters
    ----------
    size: events of a window. every: events from one's start to the next one's; ``size`` unless given.

    Raises
    ------
    TopologyError: a number is below one, or the size no multiple of ``every``.
    """

    size: int
    every: int

    @property
    def timed(self) -> bool:
        """Not these."""
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

    def __str__(self) -> str:
        return f"{self.size:,} events" + ("" if self.every == self.size else f" every {self.every:,}")


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

    @cached_property
    def every_us(self) -> int:
        """Microseconds from result to result; 0, where events are counted."""
        return 0 if self.every is None else _micros(self.every)

    def __str__(self) -> str:
        return f"all, result every {f'{self.after:,} events' if self.every is None else span(self.every_us)}"


def _micros(duration: Duration) -> int:
    return round(seconds(duration) * SECOND)


def span(micros: int) -> str:
    """A duration as people write it, in microseconds."""
    for unit, size in (("d", DAY), ("h", 3600 * SECOND), ("min", 60 * SECOND), ("s", SECOND), ("ms", 1000)):
        if micros >= size and micros % size == 0:
            return f"{micros // size} {unit}"
    return f"{micros / SECOND:g} s"
