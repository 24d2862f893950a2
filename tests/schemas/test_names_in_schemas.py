"""Types of one name in one schema, and what a schema leaves open."""

import ast
import json
from enum import Enum

import msgspec
import pytest

from penstock import Event
from penstock.errors import EventSchemaError
from penstock.schemas.schema import Schema
from penstock.schemas.source_code import source_code


def place_of(*fields, module=__name__):
    """An event type named Place, of its own each time."""
    return type("Place", (Event,), {"__annotations__": dict(fields), "__module__": module})


ONE, EQUAL, OTHER = (
    place_of(("city", str)),
    place_of(("city", str)),
    place_of(("street", str), ("number", int), module="elsewhere"),
)


def parcel_of(first, second):
    return type("Parcel", (Event,), {"__annotations__": {"at": first, "to": second}, "__module__": __name__})


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_two_types_of_one_name_are_refused_where_they_differ(kind):
    assert Schema.of(parcel_of(ONE, EQUAL), kind).text == Schema.of(parcel_of(ONE, ONE), kind).text
    with pytest.raises(EventSchemaError, match="Two types are named Place.*give one of them another name"):
        Schema.of(parcel_of(ONE, OTHER), kind)


def test_an_enum_and_an_event_of_one_name_are_refused_in_avro():
    colours = Enum("Place", {"RED": "red", "BLUE": "blue"}, type=str)
    with pytest.raises(EventSchemaError, match="Two types are named Place"):
        Schema.of(parcel_of(ONE, colours), "AVRO")


def test_in_json_schema_both_types_have_their_fields():
    whole = json.loads(Schema.of(parcel_of(ONE, OTHER), "JSON").text)
    assert sorted(sorted(part["properties"]) for part in whole["$defs"].values()) == [["city"], ["number", "street"]]
    with pytest.raises(EventSchemaError, match="Two types are named .*Place"):
        Schema.of(parcel_of(ONE, place_of(("street", str))), "JSON")
    twice = parcel_of(type("Parcel", (Event,), {"__annotations__": {"x": int}, "__module__": "other"}), ONE)
    assert set(json.loads(Schema.of(twice, "JSON").text)["properties"]) == {"at", "to"}


