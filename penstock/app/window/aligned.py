"""Windows of a fixed length that begin at regular intervals: tumbling and sliding windows."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.app.arguments import checked
from penstock.app.duration import Duration
from penstock.app.element import Emitted, ProcessingElement, overrides
from penstock.app.stepwise import emissions
from penstock.app.stream import Emission
from penstock.app.window.aggregate import Reducing
from penstock.app.window.windowed import Spans, Windowed, WindowPart, copied
from penstock.app.window.windowing import DAY, FOREVER, Planned, Windowing, micros, span
from penstock.errors import TopologyError
from penstock.kinds.moments import LOCAL_EPOCH, microseconds, moment


@dataclass(frozen=True, init=False)
class Sliding(Windowing):
    """Windows of a fixed length that begin at a regular interval, and overlap if the interval is shorter.

    Args:
        size, every: the length of a window, and the time from one start to the next.
        offset: the offset of the starts from midnight on 1 January 1970, in UTC or in the zone.
        zone: a time zone, as ``"Europe/Zurich"``, for windows of whole days. They begin when clocks there first show midnight
            (plus the offset), or the next time shown if clocks skip that. No window begins on a day that the zone's calendar
            skips.

    Raises:
        TopologyError: a length is zero or out of range, or there is no such zone.

    Examples:
        >>> print(Sliding("1 h", every="1 min"))
        1 h every 1 min
    """

    size: Duration
    every: Duration
    offset: Duration
    zone: str | None

    @checked()
    def __init__(
        self,
        size: Duration,
        every: Duration,
        *,
        offset: Duration = 0.0,
        zone: str | None = None,
        at: str | None = None,
        allowed: Duration = 0.0,
    ) -> None:
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
        """Length of a window in microseconds; in a zone, of local clock time."""
        return micros(self.size)

    @cached_property
    def every_us(self) -> int:
        """Time from one start to the next, in microseconds."""
        return micros(self.every)

    @cached_property
    def offset_us(self) -> int:
        """Offset of the starts, in microseconds."""
        return micros(self.offset)

    @property
    def longest_us(self) -> int:
        """How long a window lasts at most around an event, in microseconds."""
        return self.size_us

    def starts(self, time: int) -> Iterator[int]:
        """Yield the starts of the windows that contain a time, the latest first; microseconds."""
        shown = self._begins(time)
        if self.zone is None:
            yield from range(shown, time - self.size_us, -self.every_us)
            return
        while self._instant(shown + self.size_us) > time:
            start = self._instant(shown)
            if start < self._instant(shown + self.every_us):  # no window begins on a day that the zone skips
                yield start
            shown -= self.every_us

    def end(self, start: int) -> int:
        """Return the end of the window that begins at ``start``; microseconds."""
        return self._instant(self._begins(start) + self.size_us)

    def pane(self, time: int) -> int:
        """Return the start of the pane that contains a time: the part, ``every`` long, that overlapping windows share."""
        start: int = self.last_start(time) if self.regular else next(self.starts(time))
        return start

    @cached_property
    def regular(self) -> bool:
        """Whether the starts follow from ``every_us`` and ``offset_us`` alone."""
        return type(self) in (Sliding, Tumbling) and self.zone is None  # a derived class may define other starts

    @cached_property
    def disjoint(self) -> bool:
        """Whether each time lies in one window, with a regular start."""
        return self.regular and self.size_us == self.every_us

    @property
    def shared(self) -> bool:
        """Whether each window consists of two or more whole panes."""
        return self.zone is None and self.size_us != self.every_us and self.size_us % self.every_us == 0

    def keeper(self, body: type[ProcessingElement], has_times: bool) -> type[Windowed]:
        """Return `Panes` if windows consist of whole panes and the class can merge them, with neither early nor late results;
        else `Aligned`.
        """
        plain = not (overrides(body, "on_batch") or overrides(body, "on_late") or self.allowed_us)
        return Panes if self.shared and overrides(body, "merge") and plain else Aligned

    def planned(self) -> Planned | str:
        """Return the windows in Spark's terms; Spark cannot plan windows in a time zone."""
        return super().planned() if self.zone is not None else Planned(self.size_us, self.every_us, self.offset_us)

    def last_start(self, time: Any) -> Any:
        """Return the start of the last window up to a local time, or up to each of an array of times; microseconds."""
        return (time - self.offset_us) // self.every_us * self.every_us + self.offset_us

    def _begins(self, time: int) -> int:
        """Return the local clock time at which the last window up to a time begins; microseconds."""
        clock = time if self.zone is None else _clock(self.zone, time)
        shown: int = self.last_start(clock)
        after = shown + self.every_us  # clocks that were put back may have shown this start already
        return shown if self.zone is None or self._instant(after) > time else after

    def _instant(self, shown: int) -> int:
        return shown if self.zone is None else _instant(self.zone, shown)

    def __str__(self) -> str:
        zone = "" if self.zone is None else f" in {self.zone}"
        offset = f" from {span(self.offset_us)}" if self.offset_us else ""
        every = "" if self.every_us == self.size_us else f" every {span(self.every_us)}"
        return f"{span(self.size_us)}{every}{offset}{zone}"


