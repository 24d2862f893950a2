"""Joins of streams by key and time, and the removal of duplicates: prototypes that hold events while these may still match.

A held event is dropped once the watermark shows that nothing can match it any more. Results of joins do not depend on the
order of arrival, as long as no event is late; of duplicates the first that comes is kept.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from itertools import count, product
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import msgspec

from penstock.app.duration import Duration, seconds
from penstock.app.element import Emitted
from penstock.app.functions import check_function
from penstock.app.spelling import check_name
from penstock.app.stepwise import Stepwise, emissions, field_of
from penstock.app.stream import Emission, Stream
from penstock.app.window.windowing import of_watermark, span
from penstock.errors import StateError, TopologyError
from penstock.kinds.coding import msgpack_decoder
from penstock.kinds.event import Event
from penstock.kinds.fields import is_immutable
from penstock.kinds.moments import SECOND, microseconds

E = TypeVar("E")
How = Literal["inner", "left", "full"]
Pairing = Callable[..., Emitted]
Interval = tuple[Duration, Duration]


class Held(msgspec.Struct, Generic[E], array_like=True, gc=False):
    """An event that is held for matches, its time in microseconds, and whether it has had a match.

    A join leaves an event that no function can change as it was stored until it is needed: most of what a key holds matches
    nothing.
    """

    event: E
    time: int
    met: bool = False


held_time = attrgetter("time")


class Joining(Stepwise):
    """Base of the prototypes of joins."""

    left_type: ClassVar[type[Event]]
    left_time: ClassVar[Callable[[Any], Any]]
    lists: ClassVar[tuple[str, ...]]
    """The names of the fields that hold events: the left ones, then those of each other stream."""
    all_lists: ClassVar[Callable[[Any], tuple[list[Held[Any]], ...]]]
    """Returns the lists of these names."""
    decoders: ClassVar[tuple[Callable[[msgspec.Raw], Any], ...]]
    """For each list, how to decode an event that is as it was stored."""
    stored: ClassVar[type[msgspec.Struct]]
    """The state with typed events, from which its shape is told."""
    immutable: ClassVar[bool]
    """Whether the held events have scalars only, which no function can change."""
    pair: ClassVar[Pairing]
    how: ClassVar[How]
    max_held: ClassVar[int | None]

    if TYPE_CHECKING:  # a field of each prototype, typed by its stream
        left: list[Held[Any]]

    @classmethod
    def meaning(cls) -> dict[str, Any]:
        """Add the fields that hold the event times; see `Stepwise.meaning`."""
        return {**super().meaning(), "fields of the times": [field_of(reader) for reader in cls.readers()]}

    @classmethod
    def _stored_as(cls) -> type[Any]:
        return cls.stored

    @classmethod
    def readers(cls) -> list[Any]:
        """Return the functions that read an event's time, one for each input."""
        raise NotImplementedError

    def _is_left(self, event: Any) -> bool:
        return type(event) is self.left_type

    def _pair(self, *events: Any) -> Iterable[Emission]:
        return emissions(type(self).pair(*events))

    def _lists(self) -> tuple[list[Held[Any]], ...]:
        return type(self).all_lists(self)

    def _event(self, held: Held[Any], place: int) -> Any:
        """Return a held event of the list with an index, decoded."""
        event = held.event
        if type(event) is msgspec.Raw:
            held.event = event = self.decoders[place](event)
        return event

    def is_empty(self) -> bool:
        """Whether no event is held."""
        return not any(self._lists())

    def undo(self) -> Callable[[], None] | None:
        """Return a function that puts back the events that steps drop; None where a function could change these events."""
        if not self.immutable:
            return None
        before = [list(held) for held in self._lists()]

        def back() -> None:
            for name, held in zip(self.lists, before, strict=True):
                setattr(self, name, held)

        return back

    @property
    def _mark(self) -> int:
        return of_watermark(self._context.watermark)

    def _wake_after(self, times: list[int]) -> None:
        """Set the timer for when the watermark has passed the earliest of the given times; no timer without times."""
        self._context.due = (min(times) + 1) / SECOND if times else None

    def _check_room(self) -> None:
        """Refuse another event if ``max_held`` events are held already.

        Raises:
            StateError: the limit is reached; the event becomes a dead letter.
        """
        if self.max_held is not None and (held := sum(map(len, self._lists()))) >= self.max_held:
            raise StateError(
                f"The join holds {held} events of the key {self.key!r}, which is as many as max_held= allows: raise it, or "
                "make within= shorter."
            )


class Side(NamedTuple):
    """A right stream of an interval join: the index of its list, its events' type and time reader, and the interval (us)."""

    place: int
    kind: type[Event]
    time: Callable[[Any], Any]
    lower: int
    upper: int


