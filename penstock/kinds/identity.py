"""When two keys are one: values that Python holds equal are written in one way, whatever they are made of.

So -0.0 is 0.0, 1.00 is 1, one instant is one in any zone, and a dict's entries are in one order; NaN, which equals nothing, is
one key.
"""

import typing
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.kinds.annotations import kind_of, plain
from penstock.kinds.coding import msgpack_encoder
from penstock.kinds.event import Event, field_types
from penstock.kinds.table import kind_of_type

_encode = msgpack_encoder().encode


def spelled(value: Any) -> Any:
    """A value as all values are written that are equal to it."""
    if isinstance(value, list):
        return list(map(spelled, value))
    if isinstance(value, dict):
        return {name: spelled(value[name]) for name in sorted(value)}
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: spelled(getattr(value, name)) for name in value.__struct_fields__})
    kind = kind_of_type(type(value))
    return value if kind is None or kind.identity is None else kind.identity(value)


def in_order(value: Any) -> tuple[Any, ...]:
    """What puts the values of a kind into one order: NaN, which is neither less nor greater than anything, is the last."""
    return (True,) if value != value else (False, value)


def identity(value: Any) -> bytes:
    """What is equal for equal values of a type, and for them alone."""
    return _encode(spelled(value))


def spelling(annotation: Any) -> Callable[[Any], Any] | None:
    """`spelled`, of the values of a type; None where all are written in one way as they are."""
    if _is_spelled(annotation):
        return None
    scalar = kind_of(annotation)
    spell = spelled if scalar is None or scalar.identity is None else scalar.identity
    return lambda value: None if value is None else spell(value)


def _is_spelled(annotation: Any) -> bool:
    kind = plain(annotation)
    if typing.get_origin(kind) is dict:
        return False
    if typing.get_origin(kind) is list:
        return _is_spelled(typing.get_args(kind)[0])
    if isinstance(kind, type) and issubclass(kind, Event):
        return all(map(_is_spelled, field_types(kind).values()))
    scalar = kind_of(annotation)
    return scalar is None or scalar.identity is None