class Tumbling(Sliding):
    """Windows of a fixed length, without overlap or gaps; see `Sliding` for the parameters.

    Examples:
        >>> Tumbling("10 s").every
        '10 s'
    """

    @checked()
    def __init__(
        self, size: Duration, *, offset: Duration = 0.0, zone: str | None = None, at: str | None = None, allowed: Duration = 0.0
    ) -> None:
        super().__init__(size, size, offset=offset, zone=zone, at=at, allowed=allowed)


class Aligned(Spans):
    """Tumbling and sliding windows, each with a state of its own."""

    form = "windows, each with a state of its own"
    if TYPE_CHECKING:
        latest: tuple[int, int, Any, Callable[[Any], Emitted]] | None = None
    else:
        latest = None  # without an annotation, so that it is no field of the state
    """The window of the last event, if it is the only one at that time and open: its start and end, the context in which it
    got the event, and its `on_event`. What is noted of a window with an event need not be noted for the next one.
    """

    def on_event(self, event: Any) -> Emitted:
        """Pass the event to the windows that it belongs to; see `Spans.on_event`."""
        if self.latest is not None:
            start, end, context, on_event = self.latest
            if context is self._context and start <= self._time(event) < end:
                return on_event(event)
        return super().on_event(event)

    def _hand(self, start: int, event: Any) -> Emitted:
        part = self.open[start]
        if self.windowing.disjoint and not part.closed:
            self.latest = start, part.end, self._context, part.state.on_event
        return super()._hand(start, event)

    def on_batch(self) -> Iterator[Emission]:
        """Emit results before the windows close; see `Spans.on_batch`."""
        self.latest = None
        return super().on_batch()

    def _forget(self, start: int, part: WindowPart[Any]) -> None:
        self.latest = None
        super()._forget(start, part)

    def _windows(self, time: int) -> list[int]:
        windowing: Sliding = self.windowing
        if windowing.disjoint:  # equivalent to the code below, in a fifth of the time
            start = windowing.last_start(time)
            end = start + windowing.size_us
            if end > self._fired:
                if start not in self.open:
                    self.open[start] = WindowPart(self._made(), end)
                return [start]
        spans = [(start, windowing.end(start)) for start in windowing.starts(time)]
        oldest = self._fired - windowing.allowed_us
        live = [(start, end) for start, end in reversed(spans) if end > oldest]
        if not live:
            raise self._late(time)
        self._context.late_in_part += len(live) < len(spans)
        for start, end in live:
            if start not in self.open:
                self.open[start] = WindowPart(self._made(), end, closed=end <= self._fired)
        return [start for start, _ in live]


