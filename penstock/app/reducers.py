"""Reducers of the events of a window: counts, sums, extremes, lists. See `App.aggregate`.

Each reducer keeps a state for a window, and can merge the states of two parts of a window. Results do not depend on the order
of arrival, except for ties of `first`, `last` and `top` within a microsecond, the last digits of sums of floats, and a `fold`
whose step does not commute.
"""

# ruff: noqa: N801 - the classes are used like the built-in functions of their names

import builtins
import copy
import functools
import heapq
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any, Generic, Self, TypeVar, Union, get_args, get_origin

from penstock.app.arguments import checked
from penstock.app.functions import check_plain_function
from penstock.errors import TopologyError
from penstock.extras import needs
from penstock.kinds.event import Event, field_types
from penstock.kinds.fitting import has_order, is_hashable
from penstock.kinds.identity import in_order, spelled

State = TypeVar("State")

SKETCH = 12
"""The logarithm to base two of the number of a sketch's registers."""


class Both:
    """A condition on events that is the conjunction of two conditions."""

    def __init__(self, one: Callable[[Any], Any], other: Callable[[Any], Any]) -> None:
        self.one, self.other = one, other

    def __call__(self, event: Any) -> Any:
        return self.one(event) and self.other(event)


class Reducer(ABC, Generic[State]):
    """Base of reducers: the operations that `App.aggregate` needs.

    Args:
        field: the events' field that is read; None for the whole event.
    """

    def __init__(self, field: str | None = None) -> None:
        self.field = field
        self.wanted: Callable[[Any], Any] | None = None
        """The condition that an event must fulfil to be reduced; None for all events."""

    def where(self, wanted: Callable[[Any], Any]) -> Self:
        """Return a copy of the reducer that takes only events for which the function is true; calls combine by and."""
        check_plain_function(
            wanted, 1, f"{type(self).__name__}().where(...)", "give a function of an event, as lambda bid: bid.price > 10"
        )
        made = copy.copy(self)
        made.wanted = wanted if self.wanted is None else Both(self.wanted, wanted)
        return made

    @abstractmethod
    def kind(self, event: type[Event]) -> Any:
        """Return the type of the state, for events of a type."""

    @abstractmethod
    def start(self) -> State:
        """Return the state before any event."""

    @abstractmethod
    def add(self, state: State, value: Any, time: int) -> State:
        """Return the state after another event, given its field's value (or the event itself) and its time in microseconds."""

    @abstractmethod
    def merge(self, state: State, later: State) -> State:
        """Return the state of a window made of two parts."""

    def merge_all(self, states: Iterable[State]) -> State:
        """Return the state of a window made of many parts, given in their order."""
        return functools.reduce(self.merge, states, self.start())

    def result(self, state: State) -> Any:
        """Return the value of the result's field: the state itself unless overridden."""
        return state

    def gives(self, event: type[Event]) -> Any:
        """Return the type of the result, for events of a type; ``Any`` where it is not known."""
        return self.kind(event) if type(self).result is Reducer.result else Any

    def meaning(self) -> list[Any]:
        """Return what identifies the stored state: the reducer's kind and field. The condition of `where` may change freely."""
        return [type(self).__name__, self.field]

    def value_type(self, event: type[Event]) -> Any:
        """Return the type of the field that is read, or the event type itself.

        Raises:
            TopologyError: the event type has no such field.
        """
        if self.field is None:
            return event
        fields = field_types(event)
        if not isinstance(self.field, str) or self.field not in fields:
            raise TopologyError(f"{event.__name__} has no field {self.field!r}; it has {', '.join(fields)}.")
        return fields[self.field]


class count(Reducer[int]):
    """The number of events."""

    @checked()
    def __init__(self) -> None:
        super().__init__()

    def kind(self, event: type[Event]) -> Any:
        return int

    def start(self) -> int:
        return 0

    def add(self, state: int, value: Any, time: int) -> int:
        return state + 1

    def merge(self, state: int, later: int) -> int:
        return state + later

    def merge_all(self, states: Iterable[int]) -> int:
        return builtins.sum(states)