def test_the_source_of_types_of_one_name_has_a_class_for_each():
    nested = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
    other = {"type": "object", "required": ["street"], "properties": {"street": {"type": "string"}}}
    properties = {
        "at": {"type": "object", "required": ["place"], "properties": {"place": nested}},
        "to": {"type": "object", "required": ["place"], "properties": {"place": other}},
        "back": {"type": "object", "required": ["place", "parcel"], "properties": {"place": nested, "parcel": nested}},
    }
    schema = Schema(
        "JSON", json.dumps({"title": "Parcel", "type": "object", "required": [*properties], "properties": properties})
    )
    text = source_code(schema.event_type())
    classes = [node.name for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    assert classes == ["Place", "At", "Place2", "To", "Parcel2", "Back", "Parcel"]
    made = {}
    exec(text, made)
    inner = {"city": "a"}
    values = {"at": {"place": inner}, "to": {"place": {"street": "b"}}, "back": {"place": inner, "parcel": inner}}
    assert msgspec.to_builtins(msgspec.convert(values, made["Parcel"])) == values


@pytest.mark.parametrize("part", [True, False, [], "string", 3, None])
@pytest.mark.parametrize("where", ["top", "field", "items", "choice", "reference"])
def test_a_json_schema_that_says_nothing_of_a_type_is_refused_in_a_sentence(part, where):
    field = {
        "field": part,
        "items": {"type": "array", "items": part},
        "choice": {"anyOf": [part, {"type": "null"}]},
        "reference": {"$ref": "#/$defs/x"},
    }
    whole = part if where == "top" else {"type": "object", "properties": {"x": field[where]}, "$defs": {"x": part}}
    with pytest.raises(EventSchemaError, match="JSON Schema"):
        Schema("JSON", json.dumps(whole)).event_type()


def test_a_protobuf_schema_that_is_none_says_why():
    with pytest.raises(EventSchemaError, match=r'This is no Protobuf schema \(.*"Text" is not defined'):
        Schema("PROTOBUF", 'syntax = "proto3";\nmessage Made {\n  Text x = 1;\n}\n').event_type()


@pytest.mark.parametrize("place", [b"\x02\x02", b"\x02\x01", b"\x04\x00\x04"])
def test_a_payload_of_a_message_type_that_there_is_not_is_refused_in_a_sentence(place):
    schema = Schema("PROTOBUF", 'syntax = "proto3";\nmessage Made {\n  string x = 1;\n}\n')
    with pytest.raises(EventSchemaError, match="which its schema does not have"):
        schema.reader()(place)


TITLES = [
    "R(Event,n=__import__('os').system('false')):#",
    "x; import os",
    "1x",
    "",
    "None",
    "class",
    "Event",
    "datetime",
    "Literal",
    "int",
    "R-x",
    "two words",
]


@pytest.mark.parametrize("title", TITLES)
@pytest.mark.parametrize("where", ["title", "nested"])
def test_a_title_is_no_code(title, where):
    """A schema of others becomes source that is then run."""
    inner = {
        "type": "object",
        "title": title,
        "properties": {"a": {"type": "string"}, "at": {"type": "string", "format": "date-time"}},
    }
    whole = inner if where == "title" else {"type": "object", "title": "Whole", "properties": {title or "x": inner}}
    source = source_code(Schema("JSON", json.dumps(whole)).event_type())
    tree = ast.parse(source)
    assert all(isinstance(node, ast.ImportFrom | ast.ClassDef) for node in tree.body)
    made = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert all(isinstance(node, ast.AnnAssign) for each in made for node in each.body)
    assert all([ast.unparse(base) for base in each.bases] in (["Event"], ["Event_"]) for each in made)
    assert all({keyword.arg for keyword in each.keywords} <= {"rename"} for each in made)
    namespace: dict = {}
    exec(source, namespace)
    event = namespace[made[-1].name]
    assert msgspec.json.decode(b"{}", type=event) == event()


@pytest.mark.parametrize(
    "name", ["date", "time", "datetime", "timedelta", "int", "str", "float", "bool", "list", "dict", "Literal", "Row"]
)
def test_a_field_that_is_called_as_a_type_hides_none(name):
    """Within a class the name of a field hides that of a type, also in what follows."""
    kinds = {
        name: {"type": "string", "format": "date"},
        "at": {"type": "string", "format": "date-time", "default": "2026-01-31T12:00:00+00:00"},
        "day": {"type": "string", "format": "date", "default": "2026-01-31"},
        "lasts": {"type": "string", "format": "duration"},
        "clock": {"type": "string", "format": "time"},
        "number": {"type": "integer", "default": 5},
        "ratio": {"type": "number"},
        "flag": {"type": "boolean"},
        "texts": {"type": "array", "items": {"type": "string"}},
        "table": {"type": "object", "additionalProperties": {"type": "integer"}},
        "choice": {"enum": ["a", "b"]},
    }
    made = Schema("JSON", json.dumps({"type": "object", "title": "Row", "properties": kinds})).event_type()
    namespace: dict = {}
    source = source_code(made)
    exec(source, namespace)
    event = next(
        kind for kind in namespace.values() if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
    )
    assert msgspec.to_builtins(event()) == msgspec.to_builtins(made())
    full = {**dict.fromkeys(kinds), name: "2026-01-31", "number": 7, "table": {"a": 1}, "choice": "b", "texts": ["x"]}
    full |= {"at": "2026-01-31T12:00:00Z", "day": "2026-02-01"}
    body = json.dumps(full).encode()
    assert msgspec.to_builtins(msgspec.json.decode(body, type=event)) == msgspec.to_builtins(
        msgspec.json.decode(body, type=made)
    )


def test_a_class_and_a_type_of_one_name_are_two():
    nested = {"type": "record", "name": "date", "fields": [{"name": "a", "type": "int"}]}
    fields = [
        {"name": "date", "type": {"type": "int", "logicalType": "date"}},
        {"name": "str", "type": "string"},
        {"name": "n", "type": nested},
        {"name": "Order", "type": "int"},
        {"name": "more", "type": {"type": "record", "name": "Event", "fields": [{"name": "x", "type": "string"}]}},
    ]
    made = Schema("AVRO", json.dumps({"type": "record", "name": "Order", "fields": fields})).event_type()
    namespace: dict = {}
    exec(source_code(made), namespace)
    event = namespace["Order"]
    body = b'{"date": "2026-01-31", "str": "s", "n": {"a": 1}, "Order": 2, "more": {"x": "y"}}'
    assert msgspec.to_builtins(msgspec.json.decode(body, type=event)) == msgspec.to_builtins(
        msgspec.json.decode(body, type=made)
    )
