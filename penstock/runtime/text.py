"""Fields of events as texts: what stands beside an event in a message's key or header, or in a path."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec


def text_of(value: Any) -> str:
    """A field's value as text: a text itself, anything else the way JSON writes it."""
    plain = msgspec.to_builtins(value)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def joined(texts: Iterable[str | None]) -> str:
    """The key of a result as it stands in a path: its fields' texts, quoted, divided by slashes."""
    return "/".join(quote("null" if text is None else text, safe="") for text in texts)
