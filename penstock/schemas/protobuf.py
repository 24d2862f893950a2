"""Protobuf, by Google's compiler and runtime. Types that Protobuf lacks become texts; absent fields have their defaults."""

import os
import subprocess
import sys
import tempfile
import typing
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files
from math import isfinite, isnan
from pathlib import Path
from typing import Annotated, Any, Literal

import grpc_tools
import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from penstock.errors import EventSchemaError, SourceError
from penstock.kinds.annotations import optional, plain, scalar_of
from penstock.kinds.coding import convert, to_builtins
from penstock.kinds.defaults import default_of
from penstock.kinds.event import Event, field_types
from penstock.schemas.names import is_defined
from penstock.schemas.schema import Schema, Values, made_type, zoned

FILE = "schema.proto"
IMPORTED = {"google.protobuf.Timestamp": "timestamp", "google.protobuf.Duration": "duration"}
TIMES = {"google.protobuf.Timestamp": datetime, "google.protobuf.Duration": timedelta}
WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


def _within(bits: int, *, signed: bool) -> Any:
    """Return an annotation for integers of a number of bits."""
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return Annotated[int, msgspec.Meta(ge=least, le=min(most, 2**63 - 1))]  # msgspec's bounds have at most 64 bits


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
"""The annotation and the default of each scalar type of Protobuf."""


def _definition(kind: type) -> dict[str, list[str]]:
    """Return the lines of an event type's message, and of those in it, by name."""
    messages: dict[str, list[str]] = {}
    _message(kind, messages, {}, set())
    return messages


def text_of(event_type: type[Event]) -> str:
    """Return the ``.proto`` file of an event type. Fields are numbered in declaration order, so append new ones."""
    messages: dict[str, list[str]] = {}
    imports: set[str] = set()
    _message(event_type, messages, {}, imports)
    imported = [f'import "google/protobuf/{name}.proto";' for name in sorted(imports)]
    lines = ['syntax = "proto3";', *([""] if imported else []), *imported]
    for name in [event_type.__name__, *(name for name in messages if name != event_type.__name__)]:
        lines += ["", f"message {name} {{", *messages[name], "}"]
    return "\n".join(lines) + "\n"


def event_type_of(schema: Schema) -> type[Event]:
    """Return an event type for the first message of a ``.proto`` file."""
    return _python(_descriptor(schema, (0,)), ())


def reader_of(schema: Schema) -> Callable[[bytes], Values | bytes]:
    """Return a reader of payloads, which begin with the indexes of their message type, as schema registries require.

    Raises:
        EventSchemaError: the compiler refuses the schema.
    """
    _file(schema)

    def read(payload: bytes) -> Values:
        place, rest = _place(payload)
        message = message_factory.GetMessageClass(_descriptor(schema, place))()
        message.ParseFromString(rest)
        return _values(message)

    return read


def writer_of(schema: Schema) -> Callable[[Any], bytes]:
    """Return a writer of payloads of the file's first message, preceded by its index."""
    descriptor = _descriptor(schema, (0,))
    made, message_type = event_type_of(schema), message_factory.GetMessageClass(descriptor)

    def write(event: Any) -> bytes:
        fitted = convert(to_builtins(event), made)
        values = _shown(to_builtins(fitted, (timedelta, datetime)))
        try:
            message = json_format.ParseDict(values, message_type())
        except json_format.ParseError as error:
            raise ValueError(str(error)) from error
        return b"\0" + bytes(message.SerializeToString())

    return write


@lru_cache(maxsize=64)
def _file(schema: Schema) -> Any:
    """Compile a schema, and return the descriptor of its file.

    Raises:
        EventSchemaError: the compiler refuses the schema.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        for name, text in (*schema.parts, (FILE, schema.text)):
            if not (root / name).resolve().is_relative_to(root.resolve()):
                raise EventSchemaError(f"The Protobuf schema imports {name}, which is no relative path.")
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        made = root / "made"
        own = str(files(grpc_tools).joinpath("_proto"))
        _compile(root, [f"-I{own}", "--include_imports", f"--descriptor_set_out={made}", FILE], schema.text)
        together = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in together.file:
        pool.Add(file)
    return pool.FindFileByName(FILE)


def _compile(root: Path, arguments: list[str], text: str) -> None:
    """Run the compiler, in a process of its own, for it writes its errors to the process's standard error.

    Raises:
        EventSchemaError: it refuses the schema, of which ``text`` is shown.
        SourceError: it cannot be run, for which no schema is to blame.
    """
    command = [sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{root}", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    compiled = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if compiled.returncode:
        errors = [line for line in compiled.stderr.splitlines() if ".proto:" in line]
        if not errors:
            raise SourceError(f"The Protobuf compiler cannot be run: {compiled.stderr.strip()[-300:] or compiled.returncode}.")
        reason = "; ".join(errors).replace(f"{root}/", "")
        raise EventSchemaError(f"This is no Protobuf schema ({reason[:300]}): {text[:200]}")


def _descriptor(schema: Schema, place: tuple[int, ...]) -> Descriptor:
    """Return a message type by its indexes: first in the file, then within that message type, and so on."""
    file = _file(schema)
    messages = list(file.message_types_by_name.values())
    if not messages:
        raise EventSchemaError("The Protobuf schema has no message.")
    unknown = EventSchemaError(f"A payload names message type {'.'.join(map(str, place))!r}, which its schema does not have.")
    if not place:
        raise unknown
    for number in place:
        if not 0 <= number < len(messages):
            raise unknown
        descriptor: Descriptor = messages[number]
        messages = descriptor.nested_types
    return descriptor


def _place(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Split a payload into its message type's indexes, which their number precedes (0 is the first type), and the message."""
    count, at = _zigzag(payload, 0)
    if count == 0:
        return (0,), payload[at:]
    numbers = []
    for _ in range(count):
        number, at = _zigzag(payload, at)
        numbers.append(number)
    return tuple(numbers), payload[at:]


