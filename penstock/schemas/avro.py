"""Avro schemas and records, by `fastavro`. Decimals, which have any precision, and types that Avro lacks become texts."""

import io
import json
import re
import typing
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import fastavro
import msgspec
from fastavro.schema import SchemaParseException

from penstock.errors import EventSchemaError
from penstock.kinds.annotations import choices, optional, plain, scalar_of
from penstock.kinds.coding import convert, to_builtins
from penstock.kinds.event import Event, field_types
from penstock.schemas.names import is_defined
from penstock.schemas.schema import Schema, Values, default_of, made_type, zoned

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

INT = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
LONG = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
PYTHON = {
    "boolean": bool,
    "int": INT,
    "long": LONG,
    "float": float,
    "double": float,
    "string": str,
    "bytes": bytes,
    "date": date,
    "timestamp-millis": datetime,
    "timestamp-micros": datetime,
    "local-timestamp-millis": datetime,
    "local-timestamp-micros": datetime,
    "time-millis": time,
    "time-micros": time,
    "uuid": UUID,
    "decimal": Decimal,
}
"""The annotations of Avro's primitive and logical types."""

KEPT = (bytes, datetime, date, time, Decimal, UUID)
"""The types of values that `fastavro` takes as Python objects."""


def text_of(event_type: type[Event]) -> str:
    """Return the Avro schema of an event type, as JSON."""
    return json.dumps(_record(event_type, {}))


def event_type_of(schema: Schema) -> type[Event]:
    """Return an event type for a schema, which must be a record."""
    parsed, named = _parsed(schema)
    kind = _python(parsed, named, ())
    if not (isinstance(kind, type) and issubclass(kind, Event)):
        raise EventSchemaError("The Avro schema is no record, and an event must be one: make the type a field of a record.")
    return kind


def reader_of(schema: Schema) -> Callable[[bytes], Values | bytes]:
    """Return a reader of records that are encoded without a header."""
    parsed, _ = _parsed(schema)

    def read(payload: bytes) -> Values:
        stream = io.BytesIO(payload)
        values = fastavro.schemaless_reader(stream, parsed, None)
        rest = len(payload) - stream.tell()
        if rest:
            raise ValueError(f"{rest} bytes are left behind the record")
        if not isinstance(values, dict):
            raise ValueError("the schema is no record")
        return values

    return read


def writer_of(schema: Schema) -> Callable[[Any], bytes]:
    """Return a writer of records, encoded without a header."""
    parsed, _ = _parsed(schema)
    made = event_type_of(schema)

    def write(event: Any) -> bytes:
        values = to_builtins(convert(to_builtins(event), made), KEPT)
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, _in_utc(values))
        return stream.getvalue()

    return write


def _in_utc(value: Any) -> Any:
    """Add UTC to datetimes without a zone, which `fastavro` would take for local time; ValueError for a time with a zone."""
    if isinstance(value, dict):
        return {name: _in_utc(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_in_utc, value))
    if isinstance(value, time) and value.tzinfo is not None:
        raise ValueError(f"{value} has a zone, but Avro's times of day have none; use a time without a zone")
    return zoned(value) if isinstance(value, datetime) else value


