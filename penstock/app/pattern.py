"""Detection of sequences of a key's events within a time span: A, then B, without C in between."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from penstock.app.duration import Duration, seconds
from penstock.app.element import Emitted
from penstock.app.functions import check_function, check_plain_function
from penstock.app.spelling import check_name
from penstock.app.stepwise import Stepwise, emissions
from penstock.app.stream import Emission
from penstock.app.window.windowing import of_watermark
from penstock.errors import TopologyError
from penstock.kinds.event import Event
from penstock.kinds.moments import SECOND, microseconds

Condition = Callable[[Any], Any]


class Matching(Stepwise):
    """Tracks the sequences that have begun; it gets its events in the order of their times.

    An event that fits the next step of a sequence advances it; other events are ignored. Each event that fits the first step
    begins a new sequence.
    """

    form = "sequences that have begun"

    then: ClassVar[Sequence[Condition]]
    without: ClassVar[Condition | None]
    within: ClassVar[int]
    time_of: ClassVar[Callable[[Any], Any]]
    found: ClassVar[Callable[..., Emitted]]

    if TYPE_CHECKING:  # a field of each prototype, typed by its stream
        begun: list[list[Any]]

    @classmethod
    def meaning(cls) -> dict[str, Any]:
        """Add the names of the steps' functions; see `Stepwise.meaning`."""
        return {**super().meaning(), "steps": [getattr(step, "__name__", "<lambda>") for step in cls.then]}

    def on_event(self, event: Any) -> Iterator[Emission]:
        """Drop the sequences that are too old or cancelled, advance the others, and begin a new one if the first step fits."""
        oldest = microseconds(type(self).time_of(event)) - self.within
        alive = [sequence for sequence in self.begun if microseconds(type(self).time_of(sequence[0])) >= oldest]
        without = type(self).without
        if without is not None and without(event):
            alive = []
        self.begun = []
        for sequence in alive:
            if self.then[len(sequence)](event):
                sequence = [*sequence, event]
            if len(sequence) == len(self.then):
                yield from emissions(type(self).found(*sequence))
            else:
                self.begun.append(sequence)
        if self.then[0](event):
            self.begun.append([event])
        self.rearm()

    def is_due(self) -> bool:
        """Whether the watermark shows that the oldest sequence cannot be completed any more."""
        return bool(self.begun) and self._end() < of_watermark(self._context.watermark)

    def skip(self) -> None:
        """Drop the oldest sequence."""
        del self.begun[0]

    def rearm(self) -> None:
        """Set the timer for when the oldest sequence cannot be completed any more."""
        self._context.due = (self._end() + 1) / SECOND if self.begun else None

    def is_empty(self) -> bool:
        """Whether no sequence has begun."""
        return not self.begun

    def _end(self) -> int:
        return microseconds(type(self).time_of(self.begun[0][0])) + self.within


def matching(
    name: str,
    event: type[Event],
    time: str,
    then: Sequence[Condition],
    without: Condition | None,
    within: Duration,
    found: Callable[..., Emitted],
) -> type[Matching]:
    """Return the prototype of a pattern.

    Raises:
        TopologyError: there are fewer than two steps, a step is not a plain function, or ``within`` is zero.
    """
    span = round(seconds(within) * SECOND)
    if (
        not isinstance(then, list | tuple)
        or len(then) < 2
        or not all(map(callable, then))
        or not (without is None or callable(without))
    ):
        raise TopologyError(
            f"Pattern {name}: give two or more functions of an event as steps, as then=[is_small, is_large], and without= as "
            "one."
        )
    for number, condition in enumerate((*then, *(() if without is None else (without,))), 1):
        label = f"step {number}" if number <= len(then) else "without="
        check_plain_function(
            condition, 1, f"Pattern {name}: {label}", "give a function of an event that returns whether it fits"
        )
    check_function(found, len(then), f"Pattern {name}", f"decorate a function of the {len(then)} events found")
    if not span:
        raise TopologyError(f"Pattern {name}: within={within!r} is no time; give a longer one.")
    check_name("element", name)
    made: Any = msgspec.defstruct(
        name,
        [("begun", list[list[event]], msgspec.field(default_factory=list))],  # type: ignore[valid-type]
        bases=(Matching,),
        dict=True,
        namespace={
            "then": tuple(then),
            "without": None if without is None else staticmethod(without),
            "within": span,
            "time_of": attrgetter(time),
            "found": staticmethod(found),
        },
    )
    prototype: type[Matching] = made
    return prototype
