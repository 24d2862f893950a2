"""Questions about the annotations of fields: the type without ``| None``, the allowed values, constraints, the kind."""

import types
import typing
from enum import Enum
from typing import Any

import msgspec

from penstock.kinds.kind import Kind
from penstock.kinds.table import kind_of_type

CONSTRAINTS = ("gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz")
"""The attributes of `msgspec.Meta` that constrain values."""


def plain(annotation: Any) -> Any:
    """Return an annotation without `Annotated` and `| None`."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return plain(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return plain(next(member for member in arguments if member is not type(None)))
    return annotation


def optional(annotation: Any) -> bool:
    """Whether an annotation allows None."""
    if typing.get_origin(annotation) is typing.Annotated:
        return optional(typing.get_args(annotation)[0])
    return type(None) in typing.get_args(annotation)


def naive(annotation: Any) -> bool:
    """Whether an annotation requires times without a zone, by ``Meta(tz=False)``."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return any(map(naive, arguments))
    return any(meta.tz is False for meta in _metas(annotation)) or (origin is typing.Annotated and naive(arguments[0]))


def choices(annotation: Any) -> tuple[Any, ...]:
    """Return the values of a Literal, or of the members of an Enum, as they are stored; empty for other types."""
    kind = plain(annotation)
    if typing.get_origin(kind) is typing.Literal:
        return typing.get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(member.value for member in kind)
    return ()


def kind_of(annotation: Any) -> Kind | None:
    """Return the kind of a field; for an Enum or Literal, the kind of its values; None for lists, dicts and events."""
    values = choices(annotation)
    return kind_of_type(type(values[0]) if values else plain(annotation), naive=naive(annotation))


def scalar_of(annotation: Any) -> Kind:
    """Return the kind of a field that is known to have one."""
    kind = kind_of(annotation)
    assert kind is not None, annotation
    return kind


def demanding(kind: type) -> bool:
    """Whether a class restricts values beyond their types: by constraints in annotations, or by a `__post_init__`."""
    return hasattr(kind, "__post_init__") or any(map(_demands, typing.get_type_hints(kind, include_extras=True).values()))


def _demands(annotation: Any) -> bool:
    asked = (getattr(meta, name) for meta in _metas(annotation) for name in CONSTRAINTS)
    return any(value is not None for value in asked) or any(map(_demands, typing.get_args(annotation)))


def _metas(annotation: Any) -> list[msgspec.Meta]:
    """Return the `msgspec.Meta` objects in an annotation; some may hold only a description."""
    return [meta for meta in getattr(annotation, "__metadata__", ()) if isinstance(meta, msgspec.Meta)]
