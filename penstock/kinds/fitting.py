"""What values of a type can do: fit another type, be put in order, be members of a set."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from penstock.kinds.annotations import choices, kind_of, plain
from penstock.kinds.coding import json_decoder, json_encoder, msgpack_decoder, msgpack_encoder
from penstock.kinds.event import Event, field_types

UNIONS = (Union, UnionType)
_packed, _written = msgpack_encoder().encode, json_encoder().encode


def may_fit(given: Any, wanted: Any) -> bool:
    """Whether some value of a type, None aside, is a value of another one. True, too, where it is not known."""
    kind, other = plain(given), plain(wanted)
    if kind == other or _is_union(given) or _is_union(wanted):
        return True
    if isinstance(kind, type) and issubclass(kind, Event):
        return isinstance(other, type) and issubclass(other, Event)
    if get_origin(kind) in (list, dict):
        return get_origin(other) is get_origin(kind) and may_fit(get_args(kind)[-1], get_args(other)[-1])
    scalar = kind_of(given) if choices(kind) or isinstance(kind, type) else None
    samples = choices(kind) or (scalar.samples if scalar else ())
    return not samples or _fits(samples, _packed, msgpack_decoder(other)) or _may_narrow(kind, other)


def _is_union(annotation: Any) -> bool:
    """Whether an annotation allows several types besides None."""
    return len([member for member in get_args(annotation) if member is not type(None)]) > 1 and get_origin(annotation) in UNIONS


def _may_narrow(kind: Any, other: Any) -> bool:
    """Whether values of a wide type may be the texts or numbers of a narrow one: of an Enum, a Literal, a time, a UUID."""
    if kind not in (str, int):
        return False
    narrow = kind_of(other) if isinstance(other, type) and not issubclass(other, Event) else None
    values = choices(other) or (narrow.samples if narrow and kind is str else ())
    return _fits(values, _written, json_decoder(kind))


def has_order(annotation: Any) -> bool:
    """Whether any two values of a type, None aside, can be compared by ``<``."""
    kind = plain(annotation)
    if get_origin(kind) is list:
        return has_order(get_args(kind)[0])
    if get_origin(kind) is dict:
        return False
    if isinstance(kind, type) and issubclass(kind, Event):
        return bool(kind.__struct_config__.order) or _defines(kind, "__lt__")
    return not (isinstance(kind, type) and issubclass(kind, Enum) and kind.__lt__ is object.__lt__)  # type: ignore[operator]


def is_hashable(annotation: Any) -> bool:
    """Whether values of a type can be members of a set."""
    kind = plain(annotation)
    if get_origin(kind) in (list, dict):
        return False
    if isinstance(kind, type) and issubclass(kind, Event):
        all_are = kind.__struct_config__.frozen and all(map(is_hashable, field_types(kind).values()))
        return all_are or _defines(kind, "__hash__")
    return True


def _defines(kind: type[Event], method: str) -> bool:
    """Whether an event type, or one that it is derived from, has a method of its own."""
    return any(method in vars(base) for base in kind.__mro__[: kind.__mro__.index(Event)])


def _fits(samples: Iterable[Any], encode: Callable[[Any], bytes], decoder: Any) -> bool:
    """Whether one of some values, encoded, can be decoded."""
    for sample in samples:
        with suppress(msgspec.MsgspecError, OverflowError, ValueError):
            decoder.decode(encode(sample))
            return True
    return False