def _zigzag(payload: bytes, at: int) -> tuple[int, int]:
    """Read a zigzag-encoded integer of variable length at a position; return it, and the position behind it."""
    value = shift = 0
    while True:
        byte = payload[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _values(message: Any) -> Values:
    """Return the values of a message's fields; a field that records its presence is left out when absent, unless the schema
    gives it a default.
    """
    values: Values = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not field.has_default_value and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            values[field.name] = {key: _value(inner, value[key]) for key in value}
        elif field.is_repeated:
            values[field.name] = [_value(field, each) for each in value]
        else:
            values[field.name] = _value(field, value)
    return values


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
    """Return an event type for a message type; ``inside`` names the message types that it is nested in."""
    if descriptor.full_name in inside:
        raise EventSchemaError(f"Protobuf's message {descriptor.full_name} holds itself, which no event can.")
    within = (*inside, descriptor.full_name)
    return made_type(descriptor.name, [(field.name, *_typed(field, within)) for field in descriptor.fields])


def _typed(field: FieldDescriptor, inside: tuple[str, ...]) -> tuple[Any, Any]:
    """Return a field's annotation and default."""
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        if key.type != FieldDescriptor.TYPE_STRING:
            raise EventSchemaError(f"Protobuf's map {field.full_name} has keys that are not strings, as an event's dict needs.")
        return dict[str, _single(value, inside)[0]], {}  # type: ignore[misc]
    kind, default = _single(field, inside)
    if field.is_repeated:
        return list[kind], []  # type: ignore[valid-type]
    if field.is_required:
        return kind, msgspec.NODEFAULT
    if field.has_default_value:  # of proto2
        return kind, _value(field, field.default_value)
    return (kind | None, None) if field.has_presence else (kind, default)


def _single(field: FieldDescriptor, inside: tuple[str, ...]) -> tuple[Any, Any]:
    """Return the annotation and default of one value of a field, which may be repeated."""
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
    """Return values as Protobuf's JSON mapping represents them: without nulls, durations in seconds, NaN as text."""
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


def _message(event_type: type[Event], messages: dict[str, list[str]], kinds: dict[str, type], imports: set[str]) -> str:
    """Add the lines of an event type's message, and of the messages in it, to ``messages``; return its name."""
    name = event_type.__name__
    if not is_defined(event_type, kinds, _definition):
        messages[name] = []
        annotations = field_types(event_type, annotated=True)
        for number, info in enumerate(msgspec.structs.fields(event_type), 1):
            if optional(annotations[info.name]) and default_of(info) is not None:
                raise EventSchemaError(
                    f"Field {name}.{info.encode_name}: Protobuf leaves null out, and what is left out is read as the default: "
                    "make the default None, or let the field hold no None."
                )
            declared = _declared(annotations[info.name], f"{name}.{info.encode_name}", messages, kinds, imports)
            messages[name].append(f"  {declared} {info.encode_name} = {number};")
    return name


def _declared(annotation: Any, path: str, messages: dict[str, list[str]], kinds: dict[str, type], imports: set[str]) -> str:
    """Return the type of a field as declared in a ``.proto`` file, with ``repeated`` or ``optional`` where needed."""
    kind = plain(annotation)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, dict) and optional(annotation):
        raise EventSchemaError(f"Field {path}: Protobuf has no list or map that may be null; make it empty by default.")
    if origin is list:
        return f"repeated {_named(arguments[0], f'{path}[]', messages, kinds, imports)}"
    if origin is dict:
        return f"map<string, {_named(arguments[1], f'{path}{{}}', messages, kinds, imports)}>"
    named = _present(annotation, path, messages, kinds, imports)
    return f"optional {named}" if optional(annotation) else named


def _named(annotation: Any, path: str, messages: dict[str, list[str]], kinds: dict[str, type], imports: set[str]) -> str:
    """Return the Protobuf type of the values in a list or a map."""
    if typing.get_origin(plain(annotation)) in (list, dict) or optional(annotation):
        raise EventSchemaError(f"Field {path}: in a list or map, Protobuf has no list, map or null; put it into an event.")
    return _present(annotation, path, messages, kinds, imports)


def _present(annotation: Any, path: str, messages: dict[str, list[str]], kinds: dict[str, type], imports: set[str]) -> str:
    """Return the Protobuf type of an annotation's values other than None."""
    kind = plain(annotation)
    if isinstance(kind, type) and issubclass(kind, Event):
        return _message(kind, messages, kinds, imports)
    name = scalar_of(annotation).protobuf
    if name in IMPORTED:
        imports.add(IMPORTED[name])
    return name
