"""Fields of events as texts: what stands beside an event in a message's key or header, or in a path."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from penstock.kinds.coding import convert, json_encoder, to_builtins
from penstock.kinds.event import Event, field_types
from penstock.kinds.fields import is_writable
from penstock.kinds.identity import spelled

_encode = json_encoder().encode

NOTHING = "*"
"""What stands for None among the parts of a key: no quoted text has a star, and a path may have one."""


def text_of(value: Any) -> str:
    """A field's value as text: a text itself, anything else the way JSON writes it, equal values in one way.

    Raises
    ------
    ValueError: a list, a dict or an event holds a number that JSON has no word for.
    """
    if type(value) is str:
        return value
    if type(value) is float and not isfinite(value):
        return str(value)
    value = spelled(value)
    if isinstance(value, list | dict | msgspec.Struct) and not is_writable(value):
        raise ValueError("within a list, a dict or an event, NaN and infinity have no text, and none can be a key")
    if type(value) is Decimal and value.is_finite() and abs(value) < 10**20 and int(value.as_tuple().exponent) >= -18:
        return f"{value:f}"  # as Spark writes those that it has
    try:
        plain = to_builtins(value)
    except NotImplementedError:  # of a type that no field has
        return str(value)
    return plain if isinstance(plain, str) else _encode(plain).decode()


def joined(texts: Iterable[str | None]) -> str:
    """A key as one text: its fields' texts, quoted as in a URL, divided by slashes; keys that differ are texts that differ."""
    return "/".join(NOTHING if text is None else quote(text, safe="") for text in texts)


def key_text(event: Event, key: Iterable[str]) -> str:
    """The key of an event as one text."""
    values = (getattr(event, name) for name in key)
    return joined(None if value is None else text_of(value) for value in values)


def key_of_path(parts: Sequence[str], event_type: type[Event], key: Sequence[str]) -> str:
    """A key that somebody has written as parts of a path, as `key_text` would write it."""
    if len(parts) != len(key):
        return joined(map(unquote, parts))
    kinds = field_types(event_type)
    return joined(_read(part, kinds[name]) for part, name in zip(parts, key, strict=True))


def _read(part: str, annotation: Any) -> str | None:
    """The text of a part of a path; of what is no value of the type, as it stands."""
    if part == NOTHING:
        return None
    text = unquote(part)
    try:
        return text_of(convert(text, annotation, strict=False))
    except msgspec.ValidationError:
        return text
