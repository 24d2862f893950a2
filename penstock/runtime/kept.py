"""Checks whether a state can be stored: fast ones, without encoding it, and whether one that was read back is the same."""

import typing
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec

from penstock.app import reducers
from penstock.app.element import ProcessingElement
from penstock.app.joins import Joining, Once
from penstock.app.window.aggregate import Reducing
from penstock.app.window.windowed import Windowed
from penstock.kinds.annotations import demanding
from penstock.kinds.event import Event
from penstock.kinds.fields import is_immutable

SHORT = 1 << 16
"""Texts below this length are certainly small enough to be stored."""
FEW_NUMBERS = 100_000
"""Fewer numbers in windows of reducers are certainly small enough, too."""
FEW_TIMES = 1_000_000
"""And so are fewer times, of nine bytes each."""
WHOLE = f"type(state.{{0}}) is int and {-(2**63)} <= state.{{0}} < {2**63}"
PLAIN: dict[Any, str] = {
    bool: "type(state.{0}) is bool",
    float: "type(state.{0}) is float",
    int: WHOLE,
    str: f"type(state.{{0}}) is str and len(state.{{0}}) < {SHORT} and state.{{0}}.isascii()",
    bytes: f"type(state.{{0}}) is bytes and len(state.{{0}}) < {SHORT}",
}
"""By type, the check of a field as Python source; ``{0}`` stands for the field's name."""
NUMERIC = (reducers.count, reducers.sum, reducers.mean, reducers.min, reducers.max)
NUMBERS = (int, float, int | None, float | None, tuple[float, int])
"""Types of the states of `NUMERIC` reducers that can be stored whatever their values, but for sums of integers beyond 64 bits:
reducers alone change them, by values of delivered events.
"""
SETS = (set[int], set[int | None])
"""Types of the states of `reducers.distinct` that can be stored if they have few members."""

SCALARS = frozenset({bool, int, float, str, bytes, Decimal, date, timedelta, UUID, type(None)})
"""Classes of which equal objects behave alike."""
KNOWN = (None, UTC)
"""The zones of times that come back as they are."""

PARTS_OF_DICT: Sequence[Callable[[Any], Iterable[Any]]] = (dict.keys, dict.values)

Asked = Callable[[Any], bool]


@lru_cache(maxsize=64)
def surely_kept(prototype: type[ProcessingElement]) -> Asked:
    """Return a function that tells whether a state can certainly be stored. It may return True where all fields, or the states
    of all windows, are plain scalars, and where no window is open.
    """
    if issubclass(prototype, Once):
        return lambda state: len(state.passed) < FEW_TIMES
    if issubclass(prototype, Windowed) and prototype.holds == ("open",):
        body = prototype.body
        return _windows_kept(body) if issubclass(body, Reducing) and _is_numeric(body) else lambda state: not state.open
    return _plain_kept(prototype) or (lambda state: False)


def reads_back(prototype: type[ProcessingElement], inputs: Iterable[type[Event]]) -> bool:
    """Whether each state that can be encoded can also be decoded. Joins and built-in reducers keep values of delivered events,
    and no function can change these if they are scalars.

    Args:
        inputs: the types of the events that are delivered.
    """
    if not all(map(is_immutable, inputs)):
        return False
    return is_reduced(prototype) or issubclass(prototype, Joining)


def is_reduced(prototype: type[ProcessingElement]) -> bool:
    """Whether the states are those of windows of built-in reducers, which no function of the application changes."""
    if not issubclass(prototype, Windowed):
        return False
    body = prototype.body
    return issubclass(body, Reducing) and all(type(reducer) in reducers.BUILT_IN for reducer in body.reducers.values())


def is_same(one: Any, other: Any) -> bool:
    """Whether a state that was read back is the one that was written. It is what Python takes for equal, but NaN is the same as
    NaN at any depth.
    """
    with suppress(Exception):  # a signalling NaN cannot be compared
        if one == other:
            return True
    if isinstance(one, set | frozenset):
        return isinstance(other, set | frozenset) and len(one) == len(other) and {*map(_named, one)} == {*map(_named, other)}
    if isinstance(one, dict):
        return (
            isinstance(other, dict) and is_same([*one.keys()], [*other.keys()]) and is_same([*one.values()], [*other.values()])
        )
    parts, others = _parts(one), _parts(other)
    if parts is None or others is None:
        return isinstance(one, float | Decimal) and type(one) is type(other) and str(one) == str(other)
    return _class_of(one) is _class_of(other) and len(parts) == len(others) and all(map(is_same, parts, others))


def inexact(read: Any, written: Any) -> str:
    """What of a state that was read back behaves otherwise than in the equal one that was written; empty where nothing does.

    That is an object of another class, though an integer may stand for another number; and a time with another offset. Events
    are taken as they are, because elements do not change them.
    """
    return _inexact([read], [written])


