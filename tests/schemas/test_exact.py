"""Schemas that others have made: an event comes out with its values, but for the rounding that the schema asks for, or not."""

import json
import math
import subprocess
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from time import monotonic
from uuid import UUID, uuid4

import jsonschema
import msgspec
import pytest

from penstock import Event
from penstock.errors import EventSchemaError, SourceError
from penstock.runtime.codec import Codec
from penstock.schemas import Schema, misfits
from penstock.schemas.exact import exact_writer

AT = datetime(2026, 1, 1, 5, 30, 0, 123456, tzinfo=UTC)
EAST = timezone(timedelta(hours=5, minutes=30))


def avro(kind, logical=None):
    return Schema(
        "AVRO",
        json.dumps(
            {
                "type": "record",
                "name": "Row",
                "fields": [{"name": "v", "type": {"type": kind, "logicalType": logical} if logical else kind}],
            }
        ),
    )


def protobuf(kind):
    return Schema("PROTOBUF", f'syntax = "proto3"; message Row {{ {kind} v = 1; }}')


def event(value):
    return type("Row", (Event,), {"__annotations__": {"v": type(value)}})(value)


KEPT = [
    (avro("float"), 0.5),
    (avro("float"), 0.1),
    (avro("float"), math.inf),
    (avro("float"), math.nan),
    (avro("double"), 1e300),
    (avro("double"), 2**53),
    (avro("long", "timestamp-millis"), AT),
    (avro("long", "timestamp-micros"), AT.astimezone(EAST)),
    (avro("long", "local-timestamp-micros"), AT),
    (avro("int", "time-millis"), time(5, 30, 0, 123456)),
    (avro("long"), 2**53 + 1),
    (protobuf("float"), 0.1),
    (protobuf("double"), 2**53),
]
CHANGED = [
    (avro("float"), 1e300),
    (avro("double"), 2**53 + 1),
    (avro("long", "local-timestamp-micros"), AT.astimezone(EAST)),
    (protobuf("float"), 1e300),
    (protobuf("double"), 2**53 + 1),
]


@pytest.mark.parametrize(("schema", "value"), KEPT, ids=str)
def test_a_value_is_written_as_the_schema_rounds_it(schema, value):
    payload = exact_writer(schema)(event(value))
    read = schema.reader()(payload)["v"]
    near = isinstance(value, float) and math.isclose(read, value, rel_tol=1e-7)
    assert near or read == value or value != value or abs_ms(read, value) < 1


def abs_ms(one, other):
    if isinstance(one, time):
        one, other = (datetime.combine(AT.date(), each) for each in (one, other))
    return abs((one if one.tzinfo else one.replace(tzinfo=other.tzinfo)) - other) / timedelta(milliseconds=1)


@pytest.mark.parametrize(("schema", "value"), CHANGED, ids=str)
def test_a_value_that_would_become_another_is_refused(schema, value):
    with pytest.raises(ValueError, match=r"would become|large|range|Value out"):
        exact_writer(schema)(event(value))


def test_a_value_within_a_list_is_named():
    rows = {"type": "array", "items": {"type": "record", "name": "Part", "fields": [{"name": "n", "type": "double"}]}}
    schema = Schema("AVRO", json.dumps({"type": "record", "name": "Row", "fields": [{"name": "parts", "type": rows}]}))
    part = type("Part", (Event,), {"__annotations__": {"n": int}})
    whole = type("Row", (Event,), {"__annotations__": {"parts": list[part]}})
    with pytest.raises(
        ValueError, match=r"parts\[1\]\.n is 9007199254740993, and would become 9007199254740992\.0 by the schema"
    ):
        exact_writer(schema)(whole([part(1), part(2**53 + 1)]))