EXACT = Context(prec=200, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact, InvalidOperation, Overflow])
"""Adds decimals exactly, as Spark does, or raises ``decimal.Inexact``; Python itself rounds sums to 28 digits."""


class sum(Reducer[Any]):
    """The sum of a field."""

    @checked()
    def __init__(self, field: str) -> None:
        super().__init__(field)

    def kind(self, event: type[Event]) -> Any:
        kind = self.value_type(event)
        if kind not in (int, float, Decimal):
            raise TopologyError(f"sum({self.field!r}) is of {event.__name__}, where that is no int, float or Decimal.")
        return kind

    def start(self) -> Any:
        return 0

    def add(self, state: Any, value: Any, time: int) -> Any:
        return EXACT.add(state, value) if type(value) is Decimal else state + value

    def merge(self, state: Any, later: Any) -> Any:
        # One of the two may be the whole number 0 of a part without events that are wanted.
        return EXACT.add(state, later) if type(later) is Decimal or type(state) is Decimal else state + later

    def merge_all(self, states: Iterable[Any]) -> Any:
        return functools.reduce(self.merge, states, 0)  # from Python 3.12 on, `sum` adds floats with compensation


class mean(Reducer[tuple[float, int]]):
    """The mean of a field, as a float; None without events."""

    @checked()
    def __init__(self, field: str) -> None:
        super().__init__(field)

    def kind(self, event: type[Event]) -> Any:
        if self.value_type(event) not in (int, float):
            raise TopologyError(f"mean({self.field!r}) is of {event.__name__}, where that is no int or float.")
        return tuple[float, int]

    def start(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, state: tuple[float, int], value: Any, time: int) -> tuple[float, int]:
        return state[0] + value, state[1] + 1

    def merge(self, state: tuple[float, int], later: tuple[float, int]) -> tuple[float, int]:
        return state[0] + later[0], state[1] + later[1]

    def gives(self, event: type[Event]) -> Any:
        return float

    def result(self, state: tuple[float, int]) -> float | None:
        return state[0] / state[1] if state[1] else None


class _Chosen(Reducer[Any]):
    """Base of reducers that choose one of the values; None without values."""

    @checked()
    def __init__(self, field: str) -> None:
        super().__init__(field)

    def kind(self, event: type[Event]) -> Any:
        value = self.value_type(event)
        if not has_order(value):
            raise TopologyError(f"{type(self).__name__}({self.field!r}) is of {event.__name__}, where values have no order.")
        return _or_none(value)

    def start(self) -> Any:
        return None

    def add(self, state: Any, value: Any, time: int) -> Any:
        return value if state is None or (value is not None and self._better(in_order(value), in_order(state))) else state

    def merge(self, state: Any, later: Any) -> Any:
        return self.add(state, later, 0)

    def merge_all(self, states: Iterable[Any]) -> Any:
        known = [state for state in states if state is not None]
        if set(map(type, known)) <= {int}:
            return self._best(known) if known else None
        return super().merge_all(known)

    @abstractmethod
    def _better(self, one: Any, other: Any) -> bool:
        """Whether ``one`` is to be kept rather than ``other``."""

    @abstractmethod
    def _best(self, numbers: list[int]) -> int:
        """Return the number to be kept: a fast path for whole numbers."""


class min(_Chosen):
    """The least value of a field; None or NaN only if there is no other value."""

    def _better(self, one: Any, other: Any) -> bool:
        return bool(one < other)

    def _best(self, numbers: list[int]) -> int:
        return builtins.min(numbers)


class max(_Chosen):
    """The greatest value of a field, where NaN is the greatest, as in Spark; None only if there is no other value."""

    def _better(self, one: Any, other: Any) -> bool:
        return bool(one > other)

    def _best(self, numbers: list[int]) -> int:
        return builtins.max(numbers)


class _Timed(Reducer[Any]):
    """Base of reducers that return the value of one event, chosen by its time; None without events."""

    def kind(self, event: type[Event]) -> Any:
        return _or_none(tuple[int, self.value_type(event)])  # type: ignore[misc]

    def gives(self, event: type[Event]) -> Any:
        return self.value_type(event)

    def start(self) -> Any:
        return None

    def merge(self, state: Any, later: Any) -> Any:
        return state if later is None else self.add(state, later[1], later[0])

    def result(self, state: Any) -> Any:
        return None if state is None else state[1]


