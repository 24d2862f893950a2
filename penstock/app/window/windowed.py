"""Prototypes whose state is the state of windows: each window has an instance of the author's class.

To a container they are prototypes as any other: their timer is set to the end of the window that closes first, and their
state is what is kept of the windows that are open.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

import msgspec

from penstock.app.element import ProcessingElement, overrides
from penstock.app.stepwise import Stepwise, emissions, field_of
from penstock.app.stream import Emission
from penstock.app.window.aggregate import Reducing
from penstock.app.window.windowing import (
    FOREVER,
    SECOND,
    Count,
    Sliding,
    Window,
    microseconds,
    moment,
    of_watermark,
)
from penstock.errors import LateEventError
from penstock.kinds.annotations import kind_of
from penstock.kinds.coding import msgpack_decoder, msgpack_encoder
from penstock.kinds.event import field_types

Body = TypeVar("Body")


class Part(msgspec.Struct, Generic[Body], array_like=True):
    """A window, or a part that several windows share.

    Parameters
    ----------
    end: of its events' time; microseconds, as all times here.
    closed: whether it has been closed and is kept for late events. again: whether one has come in this micro-batch.
    """

    state: Body
    end: int
    closed: bool = False
    again: bool = False


class Windowed(Stepwise):
    """What all windows have in common."""

    body: ClassVar[type[ProcessingElement]]
    windowing: ClassVar[Any]
    time_of: ClassVar[Callable[[Any], datetime] | None]
    """Reads an event's time; None for windows by count without one."""

    @classmethod
    def meaning(cls) -> dict[str, Any]:
        """With the windows to the microsecond, the field that holds the time, and how they are merged."""
        reducers = {"reducers": cls.body.meaning()} if issubclass(cls.body, Reducing) else {}
        return {**super().meaning(), **cls.windowing.meaning(), "field of the time": field_of(cls.time_of), **reducers}

    @property
    def _mark(self) -> int:
        """The watermark, which closes windows; before all times, where there is none."""
        return of_watermark(self._context.watermark)

    @property
    def _fired(self) -> int:
        """The watermark by which windows were closed last: an event that is late for it is too late."""
        return of_watermark(self._context.fired)

    def _enter(self, state: Any, start: int, end: int) -> Any:
        """Make a window's state know where it is, before one of its hooks is called."""
        state.key, state._context, state.window = self.key, self._context.windowed, _window(start, end)
        return state

    def _time(self, event: Any) -> int:
        """When an event was; where it holds no time, when it is handled."""
        reader = type(self).time_of
        return round(self._context.now * SECOND) if reader is None else microseconds(reader(event))

    def _wake(self, at: int | None) -> None:
        self._context.due = None if at is None else at / SECOND

    def _wake_by(self, at: int) -> None:
        """At that time, unless the timer is set for an earlier one."""
        due = self._context.due
        self._context.due = at / SECOND if due is None else min(due, at / SECOND)

    def _late(self, time: int) -> LateEventError:
        return LateEventError(
            f"the event is of {moment(time).isoformat()}, and its windows have closed: the watermark was "
            f"{moment(self._fired).isoformat()}"
        )


@lru_cache(maxsize=1024)
def _window(start: int, end: int) -> Window:
    """The window from one time to another, which many keys and events share."""
    return Window(moment(start), moment(end))