class IntervalJoin(Joining):
    """Combines each left event with one event of each other side that lies within the side's interval around it, both ends
    included. A combination is emitted when the last of its events arrives.
    """

    form = "events that wait for others near them"
    by_input = True

    sides: ClassVar[tuple[Side, ...]]
    side_of: ClassVar[Mapping[type[Event], Side]]
    """The sides by the types of their events."""
    waits: ClassVar[tuple[int, ...]]
    """For each list, how long after its time an event may be matched; microseconds."""

    @classmethod
    def readers(cls) -> list[Any]:
        return [cls.left_time, *(side.time for side in cls.sides)]

    def on_event(self, event: Any) -> list[Emission]:
        """Combine the event with the matching held events, and hold it."""
        self._check_room()
        # A right event completes combinations only with left events in its interval, each with the other sides' held events.
        own = self.side_of.get(type(event))
        made: list[Emission] = []
        if own is None:
            held = Held(event, microseconds(type(self).left_time(event)))
            into = self.left
            self._combine(made, held, [self._near(side, held) for side in self.sides])
        else:
            held = Held(event, microseconds(own.time(event)))
            into = self._lists()[own.place]
            for left in _between(self.left, held.time - own.upper, held.time - own.lower):
                self._combine(made, left, [[held] if side is own else self._near(side, left) for side in self.sides])
        insort(into, held, key=held_time)
        self.rearm()  # also where another event is first: the timer may have been set under a longer within=
        return made

    def _combine(self, made: list[Emission], left: Held[Any], near: list[list[Held[Any]]]) -> None:
        """Pair a left event with each combination of others, and add what is made of it."""
        for others in product(*near):
            left.met = True
            for held in others:
                held.met = True
            made += self._pair(self._event(left, 0), *map(self._event, others, count(1)))

    def _near(self, side: Side, left: Held[Any]) -> list[Held[Any]]:
        """Return the held events of a side that match a left event."""
        return _between(self._lists()[side.place], left.time + side.lower, left.time + side.upper)

    def is_due(self) -> bool:
        """Whether an event is held that nothing can match any more."""
        ends = self._ends()
        return bool(ends) and min(ends)[0] < self._mark

    def step(self) -> Iterable[Emission]:
        """Drop the first event that nothing can match, and emit its result if it had no match; in an inner join, drop all."""
        if self.how == "inner":
            for events, wait in zip(self._lists(), self.waits, strict=True):
                del events[: bisect_left(events, self._mark - wait, key=held_time)]
            return ()
        place = min(self._ends())[1]
        held = self._lists()[place].pop(0)
        if held.met or (self.how == "left" and place):
            return ()
        event = self._event(held, place)
        if place:
            return self._pair(None, event)
        near = [[self._event(other, side.place) for other in self._near(side, held)] or [None] for side in self.sides]
        return [emission for others in product(*near) for emission in self._pair(event, *others)]

    def skip(self) -> Any:
        """Drop the first event that nothing can match, without a result, and return it."""
        place = min(self._ends())[1]
        return self._event(self._lists()[place].pop(0), place)

    def rearm(self) -> None:
        """Set the timer for when the watermark has passed the time up to which the next held event may match."""
        self._wake_after([held[0].time + wait for held, wait in zip(self._lists(), self.waits, strict=True) if held])

    def _ends(self) -> list[tuple[int, int]]:
        """Return, for the earliest event of each list, until when it may match (microseconds) and the list's index; the left
        list has index 0, so that at equal times a left event is dropped before its candidates.
        """
        waits = zip(self._lists(), self.waits, strict=True)
        return [(held[0].time + wait, place) for place, (held, wait) in enumerate(waits) if held]


def _between(held: list[Held[Any]], first: int, last: int) -> list[Held[Any]]:
    """Return the events of a list sorted by time that lie between two times, both included."""
    return held[bisect_left(held, first, key=held_time) : bisect_right(held, last, key=held_time)]


