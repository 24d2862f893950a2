"""Compares two event types: whether events of one can be read as the other, or which fields are missing or differ."""

import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from penstock.kinds.annotations import kind_of, optional, plain
from penstock.kinds.event import Event, field_types
from penstock.schemas.schema import absent_in


class Leniency(NamedTuple):
    """Differences between two types that are ignored.

    Args:
        texts: whether a wanted `str` accepts a type whose values JSON holds as texts, such as `UUID`.
        absences: whether a given field may be null though null is not wanted: in Protobuf, any nested message may be absent.
    """

    texts: bool = False
    absences: bool = False


STRICT = Leniency()


def misfits(given: type[Event], wanted: type[Event], lenient: Leniency = STRICT, path: str = "") -> Iterator[str]:
    """Yield why events of the given type cannot be read as the wanted type, each as a predicate such as ``has no field x``."""
    infos = {info.encode_name: info for info in msgspec.structs.fields(given)}
    given_types, wanted_types = field_types(given), field_types(wanted)
    for info in msgspec.structs.fields(wanted):
        name = f"{path}{info.encode_name}"
        given_info = infos.get(info.encode_name)
        if given_info is None:
            if info.required:
                yield f"has no field {name}"
            continue
        given_type = given_types[given_info.name]
        if info.encode_name in absent_in(given) and not info.required:  # the default stands in
            given_type = plain(given_type)
        yield from _misfit(given_type, wanted_types[info.name], name, lenient)


def _misfit(given: Any, wanted: Any, name: str, lenient: Leniency) -> Iterator[str]:
    if optional(given) and not optional(wanted) and not lenient.absences:
        yield f"allows null in {name}"
        return
    given_type, wanted_type = plain(given), plain(wanted)
    origin = typing.get_origin(given_type)
    if origin in (list, dict) and origin is typing.get_origin(wanted_type):
        given_inner, wanted_inner = typing.get_args(given_type)[-1], typing.get_args(wanted_type)[-1]
        yield from _misfit(given_inner, wanted_inner, f"{name}[]" if origin is list else f"{name}{{}}", lenient)
    elif _is_event(given_type) and _is_event(wanted_type):
        yield from misfits(given_type, wanted_type, lenient, f"{name}.")
    elif not _reads(given_type, wanted_type, lenient):
        yield f"has {_called(given_type)} in {name}, which is {_called(wanted_type)}"


def _reads(one: Any, other: Any, lenient: Leniency) -> bool:
    """Whether values of type ``one`` can be read as type ``other``; for an Enum or Literal, the type of its values counts."""
    given, wanted = kind_of(one), kind_of(other)
    if given is None or wanted is None:
        return False
    wants_text = wanted.python is str and lenient.texts and str in given.reads
    return given is wanted or given.python in wanted.reads or wants_text


def _is_event(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Event)


def _called(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
