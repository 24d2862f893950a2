"""Schemas made from event types, and event types made from schemas: what is written by one is read by the other."""

import io
import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from time import tzset
from typing import Annotated, Any, Literal
from uuid import UUID, uuid4

import fastavro
import jsonschema
import msgspec
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Event
from penstock.errors import EventSchemaError
from penstock.schemas import Leniency, Schema, misfits, source_code

KINDS = ["AVRO", "PROTOBUF", "JSON"]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Item(Event):
    name: str
    weight: float = 1.5
    tags: list[str] = []


Local = Annotated[datetime, msgspec.Meta(tz=False)]


class Order(Event):
    number: int
    paid: bool
    price: float
    customer: str
    raw: bytes
    at: datetime
    local: Local
    locals: list[Local]
    day: date
    hour: time
    took: timedelta
    sum: Decimal
    id: UUID
    colour: Colour
    size: Literal["s", "m"]
    main: Item
    items: list[Item]
    stock: dict[str, int]
    level: Annotated[int, msgspec.Meta(ge=0)] = 3
    until: Local | None = None
    note: str | None = None
    gift: Item | None = None


texts = st.text(st.characters(codec="utf-8"), max_size=8)
items = st.builds(Item, name=texts, weight=st.floats(allow_nan=False, allow_infinity=False), tags=st.lists(texts, max_size=3))
locals_ = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))
orders = st.builds(
    Order,
    number=st.integers(-(2**63), 2**63 - 1),
    paid=st.booleans(),
    price=st.floats(allow_nan=False, allow_infinity=False),
    customer=texts,
    raw=st.binary(max_size=9),
    at=st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    local=locals_,
    locals=st.lists(locals_, max_size=2),
    until=st.none() | locals_,
    day=st.dates(),
    hour=st.times(),
    took=st.timedeltas(timedelta(days=-400), timedelta(days=400)),
    sum=st.decimals(allow_nan=False, allow_infinity=False),
    id=st.builds(uuid4),
    colour=st.sampled_from(Colour),
    size=st.sampled_from(["s", "m"]),
    main=items,
    items=st.lists(items, max_size=2),
    stock=st.dictionaries(texts, st.integers(-(2**63), 2**63 - 1), max_size=3),
    level=st.integers(0, 5),
    note=st.none() | texts,
    gift=st.none() | items,
)


def read(schema: Schema, payload: bytes, event_type: type[Event]) -> Any:
    values = schema.reader()(payload)
    if isinstance(values, bytes):
        return msgspec.json.decode(values, type=event_type)
    return msgspec.convert(values, event_type)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_by_an_event_types_own_schema_is_read_again(kind):
    schema = Schema.of(Order, kind)
    write = schema.writer()

    @settings(max_examples=50, deadline=None)
    @given(orders)
    def check(order):
        assert read(schema, write(order), Order) == order

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_a_type_made_from_a_schema_fits_the_type_that_the_schema_was_made_from(kind):
    schema = Schema.of(Order, kind)
    made = schema.event_type()
    assert list(misfits(made, Order, Leniency(absences=kind == "PROTOBUF"))) == []
    assert list(misfits(Order, made, Leniency(texts=True))) == []
    namespace: dict[str, Any] = {}
    exec(source_code(made), namespace)
    again = namespace["Order"]
    assert list(misfits(again, made)) == list(misfits(made, again)) == []


@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_a_time_without_a_zone_is_of_utc_on_any_machine(kind, monkeypatch):
    class Moment(Event):
        at: datetime

    schema = Schema.of(Moment, kind)
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "America/New_York")
        tzset()
        payload = schema.writer()(Moment(datetime(2026, 11, 25, 12)))
    tzset()
    assert read(schema, payload, Moment) == Moment(datetime(2026, 11, 25, 12, tzinfo=UTC))


def test_avro_is_what_others_read_and_write():
    schema = Schema.of(Item, "AVRO")
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, json.loads(schema.text), {"name": "a", "weight": 2.0, "tags": ["x"]})
    assert schema.writer()(Item("a", 2.0, ["x"])) == stream.getvalue()
    assert read(schema, stream.getvalue(), Item) == Item("a", 2.0, ["x"])
    with pytest.raises(ValueError, match="left behind"):
        read(schema, stream.getvalue() + b"x", Item)


COMPANY = {
    "type": "record",
    "name": "Payment",
    "namespace": "com.example",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["CARD", "CASH"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "other", "type": ["null", "com.example.Kind"], "default": None},
        {"name": "class", "type": "int", "default": 3},
        {"name": "counts", "type": {"type": "map", "values": "long"}, "default": {}},
    ],
}


class Payment(Event):
    id: UUID
    amount: Decimal
    at: datetime
    kind: str
    hash: bytes