class LatestJoin(Joining):
    """Pairs each left event with the latest right event (version) at or before its time, once no such event can still come."""

    form = "events that wait for the version of their time"
    by_input = True

    right_time: ClassVar[Callable[[Any], Any]]
    within: ClassVar[int | None]

    if TYPE_CHECKING:
        right: list[Held[Any]]

    @classmethod
    def readers(cls) -> list[Any]:
        return [cls.left_time, cls.right_time]

    def on_event(self, event: Any) -> None:
        """Hold the event."""
        self._check_room()
        if self._is_left(event):
            insort(self.left, Held(event, microseconds(type(self).left_time(event))), key=held_time)
        else:
            insort(self.right, Held(event, microseconds(type(self).right_time(event))), key=held_time)
        self._arm()  # drops no version: results of windows in this micro-batch may still arrive, and be older

    def is_due(self) -> bool:
        """Whether the watermark has passed a held left event."""
        return bool(self.left) and self.left[0].time < self._mark

    def step(self) -> Iterable[Emission]:
        """Pair the earliest left event with the version in force at its time."""
        held = self.left.pop(0)
        place = bisect_right(self.right, held.time, key=held_time) - 1
        version = self.right[place] if place >= 0 else None
        if version is None or (self.within is not None and held.time - version.time > self.within):
            return () if self.how == "inner" else self._pair(self._event(held, 0), None)
        return self._pair(self._event(held, 0), self._event(version, 1))

    def skip(self) -> Any:
        """Drop the earliest left event without a result, and return it."""
        return self._event(self.left.pop(0), 0)

    def rearm(self) -> None:
        """Drop versions that no left event can need any more, and set the timer."""
        in_force = bisect_right(self.right, min([self._mark, *(held.time for held in self.left[:1])]), key=held_time) - 1
        del self.right[: max(0, in_force)]
        self._arm()

    def _arm(self) -> None:
        """Set the timer for the next left event, or for the next version that replaces the one in force."""
        self._wake_after([held.time for held in (*self.left[:1], *self.right[1:2])])


class Once(Stepwise):
    """Removes duplicates: passes an event on unless another one of its key passed less than ``within`` (us) away in time."""

    form = "times of events that were let through"

    time_of: ClassVar[Callable[[Any], Any]]
    within: ClassVar[int]
    into: ClassVar[Stream[Any]]

    passed: list[int] = []
    """Times of the events that passed, sorted; microseconds."""

    @classmethod
    def meaning(cls) -> dict[str, Any]:
        """Add the field that holds the event time; see `Stepwise.meaning`."""
        return {**super().meaning(), "field of the time": field_of(cls.time_of)}

    @classmethod
    def readers(cls) -> list[Any]:
        """Return the function that reads an event's time."""
        return [cls.time_of]

    def on_event(self, event: Any) -> Emission | None:
        """Return the event as an emission, or None if it is a duplicate."""
        time = microseconds(type(self).time_of(event))
        place = bisect_left(self.passed, time)
        if any(abs(time - near) < self.within for near in self.passed[max(0, place - 1) : place + 1]):
            return None
        self.passed.insert(place, time)
        if place == 0:
            self.rearm()
        return type(self).into.emit(event)

    def is_due(self) -> bool:
        """Whether a time is remembered that no further event can be close to."""
        return bool(self.passed) and self.passed[0] + self.within <= of_watermark(self._context.watermark)

    def skip(self) -> None:
        """Forget the earliest time."""
        del self.passed[0]

    def rearm(self) -> None:
        """Set the timer for when the earliest time can be forgotten."""
        self._context.due = (self.passed[0] + self.within) / SECOND if self.passed else None

    def is_empty(self) -> bool:
        """Whether no time is remembered."""
        return not self.passed

    def undo(self) -> Callable[[], None]:
        """Return a function that puts back the times that steps forget."""
        before = list(self.passed)

        def back() -> None:
            self.passed = before

        return back


def interval_join(
    name: str,
    pair: Pairing,
    streams: Sequence[Stream[Any]],
    times: Sequence[str],
    intervals: Sequence[Interval],
    how: How,
    max_held: int | None,
) -> type[IntervalJoin]:
    """Return the prototype of an interval join.

    Args:
        streams, times: the left stream and the others, and the fields that hold their times.
        intervals: one for each of the others.

    Raises:
        TopologyError: an interval is not valid, two streams carry the same event type, or a full join has more than two
            streams.
    """
    check_how(name, how, ("inner", "left", "full") if len(streams) == 2 else ("inner", "left"))
    sides = tuple(
        Side(place, stream.event_type, attrgetter(time), *interval_of(name, within))
        for place, (stream, time, within) in enumerate(zip(streams[1:], times[1:], intervals, strict=True), 1)
    )
    # Events of the others are held longer where there are several, for left events that wait for another one.
    longest = max(0, *(side.upper for side in sides)) if len(sides) > 1 else 0
    waits = (max(side.upper for side in sides), *(longest - side.lower for side in sides))
    held = ["right"] if len(sides) == 1 else [f"right{number}" for number in range(len(sides))]
    own = {"left_time": attrgetter(times[0]), "sides": sides, "side_of": {side.kind: side for side in sides}, "waits": waits}
    return _joining(IntervalJoin, name, pair, streams, held, how, max_held=max_held, **own)


