"""Defaults of fields that could be changed in place: all instances would share them, so each gets a copy of its own."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import is_dataclass
from functools import cache
from typing import Any, TypeVar

import msgspec

Made = TypeVar("Made", bound=msgspec.Struct)


def is_changeable(value: Any) -> bool:
    """Whether a value is, or holds, something that can be changed in place."""
    if isinstance(value, list | dict | set | bytearray) or (is_dataclass(value) and not isinstance(value, type)):
        return True
    if isinstance(value, tuple | frozenset):
        return any(map(is_changeable, value))
    if not isinstance(value, msgspec.Struct):
        return False
    held = (getattr(value, name) for name in value.__struct_fields__)
    return not value.__struct_config__.frozen or any(map(is_changeable, held))


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


def default_of(info: msgspec.structs.FieldInfo) -> Any:
    """Return the default of a field; None where it has none."""
    if info.default_factory is not msgspec.NODEFAULT:
        return info.default_factory()
    return None if info.default is msgspec.NODEFAULT else info.default
