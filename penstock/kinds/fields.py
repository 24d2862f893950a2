"""Conversions of field values between events, columns, table rows and encoded events, in which fields may have other names."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cache, partial
from inspect import Parameter, signature
from math import isfinite
from typing import Any, get_args, get_origin

import msgspec

from penstock.kinds.annotations import choices, demanding, optional, plain
from penstock.kinds.coding import to_builtins
from penstock.kinds.event import Event, field_types
from penstock.kinds.table import KNOWN_ANEW, kinds

Change = Callable[[Any], Any]

_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?\s*", re.IGNORECASE)


def is_flat(annotation: Any) -> bool:
    """Whether a field is of a scalar type that columns hold unchanged, and may have any value of it (no Enum or Literal)."""
    return plain(annotation) in _flat()


def is_flat_event(event_type: type[Event]) -> bool:
    """Whether an event is frozen, all its fields are flat, and its values are subject to no further constraint."""
    return (
        event_type.__struct_config__.frozen
        and all(map(is_flat, field_types(event_type).values()))
        and not demanding(event_type)
    )


def is_immutable(event_type: type[Event]) -> bool:
    """Whether no function can change an event: it is frozen, and its fields are flat and of built-in kinds."""
    own = {kind.python for kind in kinds() if kind.encode is not None}
    return is_flat_event(event_type) and not any(plain(annotation) in own for annotation in field_types(event_type).values())


@cache
def _flat() -> frozenset[type]:
    return frozenset(kind.python for kind in kinds() if not kind.is_text and not kind.staged)


def for_columns(value: Any, *, staged: bool = False) -> Any:
    """Convert a value, or a list of values, to what columns take: values of types that columns hold as text become text."""
    return to_builtins(value, _kept(staged))


@cache
def _kept(staged: bool) -> tuple[type, ...]:
    """Return the types whose values columns take unchanged."""
    return tuple(kind.python for kind in kinds() if not (kind.is_text or (staged and kind.staged)))


KNOWN_ANEW.extend((_flat.cache_clear, _kept.cache_clear))


def is_nested(annotation: Any) -> bool:
    """Whether a field is a list, a dict or an event."""
    kind = plain(annotation)
    return get_origin(kind) in (list, dict) or (isinstance(kind, type) and issubclass(kind, Event))


def opened(row: dict[str, Any], nested: Iterable[str]) -> dict[str, Any]:
    """Decode the nested fields of a database row that the database returned as JSON text.

    Raises:
        msgspec.DecodeError: a text is no JSON.
    """
    return row | {name: msgspec.json.decode(row[name]) for name in nested if isinstance(row.get(name), str)}


def to_column(annotation: Any, *, staged: bool = False) -> Change | None:
    """Return the function that converts a field's value to what its column takes; None if columns take values unchanged."""
    if is_flat(annotation):
        return None
    scalar = partial(for_columns, staged=staged)
    return partial(_by_fields, scalar) if _is_encoded_otherwise(annotation) else scalar


def to_encoded(annotation: Any) -> Change | None:
    """Return the function that renames fields within a value to their encoded names, as `msgspec.convert` reads them.

    None if no name changes and no tag is added. A value of another type stays as it is, for `msgspec.convert` to refuse.
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
    """Return what `to_encoded` returns, for an event given as a dict by field names."""
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
    """Yield all scalars in a value, at any depth, including the keys of dicts; a scalar yields itself."""
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
    """Whether JSON can represent all numbers in a value: it has no NaN or infinity."""
    return all(not isinstance(scalar, float) or isfinite(scalar) for scalar in scalars_in(value))


def floats_of(event_type: type[Event]) -> dict[str, bool]:
    """Return the fields that hold floats, at any depth, and whether each field may be None."""
    return _floats_of(event_type)


@cache
def _floats_of(event_type: Any) -> dict[str, bool]:
    kinds = field_types(event_type)
    return {name: optional(annotation) for name, annotation in kinds.items() if holds(annotation, float)}


def holds(annotation: Any, scalar: type) -> bool:
    """Whether values of an annotation are, or hold at any depth, values of a type."""
    kind = plain(annotation)
    if get_origin(kind) in (list, dict):
        return holds(get_args(kind)[-1], scalar)
    if isinstance(kind, type) and issubclass(kind, Event):
        return any(holds(part, scalar) for part in field_types(kind).values())
    return kind is scalar


def may_read_null(annotation: Any) -> bool:
    """Whether a value may be a text that lax conversion takes for None: a choice named null, or bytes in Base64."""
    kind = plain(annotation)
    if get_origin(kind) in (list, dict):
        return may_read_null(get_args(kind)[-1])
    if isinstance(kind, type) and issubclass(kind, Event):
        return any(map(may_read_null, field_types(kind).values()))
    texts = [value for value in choices(annotation) if isinstance(value, str)]
    return optional(annotation) and (kind is bytes or any(text.lower() == "null" for text in texts))


def refuse_unwritable(event: Event, floats: Mapping[str, bool]) -> None:
    """Refuse NaN and infinity, which JSON lacks; but allow NaN as the value of a field that may be None, as it becomes null.

    Args:
        floats: the result of `floats_of` for the event's type.

    Raises:
        ValueError: names the field.
    """
    for name, may_miss in floats.items():
        value = getattr(event, name)
        if not is_writable(value) and not (value != value and may_miss):
            raise ValueError(f"Field {name} is or holds {value!r}, which JSON does not have; use None, and declare it `| None`")


def nan_as_null(event: Event) -> Event:
    """Return an event with None for NaN in fields that may be None, as JSON and SQLite keep it."""
    floats = _floats_of(type(event))
    missing = {name: None for name, may_miss in floats.items() if may_miss and (value := getattr(event, name)) != value}
    return msgspec.structs.replace(event, **missing) if missing else event


def nothing_of(event_type: type[Event], *, encoded: bool = False) -> dict[str, None]:
    """Return None for each field that may be None and has no default.

    These are the values of fields that a row of texts, or another system's message, lacks.

    Args:
        encoded: whether the keys are the fields' encoded names.
    """
    kinds = field_types(event_type)
    missing = (info for info in msgspec.structs.fields(event_type) if info.required and optional(kinds[info.name]))
    return {info.encode_name if encoded else info.name: None for info in missing}


def filler_of(event_type: type[Event]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a function that adds to an event's values by encoded name those of `nothing_of`, also in events within it."""
    return _filler(event_type) or (lambda values: values)


