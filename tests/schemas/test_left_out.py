"""None that a schema leaves out is not read as another value: the field's default."""

import json
import re

import pytest

from penstock import Event
from penstock.errors import EventSchemaError
from penstock.runtime.codec import Codec
from penstock.schemas import Schema
from penstock.schemas.frame import Frame, divide


class Inner(Event):
    many: list[int] = []
    a: int | None = 5


class Outer(Event):
    k: int
    inner: Inner
    more: list[Inner] = []
    none: int | None = None


class Flat(Event):
    k: int
    a: int | None = 5


@pytest.mark.parametrize("event_type", [Flat, Outer])
def test_protobuf_has_no_null_beside_a_default(event_type):
    with pytest.raises(EventSchemaError, match=r"\.a: Protobuf leaves null out, and what is left out is read as the default"):
        Schema.of(event_type, "PROTOBUF")


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_others_have_it(kind):
    schema = Schema.of(Outer, kind)
    event = Outer(1, Inner([], None), [Inner([2], None)])
    message = Frame(1, schema).message(event)
    assert Codec(Outer).from_values(schema.reader()(divide(message)[1]), {}) == event


def of_others(properties):
    inner = {"type": "object", "title": "Inner", "properties": properties, "required": ["many"]}
    whole = {"k": {"type": "integer"}, "inner": inner, "more": {"type": "array", "items": inner}}
    outer = {"type": "object", "title": "Outer", "required": ["k", "inner", "more"], "properties": whole}
    return Schema("JSON", json.dumps(outer))


MANY = {"many": {"type": "array", "items": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("event", "path"),
    [(Outer(1, Inner([], None)), "inner.a"), (Outer(1, Inner(), [Inner(), Inner([2], None)]), "more[1].a")],
    ids=["in an event", "in a list of events"],
)
def test_a_schema_of_others_that_has_no_null(event, path):
    frame = Frame(1, of_others({**MANY, "a": {"type": "integer"}}), True)
    said = f"{re.escape(path)} is None, which the schema leaves out, and would become 5, its default"
    with pytest.raises(ValueError, match=said):
        frame.message(event)
    assert b'"a":3' in frame.message(Outer(1, Inner([], 3)))


def test_a_schema_of_others_that_has_null():
    frame = Frame(1, of_others({**MANY, "a": {"type": ["integer", "null"]}}), True)
    assert b'"a":null' in frame.message(Outer(1, Inner([], None)))