@pytest.mark.parametrize(
    "names",
    [["user-id", "k"], ["a b", "a_b"], ["", "x"], ["__init__"], ["class", "class_"], ["1x"], ["ü"], ["__slots__", "_x"]],
)
def test_fields_may_have_names_that_python_does_not_take(names):
    schema = Schema("JSON", json.dumps({"type": "object", "properties": {name: {"type": "integer"} for name in names}}))
    made = schema.event_type()
    assert set(made.__struct_encode_fields__) == set(names)
    assert len(set(made.__struct_fields__)) == len(names)


@pytest.mark.parametrize(
    "text",
    [
        {"properties": None},
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": 5},
        {"type": "object", "properties": {"a": {"anyOf": None}}},
        {"type": "object", "properties": {"a": {"$ref": 5}}},
        {"type": "object", "properties": {"a": {"type": {}}}},
        {"type": "object", "properties": {"a": 5}},
        {"type": "object", "properties": []},
    ],
    ids=json.dumps,
)
def test_a_schema_that_is_none_is_refused_in_a_sentence(text):
    with pytest.raises(EventSchemaError, match="schema|Schema"):
        Schema("JSON", json.dumps(text)).event_type()


def test_a_default_of_another_type_is_none():
    described = {
        "type": "object",
        "properties": {"a": {"type": "integer", "default": "x"}, "b": {"type": "integer", "default": 5}},
    }
    made = Schema("JSON", json.dumps(described)).event_type()()
    assert (made.a, made.b) == (None, 5)
    field = {"name": "v", "type": "bytes", "default": "\u20ac"}
    schema = Schema("AVRO", json.dumps({"type": "record", "name": "Row", "fields": [field]}))
    with pytest.raises(TypeError, match="required argument 'v'"):
        schema.event_type()()


def json_schema(**properties):
    return Schema("JSON", json.dumps({"title": "Row", "type": "object", "properties": properties}))


def test_a_whole_number_that_json_schema_makes_a_float_is_kept_or_refused():
    write = exact_writer(json_schema(v={"type": "number"}))
    assert json.loads(write(event(2**53))) == {"v": 2**53}
    with pytest.raises(ValueError, match="v is 9007199254740993, and would become 9007199254740992.0 by the schema"):
        write(event(2**53 + 1))


class Perhaps(Event):
    v: int | None
    w: str | None = None


NUMBER, TEXT, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}
MISSING = [
    (json_schema(v=NUMBER, w=TEXT, x=TEXT), {}),
    (json_schema(v={"anyOf": [NUMBER, NULL]}, w=TEXT), {"v": None}),
    (json_schema(v={"type": ["integer", "null"]}), {"v": None}),
]


@pytest.mark.parametrize(("schema", "written"), MISSING)
def test_what_is_missing_is_null_only_where_the_schema_has_null(schema, written):
    message = exact_writer(schema)(Perhaps(None))
    assert json.loads(message) == written
    jsonschema.validate(json.loads(message), json.loads(schema.text))
    assert Codec(Perhaps).from_values(message, {}) == Perhaps(None)


def test_nulls_within_lists_and_objects_are_left_out_too():
    inner = {"type": "object", "properties": {"v": NUMBER}, "title": "Inner"}
    schema = json_schema(one=inner, several={"type": "array", "items": inner})

    class Whole(Event):
        one: Perhaps
        several: list[Perhaps]

    assert json.loads(schema.writer()(Whole(Perhaps(None), [Perhaps(1), Perhaps(None)]))) == {
        "one": {},
        "several": [{"v": 1}, {}],
    }


def test_what_may_be_absent_and_is_never_null_fits_a_field_with_a_default():
    class Given(Event):
        v: int = 5

    class Required(Event):
        v: int

    absent, null = json_schema(v=NUMBER).event_type(), json_schema(v={"anyOf": [NUMBER, NULL]}).event_type()
    assert list(misfits(absent, Given)) == []
    assert list(misfits(absent, Required)) == list(misfits(null, Given)) == ["allows null in v"]


def test_json_is_written_of_dicts_as_of_events():
    schema = Schema.of(Perhaps, "JSON")
    assert json.loads(schema.writer()({"v": 1, "w": None})) == json.loads(schema.writer()(Perhaps(1))) == {"v": 1, "w": None}


