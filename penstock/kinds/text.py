"""Fields of events as texts, as they are in the keys and headers of messages, and in paths of the adapter."""

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
"""Stands for a field that is None in the text of a key. Quoted texts have no star, and a path may contain one."""


def text_of(value: Any) -> str:
    """Return a field's value as text: a text as it is, other values as JSON without quotes. Equal values have equal texts.

    Raises:
        ValueError: a list, a dict or an event holds NaN or infinity, which JSON lacks.
    """
    if type(value) is str:
        return value
    if type(value) is float and not isfinite(value):
        return str(value)
    value = spelled(value)
    if isinstance(value, list | dict | msgspec.Struct) and not is_writable(value):
        raise ValueError("a list, a dict or an event that holds NaN or infinity has no text, and cannot be a key")
    if type(value) is Decimal and value.is_finite() and abs(value) < 10**20 and int(value.as_tuple().exponent) >= -18:
        return f"{value:f}"  # as Spark writes the decimals that fit its type
    try:
        plain = to_builtins(value)
    except TypeError:  # no field has such a type
        return str(value)
    return plain if isinstance(plain, str) else _encode(plain).decode()


def joined(texts: Iterable[str | None]) -> str:
    """Join the texts of a key's fields, each quoted as in a URL, by slashes, so that different keys have different texts."""
    return "/".join(NOTHING if text is None else quote(text, safe="") for text in texts)


def key_text(event: Event, key: Iterable[str]) -> str:
    """Return the key of an event as one text; ``key`` names its fields."""
    values = (getattr(event, name) for name in key)
    return joined(None if value is None else text_of(value) for value in values)


def key_of_path(parts: Sequence[str], event_type: type[Event], key: Sequence[str]) -> str:
    """Return the text that `key_text` returns for a key that a client wrote as the parts of a path, in any spelling."""
    if len(parts) != len(key):
        return joined(map(unquote, parts))
    kinds = field_types(event_type)
    return joined(_read(part, kinds[name]) for part, name in zip(parts, key, strict=True))


def _read(part: str, annotation: Any) -> str | None:
    """Return the text of a field's value in a path, or None for `NOTHING`; a text that is no value of its type stays."""
    if part == NOTHING:
        return None
    text = unquote(part)
    try:
        return text_of(convert(text, annotation, strict=False))
    except msgspec.ValidationError:
        return text
