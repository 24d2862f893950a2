"""msgspec's encoders, decoders and conversions, with hooks for registered kinds, whose types msgspec does not know."""

import math
from collections.abc import Collection
from typing import Any

import msgspec

from penstock.errors import EventSchemaError
from penstock.kinds.table import kind_of_type


def json_encoder() -> msgspec.json.Encoder:
    """Return an encoder of JSON."""
    return msgspec.json.Encoder(enc_hook=encoded)


def json_decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    """Return a decoder of JSON to a type."""
    return msgspec.json.Decoder(kind, dec_hook=decoded)


def msgpack_encoder() -> msgspec.msgpack.Encoder:
    """Return an encoder of MessagePack."""
    return msgspec.msgpack.Encoder(enc_hook=encoded)


def msgpack_decoder(kind: Any) -> "msgspec.msgpack.Decoder[Any]":
    """Return a decoder of MessagePack to a type."""
    return msgspec.msgpack.Decoder(kind, dec_hook=decoded)


def array_of(encoded: Collection[bytes]) -> bytes:
    """Return the MessagePack of a list, given that of each of its members."""
    return b"".join((b"\xdd", len(encoded).to_bytes(4, "big"), *encoded))


def convert(value: Any, kind: Any, *, strict: bool = True) -> Any:
    """Convert a value to a type, as `msgspec.convert` does."""
    return msgspec.convert(value, kind, strict=strict, dec_hook=decoded)


def to_builtins(value: Any, kept: tuple[type, ...] = ()) -> Any:
    """Convert a value to JSON's types, as `msgspec.to_builtins` does; values of the types in ``kept`` stay unchanged."""
    return msgspec.to_builtins(value, builtin_types=kept, enc_hook=encoded)


def json_schema(event_type: type) -> dict[str, Any]:
    """Return the JSON Schema of an event type, by which clients of the adapter may validate events."""
    try:
        return msgspec.json.schema(event_type, schema_hook=unknown_schema)
    except KeyError as error:  # msgspec tells types apart by their modules and names
        kind: type = error.args[0]
        named = f"{kind.__module__}.{kind.__qualname__}"
        raise EventSchemaError(f"Two types are named {named}; give one of them another name.") from error


def unknown_schema(python: type) -> dict[str, Any]:
    """Return the JSON Schema of a type that msgspec does not know; raise NotImplementedError if it is not registered."""
    kind = kind_of_type(python)
    if kind is None or kind.encode is None:
        raise NotImplementedError
    return {"type": "string", **({"format": kind.json_schema} if kind.json_schema else {})}


def encoded(value: Any) -> str:
    """Return the text of a value whose type msgspec does not know.

    Raises:
        TypeError: the type is not registered; names it.
    """
    own = type(value)
    kind = kind_of_type(own)
    if kind is None or kind.encode is None:
        raise TypeError(f"Type {own.__module__}.{own.__qualname__} is of no field: convert the value, as by int()")
    return kind.encode(value)


def decoded(python: type, text: Any) -> Any:
    """Return the value of a text, as `encoded` writes it; a value that is of the type already is returned unchanged.

    Raises:
        ValueError: it is no text, or is not a text of the type.
        NotImplementedError: the type is not registered.
    """
    kind = kind_of_type(python)
    if kind is None or kind.decode is None:
        raise NotImplementedError
    if isinstance(text, python):
        return text
    if not isinstance(text, str):
        raise ValueError(f"Expected `str`, got `{type(text).__name__}`")
    return kind.decode(text)


def finite(value: Any) -> Any:
    """Return a value with null for each infinity and NaN in it, which JSON does not have."""
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
