"""Defaults of fields that could be changed in place: all instances would share them, so each gets a copy of its own."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

import msgspec

Made = TypeVar("Made", bound=msgspec.Struct)


def is_changeable(value: Any) -> bool:
    """Whether a value is, or holds, something that can be changed in place."""
    if isinstance(value, list | dict | set | bytearray):
        return True
    if isinstance(value, tuple | frozenset):
        return any(map(is_changeable, value))
    if isinstance(value, msgspec.Struct):
        is_frozen, names = value.__struct_config__.frozen, value.__struct_fields__
    elif is_dataclass(value) and not isinstance(value, type):
        is_frozen, names = type(value).__dataclass_params__.frozen, tuple(field.name for field in fields(value))  # type: ignore[attr-defined]
    else:
        return False
    return not is_frozen or any(is_changeable(getattr(value, name)) for name in names)


def changeable_defaults(kind: type[msgspec.Struct]) -> list[str]:
    """Return the names of the fields whose default all instances would share, and could change."""
    infos = msgspec.structs.fields(kind)
    return [info.name for info in infos if info.default is not msgspec.NODEFAULT and is_changeable(info.default)]


@cache
def maker(kind: type[Made]) -> Callable[[], Made]:
    """Return a function that makes an instance with defaults of its own."""
    names = changeable_defaults(kind)
    if not names:
        return kind

    def made() -> Made:
        instance = kind()
        for name in names:
            setattr(instance, name, deepcopy(getattr(instance, name)))
        return instance

    return made
