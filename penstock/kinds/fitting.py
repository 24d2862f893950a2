"""What values of a type can do: fit another type, be put in order, be members of a set."""

from enum import Enum
from typing import Any, get_args, get_origin

import msgspec

from penstock.kinds.annotations import choices, kind_of, plain
from penstock.kinds.coding import msgpack_decoder, msgpack_encoder
from penstock.kinds.event import Event, field_types


def may_fit(given: Any, wanted: Any) -> bool:
    """Whether some value of a type, None aside, is a value of another one. True, too, where it is not known."""
    kind, other = plain(given), plain(wanted)
    if isinstance(kind, type) and issubclass(kind, Event):
        return isinstance(other, type) and issubclass(other, Event)
    if get_origin(kind) in (list, dict):
        return get_origin(other) is get_origin(kind) and may_fit(get_args(kind)[-1], get_args(other)[-1])
    scalar = kind_of(given) if choices(kind) or isinstance(kind, type) else None
    samples = choices(kind) or (scalar.samples if scalar else ())
    return not samples or any(_fits(sample, wanted) for sample in samples)


def has_order(annotation: Any) -> bool:
    """Whether any two values of a type, None aside, can be compared by ``<``."""
    kind = plain(annotation)
    if get_origin(kind) is list:
        return has_order(get_args(kind)[0])
    if get_origin(kind) is dict:
        return False
    if isinstance(kind, type) and issubclass(kind, Event):
        return bool(kind.__struct_config__.order)
    return not (isinstance(kind, type) and issubclass(kind, Enum) and not issubclass(kind, int | str))


def is_hashable(annotation: Any) -> bool:
    """Whether values of a type can be members of a set."""
    kind = plain(annotation)
    if get_origin(kind) in (list, dict):
        return False
    if isinstance(kind, type) and issubclass(kind, Event):
        return kind.__struct_config__.frozen and all(map(is_hashable, field_types(kind).values()))
    return True


def _fits(sample: Any, wanted: Any) -> bool:
    try:
        msgpack_decoder(wanted).decode(msgpack_encoder().encode(sample))
    except (msgspec.MsgspecError, OverflowError, ValueError):
        return False
    return True
