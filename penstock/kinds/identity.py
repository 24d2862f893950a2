"""Equality of keys: values that are equal in Python are brought into one form, at any depth, so that they are one key.

For example -0.0 becomes 0.0, a decimal 1.00 becomes 1, a time moves to UTC, and the entries of a dict are sorted. All NaNs are
one key, although NaN does not equal itself.
"""

import typing
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.kinds.annotations import kind_of, plain
from penstock.kinds.coding import convert, msgpack_encoder, to_builtins
from penstock.kinds.event import Event, field_types
from penstock.kinds.fields import is_nested, to_column, to_encoded
from penstock.kinds.table import kind_of_type

_encode = msgpack_encoder().encode


def spelled(value: Any) -> Any:
    """Return the one form of all values that are equal to a value."""
    if isinstance(value, list):
        return list(map(spelled, value))
    if isinstance(value, dict):
        return {name: spelled(value[name]) for name in sorted(value)}
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: spelled(getattr(value, name)) for name in value.__struct_fields__})
    kind = kind_of_type(type(value))
    return value if kind is None or kind.identity is None else kind.identity(value)


def in_order(value: Any) -> tuple[Any, ...]:
    """Return a sort key that orders all values of a kind: NaN, which does not compare with others, comes last."""
    return (True,) if value != value else (False, value)


def identity(value: Any) -> bytes:
    """Return bytes that are equal for equal values of a type, and differ for all others."""
    return _encode(spelled(value))


def spelling(annotation: Any) -> Callable[[Any], Any] | None:
    """Return a function like `spelled` for values of a type; None if equal values of the type have one form only."""
    if _is_spelled(annotation):
        return None
    scalar = kind_of(annotation)
    spell = spelled if scalar is None or scalar.identity is None else scalar.identity
    return lambda value: None if value is None else spell(value)


def text_spelling(annotation: Any) -> Callable[[str], str] | None:
    """Return a function that gives the one text of all equal values of a type, from the text that a column has of a value.

    None if columns hold no texts of the type, or equal values have one text.
    """
    kind = kind_of(annotation)
    if kind is None or not kind.is_text or kind.identity is None:
        return None
    python, spell = kind.python, kind.identity
    return lambda text: str(to_builtins(spell(convert(text, python))))


def nested_spelling(annotation: Any) -> Callable[[str], str] | None:
    """Return what `text_spelling` returns, for the JSON that a table holds of a list, a dict or an event; None for others."""
    shown = to_column(annotation)
    if not is_nested(annotation) or shown is None or _is_spelled(annotation):
        return None
    renamed = to_encoded(annotation) or (lambda value: value)

    def spell(text: str) -> str:
        value = convert(renamed(msgspec.json.decode(text)), annotation, strict=False)
        return msgspec.json.encode(shown(spelled(value))).decode()

    return spell


def _is_spelled(annotation: Any) -> bool:
    """Whether equal values of a type have one form only, so that `spelled` would not change them."""
    kind = plain(annotation)
    if typing.get_origin(kind) is dict:
        return False
    if typing.get_origin(kind) is list:
        return _is_spelled(typing.get_args(kind)[0])
    if isinstance(kind, type) and issubclass(kind, Event):
        return all(map(_is_spelled, field_types(kind).values()))
    scalar = kind_of(annotation)
    return scalar is None or scalar.identity is None