class Panes(Windowed):
    """Sliding windows that share panes: an event goes into one pane, and a window's state is merged from its panes."""

    form = "parts that windows share"
    holds = ("open",)

    if TYPE_CHECKING:  # a field of each prototype, typed by its body
        open: dict[int, WindowPart[Any]]
    next: int = -FOREVER
    """The start of the first window that has not closed."""

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Pass the event to its pane.

        Raises:
            LateEventError: the last window of the pane has closed.
        """
        windowing: Sliding = self.windowing
        time = self._time(event)
        start = windowing.pane(time)
        end = windowing.end(start)
        if end <= self._fired:
            raise self._late(time)
        first_end = start + windowing.every_us
        self._context.late_in_part += first_end <= self._fired
        part = self.open.get(start)
        if part is None:
            part = self.open[start] = WindowPart(self._made(), end)
            self.rearm()
        yield from emissions(self._enter(part.state, start, end).on_event(event))

    def is_due(self) -> bool:
        """Whether the watermark has passed the end of a window."""
        return bool(self.open) and self.windowing.end(self._first(min(self.open))) <= self._mark

    def step(self) -> Iterator[Emission]:
        """Close the first window, and drop its first pane, which no other window needs."""
        panes = sorted(self.open)
        start = self._first(panes[0])
        whole = self._merged(panes, start, self.windowing.end(start))
        self._leave(panes, start)
        yield from emissions(whole.on_close())

    def undo(self) -> Callable[[], None] | None:
        """Return a function that restores the windows, for reducers only: closing a window does not change their states."""
        if not (issubclass(self.body, Reducing) and self.body.merges_apart):
            return None
        before, following = dict(self.open), self.next

        def back() -> None:
            self.open, self.next = before, following

        return back

    def on_timer(self) -> Iterator[Emission]:
        """Close all windows whose ends the watermark has passed."""
        windowing: Sliding = self.windowing
        panes, mark = sorted(self.open), self._mark
        while panes:
            start = self._first(panes[0])
            end = windowing.end(start)
            if end > mark:
                self._wake(end)
                return
            whole = self._merged(panes, start, end)
            self._leave(panes, start)
            yield from emissions(whole.on_close())
        self._wake(None)

    def skip(self) -> None:
        """Skip the first window: go on to the next one."""
        panes = sorted(self.open)
        self._leave(panes, self._first(panes[0]))

    def _leave(self, panes: list[int], start: int) -> None:
        """Go on to the window after one, given the panes' starts in order; drop the panes that no window needs any more."""
        self.next = start + self.windowing.every_us
        while panes and panes[0] < self.next:
            del self.open[panes.pop(0)]

    def _merged(self, panes: list[int], start: int, end: int) -> Any:
        """Return the state of a window, merged from its panes; given the starts of all panes in order."""
        states = [self.open[pane].state for pane in panes[: bisect_left(panes, end)]]
        if issubclass(self.body, Reducing) and self.body.merges_apart:
            return self._enter(self.body.merged(states), start, end)
        whole = self._enter(self._made(), start, end)
        for state in states:
            whole.merge(copied(state))  # a copy: merge may keep parts of it, and other windows need the pane unchanged
        return self._enter(whole, start, end)

    def _first(self, pane: int) -> int:
        """Return the start of the first window that has not closed and holds a pane, given the first pane's start."""
        windowing: Sliding = self.windowing
        fired = self._fired
        after = windowing.pane(fired - windowing.size_us) + windowing.every_us if fired > -FOREVER else -FOREVER
        return max(self.next, after, pane - windowing.size_us + windowing.every_us)

    def is_empty(self) -> bool:
        """Whether no pane is kept."""
        return not self.open

    def rearm(self) -> None:
        """Set the timer for the end of the first window."""
        self._wake(self.windowing.end(self._first(min(self.open))) if self.open else None)


def _clock(zone: str, time: int) -> int:
    """Return the local clock time in a zone at a time (us), as microseconds as if it were UTC."""
    return microseconds(moment(time).astimezone(ZoneInfo(zone)).replace(tzinfo=None))


@lru_cache(maxsize=4096)
def _instant(zone: str, shown: int) -> int:
    """Return when clocks in a zone first show a local time (us), or the next later one if they skip it; microseconds in UTC."""
    local = LOCAL_EPOCH + timedelta(microseconds=shown)
    first, second = (microseconds(local.replace(tzinfo=ZoneInfo(zone), fold=fold)) for fold in (0, 1))
    if first <= second:  # shown once or twice
        return first
    return bisect_left(range(second, first), shown, key=partial(_clock, zone)) + second
