"""Refuses events whose values a schema that others have made would change, by more than the rounding that it asks for."""

import ctypes
import math
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from penstock.kinds.coding import convert, json_decoder, to_builtins
from penstock.kinds.defaults import default_of
from penstock.kinds.event import Event
from penstock.schemas.schema import Schema, zoned

KEPT = (bytes, datetime, date, time, timedelta, Decimal, UUID)
"""The types of values that are compared as they are, and not as texts."""


def exact_writer(schema: Schema) -> Callable[[Any], bytes]:
    """Return a function that encodes an event as a payload, and reads it back to compare.

    It raises ``ValueError`` if the event does not fit the schema, or would come out of it with another value. Times are cut to
    the milliseconds, and numbers rounded to the 32 bits, that a schema names.
    """
    write, read, made = schema.writer(), schema.reader(), schema.event_type()
    decode = json_decoder(made).decode

    def written(event: Any) -> bytes:
        payload = write(event)
        values = read(payload)
        kept = decode(values) if isinstance(values, bytes) else convert(values, made)
        for path, before, after in _changes(event, made, kept):
            raise ValueError(f"{path} is {before!r}, and would become {after!r} by the schema")
        for path, default in _left_out(event, msgspec.json.decode(values) if isinstance(values, bytes) else values, ""):
            raise ValueError(f"{path} is None, which the schema leaves out, and would become {default!r}, its default")
        return payload

    return written


def _changes(event: Event, made: type[Event], kept: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the values of an event that differ from those that were read back: where, and both values.

    Args:
        made: the event type of the schema.
        kept: the event that was read back, of this type.
    """
    given = to_builtins(event)
    fitted = convert(given, made)
    yield from _differing(given, to_builtins(fitted), "", numbers_only=True)  # an integer that became a float
    yield from _differing(to_builtins(fitted, KEPT), to_builtins(kept, KEPT), "")


def _left_out(given: Any, read: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each None that is not in what was read back, and that the event's own type takes for another value: its default."""
    if isinstance(given, Event) and isinstance(read, dict):
        for info in msgspec.structs.fields(type(given)):
            value, place = getattr(given, info.name), f"{path}.{info.encode_name}".lstrip(".")
            if info.encode_name in read:
                yield from _left_out(value, read[info.encode_name], place)
            elif value is None and (default := default_of(info)) is not None:
                yield place, default
    elif isinstance(given, dict) and isinstance(read, dict):
        for name in given.keys() & read.keys():
            yield from _left_out(given[name], read[name], f"{path}.{name}")
    elif isinstance(given, list) and isinstance(read, list):
        for number, (one, other) in enumerate(zip(given, read, strict=False)):
            yield from _left_out(one, other, f"{path}[{number}]")


def _differing(given: Any, kept: Any, path: str, *, numbers_only: bool = False) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(kept, dict) and isinstance(given, dict):
        for name, value in kept.items():
            if name in given:
                yield from _differing(given[name], value, f"{path}.{name}".lstrip("."), numbers_only=numbers_only)
    elif isinstance(kept, list) and isinstance(given, list) and len(kept) == len(given):
        for number, (one, other) in enumerate(zip(given, kept, strict=True)):
            yield from _differing(one, other, f"{path}[{number}]", numbers_only=numbers_only)
    elif numbers_only and not (isinstance(given, int | float) and isinstance(kept, int | float)):
        return
    elif not _is_same(given, kept) and (numbers_only or not _is_same(_rounded(given), kept)):
        yield path, given, kept


def _is_same(given: Any, kept: Any) -> bool:
    if isinstance(given, datetime) and isinstance(kept, datetime):
        return zoned(given) == zoned(kept)
    return bool(given == kept or (given != given and kept != kept))


def _rounded(value: Any) -> Any:
    """Return a time in whole milliseconds, or a number of 32 bits; both stay where they are if there is none."""
    if isinstance(value, datetime | time):
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    narrow = ctypes.c_float(value).value if isinstance(value, float) else value
    return narrow if narrow not in (math.inf, -math.inf) else value
