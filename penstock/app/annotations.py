"""Annotations of events' fields, taken apart."""

import types
import typing
from typing import Any


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


def demanding(kind: type) -> bool:
    """Whether a class asks more of its values than their types: by what `Annotated` adds, or in its `__post_init__`."""
    return hasattr(kind, "__post_init__") or typing.get_type_hints(kind) != typing.get_type_hints(
        kind, include_extras=True
    )
