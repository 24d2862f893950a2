"""Checks whether a state can be stored: fast ones, without encoding it, and whether one that was read back is the same."""

import typing
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
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
FEW_WINDOWS = 100_000
"""Fewer states of reducers in windows, of plain values, are certainly small enough, too."""
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

SCALARS = frozenset({bool, int, float, str, bytes, Decimal, date, timedelta, UUID, type(None)})
"""Classes of which equal objects behave alike."""

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
    if issubclass(prototype, Windowed):
        body = prototype.body
        return issubclass(body, Reducing) and all(type(reducer) in reducers.BUILT_IN for reducer in body.reducers.values())
    return issubclass(prototype, Joining)


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


def inexact(read: Any, written: Any, seen: set[int] | None = None) -> str:
    """What of a state that was read back behaves otherwise than in the equal one that was written; empty where nothing does.

    That is an object of another class, though an integer may stand for another number; a list, set or dict that is in two
    places; and a time with another offset. Events are taken as they are, because elements do not change them.
    """
    seen = set() if seen is None else seen
    if type(read) is not type(written):
        widened = type(written) is int and type(read) in (float, Decimal)
        return "" if widened else f"a {type(written).__name__} comes back as {type(read).__name__}"
    if isinstance(written, datetime | time):
        is_alike = (read.tzinfo is None, read.utcoffset()) == (written.tzinfo is None, written.utcoffset())
        return "" if is_alike else f"the time {written} comes back as {read}"
    if isinstance(written, Event):
        return ""
    if isinstance(written, list | dict | set | deque):
        if id(written) in seen:
            return f"a {type(written).__name__} that is in two places comes back as two"
        seen.add(id(written))
    if isinstance(written, dict):
        return _inexact([*read.values()], [*written.values()], seen) or _inexact([*read], [*written], seen)
    if isinstance(written, set | frozenset):
        gone = {*map(type, written)} - {*map(type, read)}
        return next((f"a {each.__name__} in a set comes back as another class" for each in gone), "")
    parts, others = _parts(read), _parts(written)
    return "" if parts is None or others is None else _inexact(parts, others, seen)


def _inexact(read: Sequence[Any], written: Sequence[Any], seen: set[int]) -> str:
    """The first of a sequence of objects that is inexact; of plain scalars it is enough that their classes are the same."""
    types = [*map(type, written)]
    if types == [*map(type, read)] and {*types} <= SCALARS:
        return ""
    return next(filter(None, (inexact(one, other, seen) for one, other in zip(read, written, strict=True))), "")


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
    return not demanding(body) and all(type(reducer) in NUMERIC and hints[state] in NUMBERS for state, reducer in body.states)


def _windows_kept(body: type[Reducing]) -> Asked:
    """Return the check of windows of numbers: there are few, and each sum of integers is within 64 bits."""
    hints, parts = typing.get_type_hints(body), len(body.states)
    sums = [state for state, reducer in body.states if type(reducer) is reducers.sum and hints[state] is int]
    if not sums:
        return lambda state: len(state.open) * parts < FEW_WINDOWS
    part: Asked = eval("lambda state: " + " and ".join(map(WHOLE.format, sums)))
    return lambda state: len(state.open) * parts < FEW_WINDOWS and all(part(window.state) for window in state.open.values())


def _plain_kept(cls: type[Any]) -> Asked | None:
    """Compile the check of a class; None where it has fields that are no plain scalars, or further constraints."""
    names, hints = cls.__struct_fields__, typing.get_type_hints(cls)
    if not names or demanding(cls) or not all(hints[name] in PLAIN for name in names):
        return None
    asked: Asked = eval("lambda state: " + " and ".join(PLAIN[hints[name]].format(name) for name in names))
    return asked