class first(_Timed):
    """The field of the earliest event, or the event itself."""

    def add(self, state: Any, value: Any, time: int) -> Any:
        return (time, value) if state is None or time < state[0] else state


class last(_Timed):
    """The field of the latest event, or the event itself."""

    def add(self, state: Any, value: Any, time: int) -> Any:
        return (time, value) if state is None or time >= state[0] else state


class top(Reducer[list[Any]]):
    """The n events with the greatest values of a field, the greatest first. NaN is the greatest; None is left out.

    Args:
        n: the number of events.
        by: the field.
    """

    @checked()
    def __init__(self, n: int, by: str) -> None:
        super().__init__()
        self.n, self.by = n, by
        if n < 1:
            raise TopologyError(f"top({n}, by={by!r}): give one at least.")

    def meaning(self) -> list[Any]:
        return [*super().meaning(), self.by, self.n]

    def kind(self, event: type[Event]) -> Any:
        if self.by not in field_types(event):
            raise TopologyError(f"{event.__name__} has no field {self.by!r}; it has {', '.join(field_types(event))}.")
        if not has_order(field_types(event)[self.by]):
            raise TopologyError(f"top(by={self.by!r}) is of {event.__name__}, where values have no order.")
        return list[event]  # type: ignore[valid-type]

    def start(self) -> list[Any]:
        return []

    def add(self, state: list[Any], value: Any, time: int) -> list[Any]:
        return self._best([*state, value])

    def merge(self, state: list[Any], later: list[Any]) -> list[Any]:
        return self._best([*state, *later])

    def _best(self, events: list[Any]) -> list[Any]:
        known = (event for event in events if getattr(event, self.by) is not None)
        return heapq.nlargest(self.n, known, key=lambda event: in_order(getattr(event, self.by)))


class distinct(Reducer[set[Any]]):
    """The exact number of distinct values of a field. The state holds all of them."""

    @checked()
    def __init__(self, field: str) -> None:
        super().__init__(field)

    def kind(self, event: type[Event]) -> Any:
        value = self.value_type(event)
        if not is_hashable(value):
            raise TopologyError(
                f"distinct({self.field!r}) is of {event.__name__}, where that is a {value}; name a field of single values."
            )
        return set[value]  # type: ignore[valid-type]

    def gives(self, event: type[Event]) -> Any:
        return int

    def start(self) -> set[Any]:
        return set()

    def add(self, state: set[Any], value: Any, time: int) -> set[Any]:
        if value == value or all(other == other for other in state):  # NaN equals nothing, and counts once
            state.add(value)
        return state

    def merge(self, state: set[Any], later: set[Any]) -> set[Any]:
        for value in later:
            state = self.add(state, value, 0)
        return state

    def result(self, state: set[Any]) -> int:
        return len(state)


class approx_distinct(Reducer[bytes]):
    """The approximate number of distinct values of a field, by a sketch of at most 4.2 kB.

    It is exact up to some hundred values; beyond, the standard error is 1.6% (HyperLogLog with 4,096 registers; Flajolet et
    al., AofA 2007, as implemented by DataSketches). It needs the extra ``sketches``.

    Raises:
        MissingExtraError: the extra is not installed.
    """

    @checked()
    def __init__(self, field: str) -> None:
        super().__init__(field)
        with needs():
            import datasketches
        self._new, self._read = datasketches.hll_sketch, datasketches.hll_sketch.deserialize
        self._union = datasketches.hll_union

    def kind(self, event: type[Event]) -> Any:
        members = _without_none(self.value_type(event))
        if len(members) != 1 or members[0] not in _COUNTABLE:
            names = ", ".join(kind.__name__ for kind in _COUNTABLE if kind is not type(None))
            raise TopologyError(f"approx_distinct({self.field!r}) is of {event.__name__}, where that is none of {names}.")
        return bytes

    def gives(self, event: type[Event]) -> Any:
        return int

    def start(self) -> bytes:
        return b""

    def add(self, state: bytes, value: Any, time: int) -> bytes:
        return self.add_all(state, [value])

    def add_all(self, state: bytes, values: Iterable[Any]) -> bytes:
        """Return the state after several values; faster than single calls, as the sketch is decoded and encoded once."""
        sketch = self._read(state) if state else self._new(SKETCH)
        for value in values:
            sketch.update(_COUNTABLE[type(value)](value))
        return bytes(sketch.serialize_compact())

    def merge(self, state: bytes, later: bytes) -> bytes:
        if not state or not later:
            return state or later
        union = self._union(SKETCH)
        union.update(self._read(state))
        union.update(self._read(later))
        return bytes(union.get_result().serialize_compact())

    def result(self, state: bytes) -> int:
        return round(self._read(state).get_estimate()) if state else 0