def _parsed(schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return a parsed schema, and its named types by name."""
    named: dict[str, Any] = {}
    try:
        for _, text in schema.parts:
            fastavro.parse_schema(json.loads(text), named)
        return fastavro.parse_schema(json.loads(schema.text), named), named
    except (SchemaParseException, ValueError, KeyError, TypeError) as error:
        raise EventSchemaError(f"This is no Avro schema ({error!r}): {schema.text[:200]}") from error


def _record(event_type: type[Event], kinds: dict[str, type]) -> Any:
    """Return the Avro record of an event type; only its name if it is in ``kinds``, as Avro defines a type once."""
    if is_defined(event_type, kinds, _definition):
        return event_type.__name__
    annotations = field_types(event_type, annotated=True)
    fields = []
    for info in msgspec.structs.fields(event_type):
        name, annotation = info.encode_name, annotations[info.name]
        if not NAME.fullmatch(name):
            raise EventSchemaError(f"Field {event_type.__name__}.{name}: Avro allows letters, digits and '_' in names.")
        default = _default(info)
        kind = _avro(annotation, kinds, f"{event_type.__name__}.{name}")
        if isinstance(kind, list) and default is not msgspec.NODEFAULT and default is not None:
            kind = kind[::-1]  # a default must have the first type of a union
        fields.append({"name": name, "type": kind, **({} if default is msgspec.NODEFAULT else {"default": default})})
    return {"type": "record", "name": event_type.__name__, "fields": fields}


def _definition(kind: type) -> Any:
    """Return what a schema says of an event type or an Enum."""
    return _record(kind, {}) if issubclass(kind, Event) else list(choices(kind))


def _default(info: msgspec.structs.FieldInfo) -> Any:
    """Return a field's default, if an Avro schema can state it as JSON; else ``msgspec.NODEFAULT``."""
    if info.default_factory is not msgspec.NODEFAULT:
        value = info.default_factory()
        return value if value in ([], {}) else msgspec.NODEFAULT  # another may differ from call to call
    value = info.default.value if isinstance(info.default, Enum) else info.default
    return value if value is None or isinstance(value, bool | int | float | str) else msgspec.NODEFAULT


def _avro(annotation: Any, kinds: dict[str, type], path: str) -> Any:
    kind = _present(annotation, kinds, path)
    return ["null", kind] if optional(annotation) else kind


def _present(annotation: Any, kinds: dict[str, type], path: str) -> Any:
    """Return the Avro type of an annotation's values other than None."""
    kind = plain(annotation)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return {"type": "array", "items": _avro(arguments[0], kinds, f"{path}[]")}
    if origin is dict:
        return {"type": "map", "values": _avro(arguments[1], kinds, f"{path}{{}}")}
    if isinstance(kind, type) and issubclass(kind, Event):
        return _record(kind, kinds)
    if isinstance(kind, type) and issubclass(kind, Enum):
        symbols = choices(kind)
        if all(isinstance(symbol, str) and NAME.fullmatch(symbol) for symbol in symbols):
            if is_defined(kind, kinds, _definition):
                return kind.__name__
            return {"type": "enum", "name": kind.__name__, "symbols": list(symbols)}
    return scalar_of(annotation).avro


def _python(kind: Any, named: dict[str, Any], inside: tuple[str, ...]) -> Any:
    """Return the annotation for an Avro type; ``inside`` names the records that it is nested in."""
    if isinstance(kind, list):
        others = [member for member in kind if member != "null"]
        if len(others) != 1:
            raise EventSchemaError(f"Avro's union {kind} is of several types; an event's field may have one type, or null.")
        return _python(others[0], named, inside) | None if len(kind) > 1 else _python(others[0], named, inside)
    if isinstance(kind, str):
        if kind in PYTHON:
            return PYTHON[kind]
        kind = named.get(kind, kind)
    form = kind.get("type") if isinstance(kind, dict) else kind
    if isinstance(kind, dict) and kind.get("logicalType") in PYTHON:
        return PYTHON[kind["logicalType"]]
    if form == "array":
        return list[_python(kind["items"], named, inside)]  # type: ignore[misc]
    if form == "map":
        return dict[str, _python(kind["values"], named, inside)]  # type: ignore[misc]
    if form == "enum":
        return Literal[tuple(kind["symbols"])]
    if form == "fixed":
        return Annotated[bytes, msgspec.Meta(min_length=kind["size"], max_length=kind["size"])]
    if form in ("record", "error"):
        name = kind["name"]
        if name in inside:
            raise EventSchemaError(f"Avro's record {name} holds itself, which no event can.")
        fields = [(field, _python(field["type"], named, (*inside, name))) for field in kind["fields"]]
        return made_type(name.rpartition(".")[2], [(field["name"], python, _given(field, python)) for field, python in fields])
    if isinstance(form, dict) or form in PYTHON:
        return _python(form, named, inside)
    raise EventSchemaError(f"Avro's type {form!r} has no counterpart among the types of events.")


def _given(field: dict[str, Any], python: Any) -> Any:
    """Return the default of an Avro field as a Python value; ``msgspec.NODEFAULT`` if none, or not of the field's type."""
    if "default" not in field:
        return msgspec.NODEFAULT
    default, kind = field["default"], field["type"][0] if isinstance(field["type"], list) else field["type"]
    form = kind.get("type") if isinstance(kind, dict) else kind
    try:
        if form in ("bytes", "fixed") and isinstance(default, str):
            default = default.encode("latin-1")  # a letter for a byte
        if isinstance(kind, dict) and kind.get("logicalType") in PYTHON:  # the default is of the type that it is stored as
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, {name: each for name, each in kind.items() if name != "logicalType"}, default)
            stream.seek(0)
            default = fastavro.schemaless_reader(stream, kind, None)
    except (ValueError, TypeError, ArithmeticError, SchemaParseException):
        return msgspec.NODEFAULT
    return default_of(default, python)
