"""Annotations of events' fields, taken apart."""

import types
import typing
from enum import Enum
from typing import Any

import msgspec

from penstock.kinds.kind import Kind
from penstock.kinds.table import kind_of_type

CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
"""What `msgspec.Meta` asks of a value."""


def plain(annotation: Any) -> Any:
    """An annotation without `Annotated` and `| None`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return plain(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return plain(next(member for member in arguments if member is not type(None)))
    return annotation


def optional(annotation: Any) -> bool:
    """Whether it allows None."""
    if typing.get_origin(annotation) is typing.Annotated:
        return optional(typing.get_args(annotation)[0])
    return type(None) in typing.get_args(annotation)


def naive(annotation: Any) -> bool:
    """Whether it wants times without a zone."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(map(naive, arguments))
    return any(meta.tz is False for meta in _metas(annotation)) or (origin is typing.Annotated and naive(arguments[0]))


def choices(annotation: Any) -> tuple[Any, ...]:
    """The values that an Enum's members or a Literal can have, as they are kept; none for other types."""
    kind = plain(annotation)
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(member.value for member in kind)
    return ()


def kind_of(annotation: Any) -> Kind | None:
    """The row of the table for a field: of a choice, that of what its values are; None for lists, dicts and events."""
    values = choices(annotation)
    return kind_of_type(type(values[0]) if values else plain(annotation), naive=naive(annotation))


def scalar_of(annotation: Any) -> Kind:
    """The row of a field that has one."""
    kind = kind_of(annotation)
    assert kind is not None, annotation
    return kind


def demanding(kind: type) -> bool:
    """Whether a class asks more of its values than their types: by constraints in its annotations, or in its
    `__post_init__`.
    """
    return hasattr(kind, "__post_init__") or any(map(_demands, typing.get_type_hints(kind, include_extras=True).values()))


def _demands(annotation: Any) -> bool:
    asked = (getattr(meta, name) for meta in _metas(annotation) for name in CONSTRAINTS)
    return any(value is not None for value in asked) or any(map(_demands, typing.get_args(annotation)))


def _metas(annotation: Any) -> list[msgspec.Meta]:
    """What msgspec is told of a value; a description is among it."""
    return [one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, msgspec.Meta)]
