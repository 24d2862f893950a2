"""Protobuf, by Google's own compiler and runtime. What it has no type for are texts; what is absent has its default."""

import tempfile
import typing
from collections.abc import Callable
from contextlib import redirect_stderr
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from io import StringIO
from math import isfinite, isnan
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from grpc_tools import protoc

from penstock.errors import EventSchemaError
from penstock.kinds.annotations import optional, plain, scalar_of
from penstock.kinds.coding import convert, to_builtins
from penstock.kinds.event import Event, field_types
from penstock.schemas.schema import Schema, Values, made_type, zoned

FILE = "schema.proto"
IMPORTED = {"google.protobuf.Timestamp": "timestamp", "google.protobuf.Duration": "duration"}
TIMES = {"google.protobuf.Timestamp": datetime, "google.protobuf.Duration": timedelta}
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


def _within(bits: int, *, signed: bool) -> Any:
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return Annotated[int, msgspec.Meta(ge=least, le=min(most, 2**63 - 1))]  # msgspec's bounds are of 64 bits at most


PYTHON = {
    **dict.fromkeys((FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT), (float, 0.0)),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SFIXED64, FieldDescriptor.TYPE_SINT64), (_within(64, signed=True), 0)
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), (_within(64, signed=False), 0)),
    **dict.fromkeys(
        (FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SFIXED32, FieldDescriptor.TYPE_SINT32), (_within(32, signed=True), 0)
    ),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), (_within(32, signed=False), 0)),
    FieldDescriptor.TYPE_BOOL: (bool, False),
    FieldDescriptor.TYPE_STRING: (str, ""),
    FieldDescriptor.TYPE_BYTES: (bytes, b""),
}


def text_of(event_type: type[Event]) -> str:
    """The ``.proto`` file of an event type. Its fields are numbered as they are declared: append new ones."""
    messages: dict[str, list[str]] = {}
    imports: set[str] = set()
    _message(event_type, messages, imports)
    imported = [f'import "google/protobuf/{name}.proto";' for name in sorted(imports)]
    lines = ['syntax = "proto3";', *([""] if imported else []), *imported]
    for name in [event_type.__name__, *(name for name in messages if name != event_type.__name__)]:
        lines += ["", f"message {name} {{", *messages[name], "}"]
    return "\n".join(lines) + "\n"


def event_type_of(schema: Schema) -> type[Event]:
    """An event type for a file's first message."""
    return _python(_descriptor(schema, (0,)), ())


def reader_of(schema: Schema) -> Callable[[bytes], Values | bytes]:
    """Reads what begins with the place of the message in the file, as registries have it."""

    def read(payload: bytes) -> Values:
        place, rest = _place(payload)
        message = message_factory.GetMessageClass(_descriptor(schema, place))()
        message.ParseFromString(rest)
        return _values(message)

    return read


def writer_of(schema: Schema) -> Callable[[Any], bytes]:
    """Writes a file's first message, with its place before it."""
    descriptor = _descriptor(schema, (0,))
    made, message_type = event_type_of(schema), message_factory.GetMessageClass(descriptor)

    def write(event: Any) -> bytes:
        fitted = convert(to_builtins(event), made)
        values = _shown(to_builtins(fitted, (timedelta, datetime)))
        message = json_format.ParseDict(values, message_type())
        return b"\0" + bytes(message.SerializeToString())

    return write


