"""Defaults in schemas: events have them, each its own, and the source that is written of a type can be run."""

import json
import math

import pytest

from penstock.kinds.event import Event
from penstock.schemas.schema import Schema
from penstock.schemas.source_code import source_code


def avro(*fields):
    return "AVRO", json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


def schema_of(**properties):
    return "JSON", json.dumps({"title": "Order", "type": "object", "properties": properties})


IDENTIFIED = {"name": "id", "type": "int"}
WITHIN = {
    "type": "object",
    "properties": {"d": {"type": "string", "format": "date"}, "l": {"type": "array", "items": {"type": "integer"}}},
}
SCHEMAS = {
    "array": avro(IDENTIFIED, {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["new"]}),
    "map": avro({"name": "m", "type": {"type": "map", "values": "int"}, "default": {"a": 1}}),
    "empty": avro({"name": "l", "type": {"type": "array", "items": "int"}, "default": []}),
    "no fields": avro(),
    "no properties": schema_of(),
    "no members": ("PROTOBUF", 'syntax = "proto3";\nmessage Ping {}\n'),
    "list": schema_of(l={"type": "array", "items": {"type": "integer"}, "default": [1]}),
    "infinite": ("JSON", '{"title": "Order", "type": "object", "properties": {"x": {"type": "number", "default": Infinity}}}'),
    "not a number": avro({"name": "x", "type": "double", "default": "NaN"}),
    "event": schema_of(r={**WITHIN, "default": {"d": "2026-01-01"}}),
    "event with a list": schema_of(r={**WITHIN, "default": {"d": "2026-01-01", "l": [1, 2]}}),
    "time": schema_of(t={"type": "string", "format": "date-time", "default": "2026-01-01T00:00:00Z"}),
    "uuid": schema_of(u={"type": "string", "format": "uuid", "default": "12345678-1234-5678-1234-567812345678"}),
}


def whole(kind):
    """An event with all defaults, and 1 for what has none."""
    needed = {"id": 1} if "id" in kind.__struct_fields__ else {}
    return kind(**needed)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_source_of_a_type_can_be_run_and_has_its_defaults(name):
    kind = Schema(*SCHEMAS[name]).event_type()
    namespace = {}
    exec(source_code(kind), namespace)
    written = namespace[kind.__name__]
    assert issubclass(written, Event)
    assert repr(whole(written)) == repr(whole(kind))


def test_a_default_that_can_be_changed_is_each_events_own():
    for name, field, held in (("array", "tags", ["new"]), ("map", "m", {"a": 1}), ("list", "l", [1])):
        kind = Schema(*SCHEMAS[name]).event_type()
        getattr(whole(kind), field).clear()
        assert getattr(whole(kind), field) == held
    kind = Schema(*SCHEMAS["event with a list"]).event_type()
    whole(kind).r.l.clear()
    assert whole(kind).r.l == [1, 2]


def test_numbers_that_json_lacks_are_defaults():
    assert whole(Schema(*SCHEMAS["infinite"]).event_type()).x == math.inf
    assert math.isnan(whole(Schema(*SCHEMAS["not a number"]).event_type()).x)


PROTO2 = """syntax = "proto2";
enum Colour { RED = 0; BLUE = 1; }
message P {
    optional int32 retries = 1 [default = 5];
    optional string mode = 2 [default = "fast"];
    optional Colour colour = 3 [default = BLUE];
    optional double least = 4 [default = -inf];
    optional int32 none = 5;
}
"""


def test_absent_fields_of_protobuf_have_their_defaults():
    schema = Schema("PROTOBUF", PROTO2)
    kind = schema.event_type()
    expected = {"retries": 5, "mode": "fast", "colour": "BLUE", "least": -math.inf}
    given = schema.reader()(b"\0")
    assert given == expected
    made = kind()
    assert {name: getattr(made, name) for name in expected} == expected
    assert made.none is None
