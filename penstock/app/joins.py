"""Joins of two streams by key and time, and events let through once: prototypes that hold events for as long as they may match.

What is held is dropped once the watermark says that nothing can match it any more. Results do not depend on the order in
which events come, as long as none is late.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from penstock.app.duration import Duration, seconds
from penstock.app.element import Emitted
from penstock.app.event import Event
from penstock.app.stepwise import Stepwise, emissions
from penstock.app.stream import Emission, Stream
from penstock.app.window.windowing import SECOND, microseconds, of_watermark, span
from penstock.errors import TopologyError

E = TypeVar("E")
How = Literal["inner", "left", "full"]
Pairing = Callable[[Any, Any], Emitted]


class Held(msgspec.Struct, Generic[E], array_like=True):
    """An event that waits for others, its time in microseconds, and whether it has met one."""

    event: E
    time: int
    met: bool = False


held_time = attrgetter("time")


class Joining(Stepwise):
    """What all joins have in common."""

    left_type: ClassVar[type[Event]]
    left_time: ClassVar[Callable[[Any], Any]]
    right_time: ClassVar[Callable[[Any], Any]]
    pair: ClassVar[Pairing]
    how: ClassVar[How]

    if TYPE_CHECKING:  # fields of each prototype, typed by its streams
        left: list[Held[Any]]
        right: list[Held[Any]]

    def _is_left(self, event: Any) -> bool:
        return type(event) is self.left_type

    def _pair(self, left: Any, right: Any) -> Iterable[Emission]:
        return emissions(type(self).pair(left, right))

    @property
    def _mark(self) -> int:
        return of_watermark(self._context.watermark)

    def _wake_after(self, times: list[int]) -> None:
        """Ask for the timer once the watermark is past the earliest of some times."""
        self._context.due = (min(times) + 1) / SECOND if times else None


class IntervalJoin(Joining):
    """Pairs events of which the right one comes within an interval around the left one; both ends belong to it."""

    lower: ClassVar[int]
    upper: ClassVar[int]

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Pair it with those that are held, and hold it."""
        is_left = self._is_left(event)
        if is_left:
            time = microseconds(type(self).left_time(event))
            own, others, first, last = self.left, self.right, time + self.lower, time + self.upper
        else:
            time = microseconds(type(self).right_time(event))
            own, others, first, last = self.right, self.left, time - self.upper, time - self.lower
        held = Held(event, time)
        for other in others[bisect_left(others, first, key=held_time) : bisect_right(others, last, key=held_time)]:
            held.met = other.met = True
            yield from self._pair(event, other.event) if is_left else self._pair(other.event, event)
        insort(own, held, key=held_time)
        self.rearm()

    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not (self.left or self.right)

    def is_due(self) -> bool:
        """Whether something is held that nothing can match any more."""
        ends = self._ends()
        return bool(ends) and min(ends)[0] < self._mark

    def step(self) -> Iterable[Emission]:
        """Drop it, and say so if it has met nothing."""
        is_left = self._earliest_is_left()
        held = (self.left if is_left else self.right).pop(0)
        if held.met or self.how == "inner" or (self.how == "left" and not is_left):
            return ()
        return self._pair(held.event, None) if is_left else self._pair(None, held.event)

    def skip(self) -> Any:
        """Drop it."""
        return (self.left if self._earliest_is_left() else self.right).pop(0).event

    def rearm(self) -> None:
        """Once the watermark is past the time at which the next one can be dropped."""
        self._wake_after([end for end, _ in self._ends()])

    def _ends(self) -> list[tuple[int, bool]]:
        """Until when the earliest of each side may be matched, and whether it is a left one."""
        ends = [(held.time + self.upper, True) for held in self.left[:1]]
        return ends + [(held.time - self.lower, False) for held in self.right[:1]]

    def _earliest_is_left(self) -> bool:
        return min(self._ends())[1]


class LatestJoin(Joining):
    """Pairs each left event with the latest right one at or before its time, once none of these can come any more."""

    within: ClassVar[int | None]

    def on_event(self, event: Any) -> None:
        """Hold it."""
        if self._is_left(event):
            insort(self.left, Held(event, microseconds(type(self).left_time(event))), key=held_time)
        else:
            insort(self.right, Held(event, microseconds(type(self).right_time(event))), key=held_time)
        self._arm()  # and nothing is dropped: what windows say in this micro-batch may still come, and be older

    def is_empty(self) -> bool:
        """Whether there is neither a version nor an event that waits for one."""
        return not (self.left or self.right)

    def is_due(self) -> bool:
        """Whether the watermark has passed a left event."""
        return bool(self.left) and self.left[0].time < self._mark

    def step(self) -> Iterable[Emission]:
        """Pair it with the version in force at its time."""
        held = self.left.pop(0)
        place = bisect_right(self.right, held.time, key=held_time) - 1
        version = self.right[place] if place >= 0 else None
        if version is None or (self.within is not None and held.time - version.time > self.within):
            return () if self.how == "inner" else self._pair(held.event, None)
        return self._pair(held.event, version.event)

    def skip(self) -> Any:
        """Leave it out."""
        return self.left.pop(0).event

    def rearm(self) -> None:
        """Drop versions that are out of force."""
        in_force = (
            bisect_right(self.right, min([self._mark, *(held.time for held in self.left[:1])]), key=held_time) - 1
        )
        del self.right[: max(0, in_force)]
        self._arm()

    def _arm(self) -> None:
        """Once the watermark is past the next left event, or past a version that puts the one before out of force."""
        self._wake_after([held.time for held in (*self.left[:1], *self.right[1:2])])