@cache
def _filler(annotation: Any) -> Callable[[Any], Any] | None:
    kind = plain(annotation)
    if get_origin(kind) in (list, dict):
        within = _filler(get_args(kind)[-1])
        if within is None:
            return None
        if get_origin(kind) is list:
            return lambda values: [within(value) for value in values] if isinstance(values, list) else values
        return lambda values: {k: within(value) for k, value in values.items()} if isinstance(values, dict) else values
    if not (isinstance(kind, type) and issubclass(kind, Event)):
        return None
    nothing, names, annotations = nothing_of(kind, encoded=True), encoded_names(kind), field_types(kind)
    parts = {names[name]: part for name in names if (part := _filler(annotations[name])) is not None}
    if not (nothing or parts):
        return None

    def filled(values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return nothing | {name: parts[name](value) if name in parts else value for name, value in values.items()}

    return filled


def times_of(event_type: type[Event]) -> tuple[str, ...]:
    """Return the names of the fields of type `datetime`."""
    kinds = field_types(event_type).items()
    return tuple(name for name, annotation in kinds if plain(annotation) is datetime)


def refuse_numbers(values: Mapping[str, Any], times: Iterable[str]) -> None:
    """Refuse a number where a time is expected, as it is ambiguous: 20260131 may be a day, or seconds since 1970.

    Raises:
        msgspec.ValidationError: names the field.
    """
    for name in times:
        value = values.get(name)
        if isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value)):
            raise msgspec.ValidationError(f"Expected a time in ISO 8601, got the number {value} - at `$.{name}`")


def in_order(kind: type[Event]) -> Callable[..., Any]:
    """Return a function that makes an event of its fields' values in order, even if the type takes keyword arguments only."""
    if all(parameter.kind is not Parameter.KEYWORD_ONLY for parameter in signature(kind).parameters.values()):
        return kind
    names = kind.__struct_fields__
    return lambda *values: kind(**dict(zip(names, values, strict=True)))


def encoded_names(kind: type[Event]) -> dict[str, str]:
    """Return the encoded name of each field (its name in JSON), by field."""
    return dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))


def raw_fields(kind: type[Event]) -> set[str]:
    """Return the fields of type `bytes`, which keys and headers of messages hold unchanged; as texts they are Base64."""
    return {name for name, annotation in field_types(kind).items() if plain(annotation) is bytes}


def tag_of(kind: type[Event]) -> dict[str, str | int]:
    """Return the tag field, and its value, that msgspec adds to an encoded event to name its type; empty if it adds none."""
    config = kind.__struct_config__
    return {} if config.tag is None or config.tag_field is None else {config.tag_field: config.tag}


def _by_fields(scalar: Change, value: Any) -> Any:
    """Convert a value for a column: events to dicts by field names, and scalars by a function."""
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
    """Whether an event in a field, as msgspec encodes it, may lack a field or name it differently than its column does."""
    kind = plain(annotation)
    if isinstance(kind, type) and issubclass(kind, Event):
        own = _has_other_names(kind) or kind.__struct_config__.omit_defaults
        return own or any(map(_is_encoded_otherwise, field_types(kind).values()))
    return any(map(_is_encoded_otherwise, get_args(kind)))
