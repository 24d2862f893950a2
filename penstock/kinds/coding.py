"""msgspec's encoders and decoders, which know the kinds that msgspec does not."""

from typing import Any

import msgspec

from penstock.kinds.table import kind_of_type


def json_encoder() -> msgspec.json.Encoder:
    """Encodes JSON."""
    return msgspec.json.Encoder(enc_hook=encoded)


def json_decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    """Decodes JSON of a type."""
    return msgspec.json.Decoder(kind, dec_hook=decoded)


def msgpack_encoder() -> msgspec.msgpack.Encoder:
    """Encodes MessagePack."""
    return msgspec.msgpack.Encoder(enc_hook=encoded)


def msgpack_decoder(kind: Any) -> "msgspec.msgpack.Decoder[Any]":
    """Decodes MessagePack of a type."""
    return msgspec.msgpack.Decoder(kind, dec_hook=decoded)


def convert(value: Any, kind: Any, *, strict: bool = True) -> Any:
    """A value as one of a type; as `msgspec.convert`."""
    return msgspec.convert(value, kind, strict=strict, dec_hook=decoded)


def to_builtins(value: Any, kept: tuple[type, ...] = ()) -> Any:
    """A value of JSON's types and of those that are kept; as `msgspec.to_builtins`."""
    return msgspec.to_builtins(value, builtin_types=kept, enc_hook=encoded)


def json_schema(event_type: type) -> dict[str, Any]:
    """The JSON Schema of an event type, as clients of an adapter would validate against."""
    return msgspec.json.schema(event_type, schema_hook=unknown_schema)


def unknown_schema(python: type) -> dict[str, Any]:
    """The JSON Schema of a type that msgspec does not know."""
    kind = kind_of_type(python)
    if kind is None or kind.encode is None:
        raise NotImplementedError
    return {"type": "string", **({"format": kind.json_schema} if kind.json_schema else {})}


def encoded(value: Any) -> str:
    """The text of a value that msgspec does not know."""
    kind = kind_of_type(type(value))
    if kind is None or kind.encode is None:
        raise NotImplementedError
    return kind.encode(value)


def decoded(python: type, text: Any) -> Any:
    """The value of such a text.

    Raises
    ------
    ValueError: it is none, or not of the type.
    """
    kind = kind_of_type(python)
    if kind is None or kind.decode is None:
        raise NotImplementedError
    if isinstance(text, python):
        return text
    if not isinstance(text, str):
        raise ValueError(f"Expected `str`, got `{type(text).__name__}`")
    return kind.decode(text)
