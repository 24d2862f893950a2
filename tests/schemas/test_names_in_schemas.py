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
