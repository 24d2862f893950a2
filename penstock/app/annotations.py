"""Annotations of events' fields, taken apart."""

import types
import typing
from typing import Any

import msgspec

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


def demanding(kind: type) -> bool:
    """Whether a class asks more of its values than their types: by constraints in its annotations, or in its `__post_init__`."""
    return hasattr(kind, "__post_init__") or any(
        map(_demands, typing.get_type_hints(kind, include_extras=True).values())
    )


def _demands(annotation: Any) -> bool:
    asked = (getattr(meta, name) for meta in _metas(annotation) for name in CONSTRAINTS)
    return any(value is not None for value in asked) or any(map(_demands, typing.get_args(annotation)))


def _metas(annotation: Any) -> list[msgspec.Meta]:
    """What msgspec is told of a value; a description is among it."""
    return [one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, msgspec.Meta)]