@lru_cache(maxsize=64)
def _file(schema: Schema) -> Any:
    """The descriptor of a schema's file.

    Raises
    ------
    EventSchemaError: the compiler refuses it.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root, said = Path(scratch), StringIO()
        for name, text in (*schema.parts, (FILE, schema.text)):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        made = root / "made"
        own = str(files("grpc_tools").joinpath("_proto"))
        with redirect_stderr(said):
            code = protoc.main(["protoc", f"-I{root}", f"-I{own}", "--include_imports", f"--descriptor_set_out={made}", FILE])
        if code:
            raise EventSchemaError(f"This is no Protobuf schema: {schema.text[:200]}")
        together = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in together.file:
        pool.Add(file)
    return pool.FindFileByName(FILE)


def _descriptor(schema: Schema, place: tuple[int, ...]) -> Descriptor:
    """The message at a place: which in the file, which within that, and so on."""
    found = _file(schema)
    messages = list(found.message_types_by_name.values())
    if not messages:
        raise EventSchemaError("The Protobuf schema has no message.")
    descriptor: Descriptor = messages[place[0]]
    for number in place[1:]:
        descriptor = descriptor.nested_types[number]
    return descriptor


def _place(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """The place that stands before a message: how many numbers, and these; a single 0 is the first message."""
    count, at = _zigzag(payload, 0)
    if count == 0:
        return (0,), payload[at:]
    numbers = []
    for _ in range(count):
        number, at = _zigzag(payload, at)
        numbers.append(number)
    return tuple(numbers), payload[at:]


def _zigzag(payload: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = payload[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _values(message: Any) -> Values:
    """What a message says of its fields."""
    found: Values = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            found[field.name] = {key: _value(inner, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_value(field, each) for each in value]
        else:
            found[field.name] = _value(field, value)
    return found


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return value.ToDatetime(tzinfo=UTC)
    if name == "google.protobuf.Duration":
        return value.ToTimedelta()
    return value.value if name in WRAPPERS else _values(value)


def _python(descriptor: Descriptor, inside: tuple[str, ...]) -> type[Event]:
    if descriptor.full_name in inside:
        raise EventSchemaError(f"Protobuf's message {descriptor.full_name} holds itself, which no event can.")
    within = (*inside, descriptor.full_name)
    return made_type(descriptor.name, [(field.name, *_typed(field, within)) for field in descriptor.fields])


def _typed(field: FieldDescriptor, inside: tuple[str, ...]) -> tuple[Any, Any]:
    """A field's annotation and default."""
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        if key.type != FieldDescriptor.TYPE_STRING:
            raise EventSchemaError(f"Protobuf's map {field.full_name} has keys that are no text.")
        return dict[str, _single(value, inside)[0]], {}  # type: ignore[misc]
    kind, default = _single(field, inside)
    if field.is_repeated:
        return list[kind], []  # type: ignore[valid-type]
    if field.is_required:
        return kind, msgspec.NODEFAULT
    return (kind | None, None) if field.has_presence else (kind, default)


def _single(field: FieldDescriptor, inside: tuple[str, ...]) -> tuple[Any, Any]:
    if field.type == FieldDescriptor.TYPE_ENUM:
        names = tuple(value.name for value in field.enum_type.values)
        return Literal[names], names[0]
    if field.message_type is None:
        return PYTHON[field.type]
    name = field.message_type.full_name
    if name in TIMES:
        return TIMES[name], msgspec.NODEFAULT
    if name in WRAPPERS:
        return _single(field.message_type.fields_by_name["value"], inside)[0], None
    if name.startswith("google.protobuf."):
        raise EventSchemaError(f"Protobuf's {name} ({field.full_name}) has no counterpart among the types of events.")
    return _python(field.message_type, inside), msgspec.NODEFAULT


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return bool(kind is not None and field.is_repeated and kind.GetOptions().map_entry)


def _shown(value: Any) -> Any:
    """Values as Protobuf's JSON has them: no nulls, and a time span in seconds."""
    if isinstance(value, dict):
        return {name: _shown(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_shown(each) for each in value]
    if isinstance(value, timedelta):
        whole, sign = abs(value), "-" if value < timedelta() else ""
        return f"{sign}{whole.days * 86_400 + whole.seconds}.{whole.microseconds:06d}s"
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return zoned(value).isoformat() if isinstance(value, datetime) else value


def _message(event_type: type[Event], messages: dict[str, list[str]], imports: set[str]) -> str:
    name = event_type.__name__
    if name not in messages:
        messages[name] = []
        annotations = field_types(event_type, annotated=True)
        messages[name] += [
            f"  {_declared(annotations[info.name], f'{name}.{info.encode_name}', messages, imports)} {info.encode_name} = "
            f"{number};"
            for number, info in enumerate(msgspec.structs.fields(event_type), 1)
        ]
    return name


def _declared(annotation: Any, path: str, messages: dict[str, list[str]], imports: set[str]) -> str:
    kind = plain(annotation)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, dict) and optional(annotation):
        raise EventSchemaError(f"Field {path}: Protobuf has no list or map that may be absent; make it empty by default.")
    if origin is list:
        return f"repeated {_named(arguments[0], f'{path}[]', messages, imports)}"
    if origin is dict:
        return f"map<string, {_named(arguments[1], f'{path}{{}}', messages, imports)}>"
    named = _present(annotation, path, messages, imports)
    return f"optional {named}" if optional(annotation) else named


def _named(annotation: Any, path: str, messages: dict[str, list[str]], imports: set[str]) -> str:
    """The name of the type of what stands in a list or a map."""
    if typing.get_origin(plain(annotation)) in (list, dict) or optional(annotation):
        raise EventSchemaError(f"Field {path}: Protobuf has no list or map within one, and no null; put it into an event.")
    return _present(annotation, path, messages, imports)


def _present(annotation: Any, path: str, messages: dict[str, list[str]], imports: set[str]) -> str:
    """The name of the type of an annotation's values that are not None."""
    kind = plain(annotation)
    if isinstance(kind, type) and issubclass(kind, Event):
        return _message(kind, messages, imports)
    name = scalar_of(annotation).protobuf
    if name in IMPORTED:
        imports.add(IMPORTED[name])
    return name