def _inexact(read: Sequence[Any], written: Sequence[Any]) -> str:
    """The first of a sequence of objects that is inexact. Level by level, as a call for each object would take long."""
    types, kinds = [*map(type, read)], [*map(type, written)]
    if types != kinds:
        for one, other in zip(types, kinds, strict=True):
            if one is not other and not (other is int and one in (float, Decimal)):
                return f"a {other.__name__} comes back as {one.__name__}"
    present = set(kinds)
    for kind in present - SCALARS:
        ones, others = read, written
        if len(present) > 1:
            ones, others = ([value for value, its in zip(side, kinds, strict=True) if its is kind] for side in (read, written))
        if wrong := _inexact_of(kind, ones, others):
            return wrong
    return ""


def _inexact_of(kind: type, read: Sequence[Any], written: Sequence[Any]) -> str:
    """What is inexact in objects of one class."""
    if issubclass(kind, datetime | time):
        odd = (pair for pair in zip(read, written, strict=True) if pair[1].tzinfo not in KNOWN and _offset(*pair))
        return next((f"the time {other} comes back as {one}" for one, other in odd), "")
    if issubclass(kind, Event):
        return ""
    if issubclass(kind, dict):
        keys, values = ([[*chain.from_iterable(map(part, side))] for side in (read, written)] for part in PARTS_OF_DICT)
        return _inexact(*keys) or _inexact(*values)
    if issubclass(kind, set | frozenset):  # whose members are in any order
        classes, known = ({*map(type, chain.from_iterable(side))} for side in (written, read))
        if classes == known and len(classes) <= 1 and classes <= SCALARS:
            return ""
        return next(filter(None, (_inexact_members(one, other) for one, other in zip(read, written, strict=True))), "")
    if issubclass(kind, list | tuple | deque):
        return _inexact([*chain.from_iterable(read)], [*chain.from_iterable(written)])
    names = (
        kind.__struct_fields__
        if issubclass(kind, msgspec.Struct)
        else [each.name for each in fields(kind)]
        if is_dataclass(kind)
        else ()
    )
    columns = ([[*map(attrgetter(name), values)] for values in (read, written)] for name in names)
    return next(filter(None, (_inexact(*column) for column in columns)), "")


def _inexact_members(read: Any, written: Any) -> str:
    """What is inexact in a set: members whose classes, or offsets, are none of those that are read back."""
    classes = {*map(type, read)}
    gone = {*map(type, written)} - classes - ({int} if classes & {float, Decimal} else set())
    if gone:
        return f"a {gone.pop().__name__} in a set comes back as another class"
    moved = {str(value) for value in written if isinstance(value, datetime | time)} - {*map(str, read)}
    return f"the time {min(moved)} in a set comes back with another offset" if moved else ""


def _offset(one: Any, other: Any) -> bool:
    """Whether the offsets of two times from UTC differ."""
    return (one.tzinfo is None, one.utcoffset()) != (other.tzinfo is None, other.utcoffset())


def _parts(value: Any) -> Sequence[Any] | None:
    """Return what a value is made of, in order; None for a scalar."""
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    return [*value] if isinstance(value, list | tuple | deque) else None


def _class_of(value: Any) -> type:
    return list if isinstance(value, list) else type(value)


def _named(member: Any) -> Any:
    """Return a member of a set with a name for NaN, which equals nothing."""
    parts = _parts(member)
    if parts is not None:
        return _class_of(member), *map(_named, parts)
    return member if member == member else (type(member), str(member))


def _is_numeric(body: type[Reducing]) -> bool:
    hints = typing.get_type_hints(body)
    return not demanding(body) and all(
        (type(reducer) in NUMERIC and hints[state] in NUMBERS) or (type(reducer) is reducers.distinct and hints[state] in SETS)
        for state, reducer in body.states
    )


def _windows_kept(body: type[Reducing]) -> Asked:
    """Return the check of windows of numbers: they and the members of their sets are few, and each sum of integers is within
    64 bits.
    """
    hints, parts = typing.get_type_hints(body), len(body.states)
    sums = [state for state, reducer in body.states if type(reducer) is reducers.sum and hints[state] is int]
    sets = [state for state, _ in body.states if hints[state] in SETS]
    exact: Asked = eval("lambda state: " + (" and ".join(map(WHOLE.format, sums)) or "True"))
    size: Callable[[Any], int] = eval("lambda state: " + "+".join([f"{parts}", *(f"len(state.{each})" for each in sets)]))

    def kept(state: Any) -> bool:
        windows = [window.state for window in state.open.values()]
        return sum(map(size, windows)) < FEW_NUMBERS and (not sums or all(map(exact, windows)))

    return kept


def _plain_kept(cls: type[Any]) -> Asked | None:
    """Compile the check of a class; None where it has fields that are no plain scalars, or further constraints."""
    names, hints = cls.__struct_fields__, typing.get_type_hints(cls)
    if not names or demanding(cls) or not all(hints[name] in PLAIN for name in names):
        return None
    asked: Asked = eval("lambda state: " + " and ".join(PLAIN[hints[name]].format(name) for name in names))
    return asked