class Once(Stepwise):
    """Lets an event through unless another one of its key, less than a span away, has been."""

    time_of: ClassVar[Callable[[Any], Any]]
    within: ClassVar[int]
    into: ClassVar[Stream[Any]]

    passed: list[int] = []
    """Times of those let through, in order."""

    def on_event(self, event: Any) -> Emission | None:
        """Pass it on, or not."""
        time = microseconds(type(self).time_of(event))
        place = bisect_left(self.passed, time)
        if any(abs(time - near) < self.within for near in self.passed[max(0, place - 1) : place + 1]):
            return None
        self.passed.insert(place, time)
        self.rearm()
        return type(self).into.emit(event)

    def is_due(self) -> bool:
        """Whether there is a time that no event can be close to any more."""
        return bool(self.passed) and self.passed[0] + self.within <= of_watermark(self._context.watermark)

    def step(self) -> Iterable[Emission]:
        """Forget it."""
        self.skip()
        return ()

    def skip(self) -> None:
        """Forget it."""
        del self.passed[0]

    def rearm(self) -> None:
        """For the first of them."""
        self._context.due = (self.passed[0] + self.within) / SECOND if self.passed else None

    def is_empty(self) -> bool:
        """Whether none is remembered."""
        return not self.passed


def interval_join(
    name: str, pair: Pairing, left: Stream[Any], right: Stream[Any], times: tuple[str, str], within: tuple[Duration, Duration], how: How
) -> type[IntervalJoin]:  # fmt: skip
    """The prototype of an interval join.

    Raises
    ------
    TopologyError: the interval is none, or the streams carry one type of event.
    """
    lower, upper = interval_of(name, within)
    check_how(name, how, ("inner", "left", "full"))
    return _joining(IntervalJoin, name, pair, left, right, times, how, lower=lower, upper=upper)


def latest_join(
    name: str, pair: Pairing, left: Stream[Any], right: Stream[Any], times: tuple[str, str], within: Duration | None, how: How
) -> type[LatestJoin]:  # fmt: skip
    """The prototype of a join with the latest version.

    Raises
    ------
    TopologyError: the streams carry one type of event, or it is to be a full join.
    """
    check_how(name, how, ("inner", "left"))
    bound = None if within is None else round(seconds(within) * SECOND)
    return _joining(LatestJoin, name, pair, left, right, times, how, within=bound)


def once(name: str, into: Stream[Any], time: str, within: Duration) -> type[Once]:
    """The prototype that lets events through once.

    Raises
    ------
    TopologyError: the time is zero.
    """
    bound = round(seconds(within) * SECOND)
    if not bound:
        raise TopologyError(f"Element {name}: within={within!r} would let all events through; give a longer time.")
    return type(name, (Once,), {"__module__": __name__, "time_of": attrgetter(time), "within": bound, "into": into})


def interval_of(name: str, within: tuple[Duration, Duration]) -> tuple[int, int]:
    """Its ends, in microseconds.

    Raises
    ------
    TopologyError: the first is after the second.
    """
    lower, upper = map(_signed, within)
    if lower > upper:
        raise TopologyError(
            f"Join {name}: within=({within[0]!r}, {within[1]!r}) is no interval; give the lesser end first."
        )
    return lower, upper


def interval_text(within: tuple[Duration, Duration]) -> str:
    """As a drawing shows it."""
    return " to ".join(("-" if end < 0 else "") + span(abs(end)) for end in map(_signed, within))


def _joining(base: type[Any], name: str, pair: Pairing, left: Stream[Any], right: Stream[Any], times: tuple[str, str], how: How,
             **more: Any) -> type[Any]:  # fmt: skip
    if left.event_type is right.event_type:
        raise TopologyError(
            f"Join {name}: {left.name} and {right.name} both carry {left.event_type.__name__}, by which they cannot be told apart: "
            "give one of them an event type of its own."
        )
    if not callable(pair):
        raise TopologyError(f"Join {name}: decorate a function of two events, which yields what they make.")
    made: type[Any] = msgspec.defstruct(
        name,
        [
            ("left", list[Held[left.event_type]], msgspec.field(default_factory=list)),  # type: ignore[name-defined]
            ("right", list[Held[right.event_type]], msgspec.field(default_factory=list)),  # type: ignore[name-defined]
        ],
        bases=(base,), dict=True,
        namespace={
            "left_type": left.event_type, "left_time": attrgetter(times[0]), "right_time": attrgetter(times[1]),
            "pair": staticmethod(pair), "how": how, **more,
        },
    )  # fmt: skip
    return made


def check_how(name: str, how: str, allowed: tuple[str, ...]) -> None:
    """Refuse a way to join that there is not.

    Raises
    ------
    TopologyError: names those that there are.
    """
    if how not in allowed:
        raise TopologyError(f"Join {name}: how={how!r}; choose {', '.join(allowed)}.")


def _signed(duration: Duration) -> int:
    if isinstance(duration, str) and duration.strip().startswith("-"):
        return -round(seconds(duration.strip()[1:]) * SECOND)
    if isinstance(duration, int | float) and duration < 0:
        return -round(seconds(-duration) * SECOND)
    return round(seconds(duration) * SECOND)
