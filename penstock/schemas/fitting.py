"""Whether events of one type can be read as another: what is missing, and what is of another kind."""

import typing
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from penstock.kinds.annotations import kind_of, optional, plain
from penstock.kinds.event import Event, field_types


class Leniency(NamedTuple):
    """What is not held against a type.

    Parameters
    ----------
    texts: that what JSON has no type for is wanted as a text; as it is where it is given.
    absences: that a field may be absent, as every message within one of Protobuf's may.
    """

    texts: bool = False
    absences: bool = False


STRICT = Leniency()


def misfits(given: type[Event], wanted: type[Event], lenient: Leniency = STRICT, path: str = "") -> Iterator[str]:
    """Why what is given cannot be read as what is wanted, a sentence's part each; nothing, where it can."""
    there = {info.encode_name: info for info in msgspec.structs.fields(given)}
    given_types, wanted_types = field_types(given), field_types(wanted)
    for info in msgspec.structs.fields(wanted):
        name = f"{path}{info.encode_name}"
        found = there.get(info.encode_name)
        if found is None:
            if info.required:
                yield f"has no field {name}"
            continue
        yield from _misfit(given_types[found.name], wanted_types[info.name], name, lenient)


def _misfit(given: Any, wanted: Any, name: str, lenient: Leniency) -> Iterator[str]:
    if optional(given) and not optional(wanted) and not lenient.absences:
        yield f"allows null in {name}"
        return
    one, other = plain(given), plain(wanted)
    origin = typing.get_origin(one)
    if origin in (list, dict) and origin is typing.get_origin(other):
        inner, outer = typing.get_args(one)[-1], typing.get_args(other)[-1]
        yield from _misfit(inner, outer, f"{name}[]" if origin is list else f"{name}{{}}", lenient)
    elif _is_event(one) and _is_event(other):
        yield from misfits(one, other, lenient, f"{name}.")
    elif not _reads(one, other, lenient):
        yield f"has {_called(one)} in {name}, which is {_called(other)}"


def _reads(one: Any, other: Any, lenient: Leniency) -> bool:
    """Whether values of one type are read as another; of a choice, what its values are."""
    given, wanted = kind_of(one), kind_of(other)
    if given is None or wanted is None:
        return False
    wants_text = wanted.python is str and lenient.texts and str in given.reads
    return given is wanted or given.python in wanted.reads or wants_text


def _is_event(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Event)


def _called(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