class collect(Reducer[list[Any]]):
    """A list of all values of a field, or of all events, in the order of event time."""

    def kind(self, event: type[Event]) -> Any:
        return list[tuple[int, self.value_type(event)]]  # type: ignore[misc]

    def gives(self, event: type[Event]) -> Any:
        return list[self.value_type(event)]  # type: ignore[misc]

    def start(self) -> list[Any]:
        return []

    def add(self, state: list[Any], value: Any, time: int) -> list[Any]:
        state.append((time, value))
        return state

    def merge(self, state: list[Any], later: list[Any]) -> list[Any]:
        return [*state, *later]

    def result(self, state: list[Any]) -> list[Any]:
        return [value for _, value in sorted(state, key=lambda entry: entry[0])]


class fold(Reducer[Any]):
    """A reducer by the user's own function.

    Args:
        initial: the state before any event; it is copied for each window.
        step: a function of state and event that returns a state.
        merge: a function that merges the states of two parts; needed where windows share parts, or sessions join.
        kind: the state's type, as ``list[Decimal]``; by default the type of ``initial``, which lacks the types of a list's
            items.
    """

    @checked()
    def __init__(
        self, initial: Any, step: Callable[[Any, Any], Any], merge: Callable[[Any, Any], Any] | None = None, kind: Any = None
    ) -> None:
        super().__init__()
        check_plain_function(step, 2, "fold(): its step", "give a function of the state and an event that returns the state")
        if merge is not None:
            check_plain_function(merge, 2, "fold(): its merge", "give a function of two states that returns one")
        self._initial, self._step, self._merge = initial, step, merge
        self._kind = type(initial) if kind is None else kind

    @property
    def merges(self) -> bool:
        """Whether it has a function to merge states."""
        return self._merge is not None

    def kind(self, event: type[Event]) -> Any:
        if self._kind in (list, dict, set, tuple, type(None)):
            raise TopologyError(
                f"fold({self._initial!r}, ...) keeps a {self._kind.__name__} and does not say of what: add kind=, as "
                "kind=list[float]."
            )
        return self._kind

    def start(self) -> Any:
        return copy.deepcopy(self._initial)

    def add(self, state: Any, value: Any, time: int) -> Any:
        return self._step(state, value)

    def merge(self, state: Any, later: Any) -> Any:
        assert self._merge is not None
        return self._merge(state, later)


def _or_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind):
        return kind
    return kind | None


def _without_none(kind: Any) -> list[Any]:
    members = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    return [member for member in members if member is not type(None)]


_COUNTABLE: dict[type, Callable[[Any], Any]] = {
    int: lambda number: number,
    str: lambda text: f"text {text}",  # the prefix is there because the sketch ignores empty texts
    float: lambda number: number + 0.0,  # makes -0.0 equal to 0.0
    bool: int,
    bytes: lambda content: f"bytes {content.hex()}",
    Decimal: lambda number: f"decimal {spelled(number)}",
    datetime: lambda moment: moment.timestamp(),
    type(None): lambda _: "none",
}
"""By type, the conversion of a value to what a sketch counts, such that equal values count once."""

BUILT_IN: frozenset[type[Reducer[Any]]] = frozenset(
    (count, sum, mean, min, max, first, last, top, distinct, approx_distinct, collect)
)
"""The exact classes of reducers that run no code of the application's, but to choose events; Spark has functions for them."""