@pytest.mark.parametrize("number", [math.nan, math.inf])
@pytest.mark.parametrize("made", [lambda values: values, lambda values: event(values["v"])])
def test_numbers_that_json_lacks_are_refused(number, made):
    with pytest.raises(ValueError, match="Field v is or holds"):
        Schema.of(type(event(1.0)), "JSON").writer()(made({"v": number}))


class Inner(Event):
    x: int | None
    y: str


class Outer(Event):
    inner: Inner
    many: list[Inner] = []
    named: dict[str, Inner] = {}
    perhaps: Inner | None = None


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF", "JSON"])
def test_what_may_be_missing_may_be_missing_at_any_depth(kind):
    outer = Outer(Inner(None, "a"), [Inner(1, "b"), Inner(None, "c")], {"d": Inner(None, "d")}, Inner(None, "e"))
    schema = Schema.of(Outer, kind)
    assert Codec(Outer).from_values(schema.reader()(schema.writer()(outer)), {}) == outer


@pytest.mark.parametrize("name", ["../escaped.proto", "/tmp/escaped.proto"])
def test_a_protobuf_schema_imports_relative_paths_only(name, tmp_path):
    with pytest.raises(EventSchemaError, match=f"imports {name}, which is no relative path"):
        Schema("PROTOBUF", 'syntax = "proto3"; message Row { int32 v = 1; }', ((name, "pwned"),)).reader()


def test_a_compiler_that_does_not_run_is_no_fault_of_a_schema(monkeypatch):
    killed = subprocess.CompletedProcess([], -9, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *command, **options: killed)
    with pytest.raises(SourceError, match="The Protobuf compiler cannot be run: -9"):
        Schema("PROTOBUF", 'syntax = "proto3"; message Killed { int32 v = 1; }').reader()


DEFAULTS = [
    ({"type": "long", "logicalType": "timestamp-millis"}, 5_000, datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
    ({"type": "long", "logicalType": "timestamp-micros"}, 5_000, datetime(1970, 1, 1, 0, 0, 0, 5_000, tzinfo=UTC)),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, 5_000, datetime(1970, 1, 1, 0, 0, 5)),
    ({"type": "int", "logicalType": "date"}, 31, date(1970, 2, 1)),
    ({"type": "int", "logicalType": "time-millis"}, 61_000, time(0, 1, 1)),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "1", Decimal("0.49")),
    ({"type": "string", "logicalType": "uuid"}, "00000000-0000-0000-0000-000000000001", UUID(int=1)),
    ("bytes", "\u00ff", b"\xff"),
    ({"type": "fixed", "name": "Two", "size": 2}, "ab", b"ab"),
    ("double", 1, 1.0),
    (["null", "long"], None, None),
    ({"type": "array", "items": "long"}, [], []),
]


@pytest.mark.parametrize(("kind", "default", "value"), DEFAULTS, ids=lambda part: json.dumps(part, default=str))
def test_an_avro_default_is_of_the_type_that_it_is_stored_as(kind, default, value):
    made = avro_record({"name": "n", "type": "long"}, {"name": "v", "type": kind, "default": default}).event_type()(1)
    assert made.v == value
    assert type(made.v) is type(value)


def avro_record(*fields):
    return Schema("AVRO", json.dumps({"type": "record", "name": "Row", "fields": list(fields)}))


def test_what_a_factory_makes_anew_is_no_default_of_a_schema():
    class Made(Event):
        id: str = msgspec.field(default_factory=lambda: uuid4().hex)
        at: float = msgspec.field(default_factory=monotonic)
        tags: list[str] = []
        level: int = 3

    assert Schema.of(Made, "AVRO") == Schema.of(Made, "AVRO")
    fields = {field["name"]: field for field in json.loads(Schema.of(Made, "AVRO").text)["fields"]}
    assert {name: field.get("default") for name, field in fields.items()} == {"id": None, "at": None, "tags": [], "level": 3}