def latest_join(
    name: str,
    pair: Pairing,
    streams: Sequence[Stream[Any]],
    times: Sequence[str],
    within: Duration | None,
    how: How,
    max_held: int | None,
) -> type[LatestJoin]:
    """Return the prototype of a join with the latest version.

    Raises:
        TopologyError: the streams carry the same event type, or ``how`` is "full".
    """
    check_how(name, how, ("inner", "left"))
    bound = None if within is None else round(seconds(within) * SECOND)
    left_time, right_time = map(attrgetter, times)
    return _joining(
        LatestJoin,
        name,
        pair,
        streams,
        ["right"],
        how,
        left_time=left_time,
        right_time=right_time,
        within=bound,
        max_held=max_held,
    )


def once(name: str, into: Stream[Any], time: str, within: Duration) -> type[Once]:
    """Return the prototype that removes duplicates.

    Raises:
        TopologyError: ``within`` is zero.
    """
    bound = round(seconds(within) * SECOND)
    if not bound:
        raise TopologyError(f"Element {name}: within={within!r} would let all events through; give a longer time.")
    check_name("element", name)
    return type(name, (Once,), {"__module__": __name__, "time_of": attrgetter(time), "within": bound, "into": into})


def interval_of(name: str, within: Interval) -> tuple[int, int]:
    """Return the two ends of a join's interval, in microseconds.

    Raises:
        TopologyError: the first end is after the second.
    """
    lower, upper = map(_signed, within)
    if lower > upper:
        raise TopologyError(f"Join {name}: within=({within[0]!r}, {within[1]!r}) is no interval; give the lesser end first.")
    return lower, upper


def interval_text(within: Interval) -> str:
    """Return an interval as drawings show it, such as ``-1 min to 5 min``."""
    return " to ".join(("-" if end < 0 else "") + span(abs(end)) for end in map(_signed, within))


def _joining(
    base: type[Any],
    name: str,
    pair: Pairing,
    streams: Sequence[Stream[Any]],
    held: Sequence[str],
    how: How,
    *,
    max_held: int | None,
    **more: Any,
) -> type[Any]:
    kinds = [stream.event_type for stream in streams]
    for place, stream in enumerate(streams):
        if stream.event_type in kinds[:place]:
            first = streams[kinds.index(stream.event_type)]
            raise TopologyError(
                f"Join {name}: {first.name} and {stream.name} both carry {stream.event_type.__name__}, by which they cannot "
                "be told apart: give one of them an event type of its own."
            )
    check_function(
        pair, len(streams), f"Join {name}", "decorate a function of an event of each stream, which yields what they make"
    )
    if max_held is not None and (type(max_held) is not int or max_held < 1):
        raise TopologyError(f"Join {name}: max_held={max_held!r}; give a whole number above zero.")
    check_name("element", name)
    lists = ("left", *held)
    immutable = all(map(is_immutable, kinds))

    def fields_of(kinds: Iterable[type[Any]]) -> list[Any]:
        return [
            (field, list[Held[kind]], msgspec.field(default_factory=list))  # type: ignore[valid-type]
            for field, kind in zip(lists, kinds, strict=True)
        ]

    made: type[Any] = msgspec.defstruct(
        name,
        fields_of([msgspec.Raw] * len(kinds) if immutable else kinds),
        bases=(base,),
        dict=True,
        namespace={
            "left_type": kinds[0],
            "lists": lists,
            "all_lists": staticmethod(attrgetter(*lists)),
            "decoders": tuple(msgpack_decoder(kind).decode for kind in kinds),
            "stored": msgspec.defstruct(name, fields_of(kinds)),
            "immutable": immutable,
            "pair": staticmethod(pair),
            "how": how,
            "max_held": max_held,
            **more,
        },
    )
    return made


def check_how(name: str, how: str, allowed: tuple[str, ...]) -> None:
    """Refuse a kind of join that is not allowed.

    Raises:
        TopologyError: names the allowed kinds.
    """
    if how not in allowed:
        raise TopologyError(f"Join {name}: how={how!r}; choose {', '.join(allowed)}.")


def _signed(duration: Duration) -> int:
    """Return a duration that may be negative, in microseconds."""
    if isinstance(duration, str) and duration.strip().startswith("-"):
        return -round(seconds(duration.strip()[1:]) * SECOND)
    if (isinstance(duration, int | float) and duration < 0) or (isinstance(duration, timedelta) and duration < timedelta(0)):
        return -round(seconds(-duration) * SECOND)
    return round(seconds(duration) * SECOND)