class Spans(Windowed):
    """Windows that are spans of time: aligned ones and sessions."""

    if TYPE_CHECKING:  # a field of each prototype, typed by its body
        open: dict[int, Part[Any]]  # by start

    touched: set[int] = set()
    """Starts of the windows that have got an event in this micro-batch."""

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Hand it to the windows that it belongs to.

        Raises
        ------
        LateEventError: all of them have been forgotten.
        """
        starts = self._windows(self._time(event))
        for number, start in enumerate(starts):
            part = self.open[start]
            state = self._enter(part.state, start, part.end)
            self.touched.add(start)
            if number and not _is_flat(cast(Any, type(event))):
                event = _copy(event)  # what one window's state keeps of it must not be another's
            if part.closed and overrides(self.body, "on_late"):
                yield from emissions(state.on_late(event))
            else:
                part.again = part.closed
                yield from emissions(state.on_event(event))
            self._wake_by(self._deadline(part))

    def on_batch(self) -> Iterator[Emission]:
        """Early results of open windows, and new ones of those that had closed."""
        touched, self.touched = sorted(self.touched), set()
        says_close, says_batch = (overrides(self.body, hook) for hook in ("on_close", "on_batch"))
        for start in touched:
            part = self.open.get(start)
            if part is None:
                continue
            state = self._enter(part.state, start, part.end)
            if part.again and says_close:
                yield from emissions(state.on_close())
            elif says_batch and (part.again or not part.closed):
                yield from emissions(state.on_batch())
            part.again = False
        self.rearm()

    def is_due(self) -> bool:
        """Whether the watermark has passed the end of a window, or the time for which a closed one is kept."""
        return bool(self.open) and self._next()[0] <= self._mark

    def step(self) -> Iterable[Emission]:
        """Close the window that ends first, and forget it once it is kept no longer."""
        return self._pass(self._next()[1])

    def skip(self) -> None:
        """Leave out its result."""
        part = self.open[self._next()[1]]
        if part.end + self.windowing.allowed_us <= self._mark:
            del self.open[self._next()[1]]
        part.closed = True

    def on_timer(self) -> Iterator[Emission]:
        """Close what the watermark has passed, in order."""
        mark = self._mark
        due = sorted((self._deadline(part), start) for start, part in self.open.items() if part.end <= mark)
        for deadline, start in due:
            if deadline <= mark:
                yield from self._pass(start)
        self.rearm()

    def rearm(self) -> None:
        """At the end that comes first."""
        self._wake(self._next()[0] if self.open else None)

    def is_empty(self) -> bool:
        """Whether no window is open or kept."""
        return not self.open

    def _pass(self, start: int) -> Iterator[Emission]:
        part = self.open[start]
        if part.end + self.windowing.allowed_us <= self._mark:
            del self.open[start]
        if not part.closed:
            part.closed = True
            yield from emissions(self._enter(part.state, start, part.end).on_close())

    def _windows(self, time: int) -> list[int]:
        raise NotImplementedError

    def _deadline(self, part: Part[Any]) -> int:
        """When something is to be done with a window."""
        allowed: int = self.windowing.allowed_us
        return part.end + allowed * part.closed

    def _next(self) -> tuple[int, int]:
        return min((self._deadline(part), start) for start, part in self.open.items())


class Aligned(Spans):
    """Tumbling and sliding windows, each with a state of its own."""

    form = "windows, each with a state of its own"

    def _windows(self, time: int) -> list[int]:
        windowing: Sliding = self.windowing
        spans = [(start, windowing.end(start)) for start in windowing.starts(time)]
        oldest = self._fired - windowing.allowed_us
        kept = [(start, end) for start, end in reversed(spans) if end > oldest]
        if not kept:
            raise self._late(time)
        self._context.late_in_part += len(kept) < len(spans)
        for start, end in kept:
            if start not in self.open:
                self.open[start] = Part(self.body(), end, closed=end <= self._fired)
        return [start for start, _ in kept]


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


class Panes(Windowed):
    """Sliding windows that share their parts: an event goes into one of them, and a window is what they merge to."""

    form = "parts that windows share"

    if TYPE_CHECKING:  # a field of each prototype, typed by its body
        open: dict[int, Part[Any]]
    next: int = -FOREVER
    """The start of the first window that has not closed."""

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Hand it to its pane.

        Raises
        ------
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
            part = self.open[start] = Part(self.body(), end)
            self.rearm()
        yield from emissions(self._enter(part.state, start, end).on_event(event))

    def is_due(self) -> bool:
        """Whether the watermark has passed the end of a window."""
        return bool(self.open) and self.windowing.end(self._first()) <= self._mark

    def step(self) -> Iterator[Emission]:
        """Close the first window, and forget its first pane, of which it was the last."""
        start = self._first()
        whole = self._merged(start, self.windowing.end(start))
        self.skip()
        yield from emissions(whole.on_close())

    def skip(self) -> None:
        """Go on to the next window."""
        self.next = self._first() + self.windowing.every_us
        self.open = {pane: part for pane, part in self.open.items() if pane >= self.next}

    def _merged(self, start: int, end: int) -> Any:
        whole = self._enter(self.body(), start, end)
        for pane in sorted(self.open):
            if pane < end:
                whole.merge(_copy(self.open[pane].state))  # which it may keep; the pane belongs to other windows, too
        return self._enter(whole, start, end)

    def _first(self) -> int:
        """The start of the first window that has not closed and holds a pane."""
        windowing: Sliding = self.windowing
        after = (
            next(windowing.starts(self._fired - windowing.size_us)) + windowing.every_us
            if self._fired > -FOREVER
            else -FOREVER
        )
        return max(self.next, after, min(self.open) - windowing.size_us + windowing.every_us)

    def is_empty(self) -> bool:
        """Whether no pane is kept."""
        return not self.open

    def rearm(self) -> None:
        """At the end of the first window."""
        self._wake(self.windowing.end(self._first()) if self.open else None)


class Events(msgspec.Struct, Generic[Body], array_like=True):
    """Some events of a window by count: when the first and the last were, and how many."""

    state: Body
    first: int
    last: int
    seen: int = 0


class Counted(Windowed):
    """Windows by count, of one part or several that windows share."""

    form = "windows by count"

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
                whole.merge(_copy(part.state))
        state = self._enter(whole, first, last)
        return emissions(state.on_close() if overrides(self.body, "on_close") else state.on_batch())


class CountedToTheEnd(Counted):
    """The same where there is an event time: what is left when the input has ended is closed then."""

    on_timer = Stepwise.on_timer

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Hand it to the last part, and ask to be woken at the end of the input."""
        yield from super().on_event(event)
        self.rearm()

    def without_result(self, event: Any) -> Iterator[Emission]:
        """The same without the result."""
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


@lru_cache
def _is_flat(event_type: Any) -> bool:
    """Whether its events hold nothing that could be changed."""
    return all(map(kind_of, field_types(event_type).values()))


def _copy(state: Any) -> Any:
    return msgpack_decoder(type(state)).decode(msgpack_encoder().encode(state))
