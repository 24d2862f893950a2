"""Values by the fields of their events, as columns and tables hold them; an event's encoding may give fields other names."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache, partial
from inspect import Parameter, signature
from math import isfinite
from typing import Any, get_args, get_origin

import msgspec

from penstock.kinds.annotations import optional, plain
from penstock.kinds.coding import to_builtins
from penstock.kinds.event import Event, field_types
from penstock.kinds.table import KNOWN_ANEW, kinds

Change = Callable[[Any], Any]

_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)


def is_flat(annotation: Any) -> bool:
    """Whether a field is a scalar, of which a column holds what an event does, and any value of its type will do."""
    return plain(annotation) in _flat()


@cache
def _flat() -> frozenset[type]:
    return frozenset(kind.python for kind in kinds() if not kind.is_text and not kind.staged)


def for_columns(value: Any, *, staged: bool = False) -> Any:
    """A value, or several in a list, as columns take them: what columns keep as texts as these."""
    return to_builtins(value, _kept(staged))


@cache
def _kept(staged: bool) -> tuple[type, ...]:
    """What columns take as it is."""
    return tuple(kind.python for kind in kinds() if not (kind.is_text or (staged and kind.staged)))


KNOWN_ANEW.extend((_flat.cache_clear, _kept.cache_clear))


def is_nested(annotation: Any) -> bool:
    """Whether a field is a list, a dict or an event."""
    kind = plain(annotation)
    return get_origin(kind) in (list, dict) or (isinstance(kind, type) and issubclass(kind, Event))


def opened(row: dict[str, Any], nested: Iterable[str]) -> dict[str, Any]:
    """A database's row, of which nested fields may come as the text of their JSON.

    Raises
    ------
    msgspec.DecodeError: such a text is no JSON.
    """
    return row | {name: msgspec.json.decode(row[name]) for name in nested if isinstance(row.get(name), str)}


def to_column(annotation: Any, *, staged: bool = False) -> Change | None:
    """What makes of values of a type what a column takes of them; None where that is the values themselves."""
    if is_flat(annotation):
        return None
    scalar = partial(for_columns, staged=staged)
    return partial(_by_fields, scalar) if _is_encoded_otherwise(annotation) else scalar


def to_encoded(annotation: Any) -> Change | None:
    """What makes of values by fields what `msgspec.convert` reads; None where that is the values themselves.

    What is not of the type is left as it is, for `msgspec.convert` to refuse.
    """
    kind = plain(annotation)
    if isinstance(kind, type) and issubclass(kind, Event):
        return event_to_encoded(kind)
    inner = to_encoded(get_args(kind)[-1]) if get_origin(kind) in (list, dict) else None
    if inner is None:
        return None
    if get_origin(kind) is list:
        return lambda values: list(map(inner, values)) if isinstance(values, list) else values
    return lambda values: {n: inner(value) for n, value in values.items()} if isinstance(values, dict) else values


def event_to_encoded(kind: type[Event]) -> Change | None:
    """As `to_encoded`, of an event that is given as a dict."""
    inner = {name: change for name, annotation in field_types(kind).items() if (change := to_encoded(annotation))}
    names, tag = encoded_names(kind), tag_of(kind)
    if not inner and not tag and not _has_other_names(kind):
        return None

    def encoded(values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return tag | {names.get(name, name): inner[name](value) if name in inner else value for name, value in values.items()}

    return encoded


def scalars_in(value: Any) -> Iterator[Any]:
    """The scalars that a value holds, itself or within, the keys of dicts among them."""
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from scalars_in(getattr(value, name))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from scalars_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from scalars_in(each)
    else:
        yield value


def is_writable(value: Any) -> bool:
    """Whether JSON has words for all numbers that a value holds."""
    return all(not isinstance(scalar, float) or isfinite(scalar) for scalar in scalars_in(value))


def floats_of(event_type: type[Event]) -> dict[str, bool]:
    """The fields that hold floats, themselves or within, and whether each may be None."""
    return _floats_of(event_type)


@cache
def _floats_of(event_type: Any) -> dict[str, bool]:
    kinds = field_types(event_type)
    return {name: optional(annotation) for name, annotation in kinds.items() if _holds_floats(annotation)}


def _holds_floats(annotation: Any) -> bool:
    kind = plain(annotation)
    if get_origin(kind) in (list, dict):
        return _holds_floats(get_args(kind)[-1])
    if isinstance(kind, type) and issubclass(kind, Event):
        return any(map(_holds_floats, field_types(kind).values()))
    return kind is float


def refuse_unwritable(event: Event, floats: Mapping[str, bool]) -> None:
    """Refuse numbers that JSON does not have; NaN is null where a field may be None.

    Parameters
    ----------
    floats: `floats_of` the event.

    Raises
    ------
    ValueError: names the field.
    """
    for name, may_miss in floats.items():
        value = getattr(event, name)
        if not is_writable(value) and not (value != value and may_miss):
            raise ValueError(f"Field {name} is or holds {value!r}, which JSON does not have; let it be None, and declare that")


def nothing_of(event_type: type[Event], *, encoded: bool = False) -> dict[str, None]:
    """The fields that may be None and have no default, as None: what they are where texts, and other systems' messages, lack
    them.

    Parameters
    ----------
    encoded: by the names that an event's encoding gives them.
    """
    kinds = field_types(event_type)
    missing = (info for info in msgspec.structs.fields(event_type) if info.required and optional(kinds[info.name]))
    return {info.encode_name if encoded else info.name: None for info in missing}


def times_of(event_type: type[Event]) -> tuple[str, ...]:
    """The fields that hold times."""
    kinds = field_types(event_type).items()
    return tuple(name for name, annotation in kinds if plain(annotation) is datetime)


def refuse_numbers(values: Mapping[str, Any], times: Iterable[str]) -> None:
    """Refuse a number where a time is wanted, for 20260131 may be a day as well as seconds since 1970.

    Raises
    ------
    msgspec.ValidationError: names the field.
    """
    for name in times:
        value = values.get(name)
        if isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
            raise msgspec.ValidationError(f"Expected a time in ISO 8601, got the number {value} - at `$.{name}`")


def in_order(kind: type[Event]) -> Callable[..., Any]:
    """What makes an event of its fields' values in their order, also where the type takes them by name only."""
    if all(one.kind is not Parameter.KEYWORD_ONLY for one in signature(kind).parameters.values()):
        return kind
    names = kind.__struct_fields__
    return lambda *values: kind(**dict(zip(names, values, strict=True)))