def test_a_companys_avro_schema_is_read_written_and_made_python():
    schema = Schema("AVRO", json.dumps(COMPANY))
    payment = Payment(UUID(int=5), Decimal("12.34"), datetime(2026, 1, 1, 12, 0, 0, 5000, tzinfo=UTC), "CARD", b"abcd")
    assert (
        list(misfits(schema.event_type(), Payment)) == list(misfits(Payment, schema.event_type(), Leniency(texts=True))) == []
    )
    payload = schema.writer()(payment)
    stream = io.BytesIO(payload)
    values = fastavro.schemaless_reader(stream, json.loads(schema.text), None)
    assert (values["amount"], values["class"], values["counts"]) == (Decimal("12.34"), 3, {})
    assert read(schema, payload, Payment) == payment
    code = source_code(schema.event_type())
    assert "class_: int = 3" in code
    assert "kind: Literal['CARD', 'CASH']" in code
    with pytest.raises(msgspec.ValidationError):
        schema.writer()(msgspec.structs.replace(payment, kind="GOLD"))


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Sale {
  enum Kind { CARD = 0; CASH = 1; }
  message Line { string item = 1; uint32 pieces = 2; }
  string shop = 1;
  Kind kind = 2;
  repeated Line lines = 3;
  google.protobuf.Timestamp at = 4;
  google.protobuf.StringValue note = 5;
  map<string, double> prices = 6;
  oneof how { string voucher = 7; int32 points = 8; }
  optional bytes seal = 9;
}
message Other { int64 n = 1; }
"""


class Line(Event):
    item: str
    pieces: int


class Sale(Event):
    shop: str
    kind: str
    lines: list[Line]
    at: datetime | None
    note: str | None = None
    prices: dict[str, float] = {}
    voucher: str | None = None
    points: int | None = None
    seal: bytes | None = None


def test_protobuf_is_what_google_reads_and_writes():
    from penstock.schemas.protobuf import _descriptor, message_factory

    schema = Schema("PROTOBUF", PROTO)
    sale = Sale("a", "CASH", [Line("x", 3)], datetime(2026, 1, 1, tzinfo=UTC), "hm", {"x": 1.5}, points=4, seal=b"\0\xff")
    assert list(misfits(schema.event_type(), Sale)) == []
    payload = schema.writer()(sale)
    message = message_factory.GetMessageClass(_descriptor(schema, (0,)))()
    message.ParseFromString(payload[1:])
    assert json_format.MessageToDict(message) == {
        "shop": "a",
        "kind": "CASH",
        "lines": [{"item": "x", "pieces": 3}],
        "at": "2026-01-01T00:00:00Z",
        "note": "hm",
        "prices": {"x": 1.5},
        "points": 4,
        "seal": "AP8=",
    }
    assert read(schema, payload, Sale) == sale
    assert schema.reader()(b"\x02\x02" + bytes([8, 7])) == {"n": 7}  # the second message of the file
    assert schema.reader()(b"\x04\x00\x00" + b"\x0a\x01i")["item"] == "i"  # the first one's first


def test_protobuf_follows_imports():
    schema = Schema(
        "PROTOBUF",
        'syntax = "proto3"; import "common/money.proto"; message Bill { common.Money due = 1; }',
        (("common/money.proto", 'syntax = "proto3"; package common; message Money { int64 cents = 1; }'),),
    )
    assert schema.reader()(b"\0" + bytes([10, 2, 8, 5])) == {"due": {"cents": 5}}


def test_json_schema_is_what_others_check_by():
    schema = Schema.of(Order, "JSON")

    @settings(max_examples=50, deadline=None)
    @given(orders)
    def check(order):
        jsonschema.validate(json.loads(schema.writer()(order)), json.loads(schema.text))

    check()


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("AVRO", "{", "no Avro schema"),
        ("AVRO", '"string"', "no record"),
        ("AVRO", '{"type":"record","name":"A","fields":[{"name":"x","type":["int","string"]}]}', "several types"),
        ("AVRO", '{"type":"record","name":"A","fields":[{"name":"x","type":["null","A"]}]}', "holds itself"),
        ("PROTOBUF", "message", "no Protobuf schema"),
        ("PROTOBUF", 'syntax = "proto3";', "no message"),
        ("PROTOBUF", 'syntax = "proto3"; message A { A a = 1; }', "holds itself"),
        ("PROTOBUF", 'syntax = "proto3"; message A { map<int32, string> m = 1; }', "not strings"),
        ("JSON", "{", "no JSON Schema"),
        ("JSON", '{"type": "string"}', "no object"),
        ("JSON", '{"type":"object","properties":{"x":{}}}', "no counterpart"),
        ("JSON", '{"type":"object","properties":{"x":{"$ref":"#/nowhere"}}}', "not to be found"),
    ],
)
def test_what_cannot_be_an_event_is_refused_in_a_sentence(kind, text, words):
    with pytest.raises(EventSchemaError, match=words):
        Schema(kind, text).event_type()


def test_what_does_not_fit_is_said():
    class Given(Event):
        a: str
        b: int | None
        c: float
        d: list[str]

    class Wanted(Event):
        a: int
        b: int
        c: float
        d: list[int]
        e: str
        f: str = "x"

    assert list(misfits(Given, Wanted)) == [
        "has str in a, which is int",
        "allows null in b",
        "has str in d[], which is int",
        "has no field e",
    ]