def encoded_names(kind: type[Event]) -> dict[str, str]:
    """What an event's encoding calls its fields."""
    return dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))


def raw_fields(kind: type[Event]) -> set[str]:
    """The fields of bytes, which keys and headers of messages hold as they are; as texts they are Base64."""
    return {name for name, annotation in field_types(kind).items() if plain(annotation) is bytes}


def tag_of(kind: type[Event]) -> dict[str, str | int]:
    """What an event's encoding says of its type, besides its fields."""
    config = kind.__struct_config__
    return {} if config.tag is None or config.tag_field is None else {config.tag_field: config.tag}


def _by_fields(scalar: Change, value: Any) -> Any:
    if type(value) in _flat():
        return value
    if isinstance(value, msgspec.Struct):
        return {name: _by_fields(scalar, getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, list):
        return [_by_fields(scalar, each) for each in value]
    if isinstance(value, dict):
        return {name: _by_fields(scalar, each) for name, each in value.items()}
    return scalar(value)


def _has_other_names(kind: type[Event]) -> bool:
    return kind.__struct_fields__ != kind.__struct_encode_fields__


def _is_encoded_otherwise(annotation: Any) -> bool:
    """Whether an event within lacks, as it is encoded, what a column is to have."""
    kind = plain(annotation)
    if isinstance(kind, type) and issubclass(kind, Event):
        own = _has_other_names(kind) or kind.__struct_config__.omit_defaults
        return own or any(map(_is_encoded_otherwise, field_types(kind).values()))
    return any(map(_is_encoded_otherwise, get_args(kind)))
