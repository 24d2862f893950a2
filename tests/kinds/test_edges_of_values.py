"""Values at the edges of their kinds: each comes out of every door as it went in, or the event is refused."""

import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Literal
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from penstock import Event
from penstock.app.stream import Sink, Source, Stream
from penstock.connectors.declaration import SourceContext
from penstock.connectors.registry import bind_sinks, bind_source
from penstock.connectors.tables.rules import LONGEST_US
from penstock.errors import EventSchemaError, RunFailedError, SourceError
from penstock.kinds.event import check_event_type
from penstock.runtime.codec import Codec
from penstock.testing.contracts import stage

HALF = timezone(timedelta(seconds=30))
BERLIN = ZoneInfo("Europe/Berlin")


def event_of(**fields):
    return type("Row", (Event,), {"__annotations__": fields})


# --- offsets from UTC with seconds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [datetime, list[datetime], datetime | None], ids=str)
@pytest.mark.parametrize("zone", [UTC, HALF, BERLIN, timezone(timedelta(hours=5, minutes=30))], ids=str)
@pytest.mark.parametrize("year", [1890, 2026])
def test_a_time_is_the_same_instant_in_json(kind, zone, year):
    moment = datetime(year, 1, 1, tzinfo=zone)
    codec = Codec(event_of(at=kind))
    value = [moment] if kind == list[datetime] else moment
    checked = codec.checked(codec.event_type(value))
    assert codec.decode_json(codec.encode_json(checked)).at == value


def test_a_time_of_day_is_the_same_or_refused():
    codec = Codec(event_of(at=time, n=int))
    with pytest.raises(msgspec.ValidationError, match="offset from UTC is whole minutes"):
        codec.checked(codec.event_type(time(1, tzinfo=HALF), 1))
    with pytest.raises(msgspec.ValidationError, match="offset from UTC is whole minutes"):  # it is known with a date only
        codec.checked(codec.event_type(time(1, tzinfo=ZoneInfo("Europe/Zurich")), 1))
    for fine in (time(1), time(1, tzinfo=UTC), time(1, tzinfo=timezone(timedelta(hours=5, minutes=30)))):
        assert codec.checked(codec.event_type(fine, 1)).at == fine


# --- a choice that is called null -----------------------------------------------------------------------------------


class Colour(Enum):
    NONE = "null"
    RED = "red"


Within = event_of(colour=Colour | None)
NULLS = {
    Literal["null", "x"] | None: "null",
    Literal["NULL"] | None: "NULL",
    Colour | None: Colour.NONE,
    list[Colour | None]: [Colour.NONE, None],
    dict[str, Colour | None]: {"a": Colour.NONE, "b": None},
    Within: Within(Colour.NONE),
    bytes | None: b"\x9e\xe9e",  # null in Base64
    str | None: "null",
}


@pytest.mark.parametrize("kind", NULLS, ids=str)
def test_a_text_called_null_is_not_none(kind):
    codec = Codec(event_of(n=int, value=kind))
    event = codec.event_type(1, NULLS[kind])
    assert codec.from_columns(codec.to_columns([event])) == [event]
    text = codec.encode_json(event)
    value = msgspec.json.decode(text)["value"]
    shown = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    assert codec.from_text({"n": "1", "value": shown}) == event
    if not isinstance(NULLS[kind], bytes):  # which stand beside a message as they are
        assert codec.from_message(b'{"n": 1}', {"value": shown.encode()}) == event


def test_other_texts_called_null_are_none():
    codec = Codec(event_of(n=int | None, at=datetime | None))
    assert codec.from_text({"n": "null", "at": "null"}) == codec.event_type(None, None)


# --- infinity and NaN from sources that are read as JSON -------------------------------------------------------------

Inner = event_of(x=float | None)
INFINITE = {
    "alone": (float | None, math.inf),
    "in a list": (list[float | None], [math.inf]),
    "in a dict": (dict[str, float | None], {"a": -math.inf}),
    "in an event": (Inner, {"x": math.nan}),
}


@pytest.mark.parametrize("case", INFINITE)
def test_infinity_in_a_delta_table_is_a_dead_letter(case, tmp_path):
    kind, value = INFINITE[case]
    codec = Codec(event_of(n=int, value=kind))
    rows = [{"n": 1, "value": value}, {"n": 2, "value": value if not isinstance(value, dict) else None}]
    rows[1]["value"] = {"in a list": [1.0], "in a dict": {"a": 1.0}, "in an event": {"x": 1.0}}.get(case, 1.0)
    write_deltalake(str(tmp_path / "t"), pa.Table.from_pylist(rows, codec.schema))
    source = bind_source(Source("S", codec.event_type), f"delta:{tmp_path / 't'}", SourceContext())
    bad, good = source.sequence.read(0, source.sequence.end(0.0), 0.0).payloads
    assert codec.decode_json(good).n == 2
    with pytest.raises(msgspec.DecodeError):
        codec.decode_json(bad)
    assert b"it is infinite" in bad or b"it holds NaN or infinity" in bad


@pytest.mark.parametrize("case", INFINITE)
def test_infinity_in_a_replayed_file_is_refused(case, tmp_path):
    kind, value = INFINITE[case]
    codec = Codec(event_of(at=float, value=kind))
    pq.write_table(pa.Table.from_pylist([{"at": 0.0, "value": value}], codec.schema), tmp_path / "f.parquet")
    with pytest.raises(SourceError, match="column value of .* cannot be an event: it (is infinite|holds NaN or infinity)"):
        bind_source(Source("S", codec.event_type), f"replay:{tmp_path}/f.parquet?time=at", SourceContext())


@pytest.mark.parametrize("bad", [math.inf, "text", [1]], ids=str)
def test_a_sample_that_does_not_fit_is_a_dead_letter(bad):
    kind = event_of(n=int, x=float | None)
    source = Source("S", kind, uri="generator:constant?rate=10&count=3", sample=lambda n: kind(n, bad if n == 1 else 1.0))
    bound = bind_source(source, None, SourceContext())
    payloads = bound.sequence.read(0, 3, 0.0).payloads
    assert [Codec(kind).decode_json(payloads[n]).n for n in (0, 2)] == [0, 2]
    assert payloads[1].startswith(b"sample(1) does not fit")


# --- durations in tables ---------------------------------------------------------------------------------------------


def place(door, directory):
    if door == "iceberg":
        catalog = f"catalog.type=sql&catalog.uri=sqlite:///{directory}/c.db&catalog.warehouse=file://{directory}"
        return f"iceberg:local/things.out?{catalog}"
    return {"sqlite": f"sqlite:{directory}/out.sqlite", "delta": f"delta:{directory}/table"}[door]


def claimed(door, kind, directory, key=()):
    sink = bind_sinks([Sink("Out", Stream("S", kind), place(door, directory), key)], {}, directory / "output")["Out"]
    sink.inspect("run", ())
    sink.claim("run", ())
    return sink


@pytest.mark.parametrize("door", ["sqlite", "delta", "iceberg"])
def test_a_duration_is_exact_or_refused(door, tmp_path):
    kind = event_of(n=int, lasts=timedelta)
    sink = claimed(door, kind, tmp_path)
    fine = [timedelta(microseconds=sign * (LONGEST_US - 1 - below)) for sign in (1, -1) for below in (0, 1, 999_999)]
    events = [kind(n, lasts) for n, lasts in enumerate(fine)]
    sink.deliver("main", 0, stage(sink, events))
    assert sorted(sink.read(), key=lambda event: event.n) == events
    for lasts in (timedelta(microseconds=LONGEST_US), timedelta(days=-150_000)):
        with pytest.raises(RunFailedError, match="Field lasts is a duration of 272 years or more"):
            stage(sink, [kind(0, lasts)])


# --- nested keys of SQLite -------------------------------------------------------------------------------------------

Key = event_of(a=float, when=datetime)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EQUAL = [
    (dict[str, int], {"a": 1, "b": 2}, {"b": 2, "a": 1}),
    (list[Decimal], [Decimal("1.10")], [Decimal("1.1")]),
    (list[float], [0.0], [-0.0]),
    (list[datetime], [NOON], [NOON.astimezone(timezone(timedelta(hours=1)))]),
    (list[time], [time(12, tzinfo=UTC)], [time(13, tzinfo=timezone(timedelta(hours=1)))]),
    (Key, Key(0.0, NOON), Key(-0.0, NOON.astimezone(timezone(timedelta(hours=1))))),
    (list[date], [date(2026, 1, 1)], [date(2026, 1, 1)]),
    (list[timedelta], [timedelta(days=1)], [timedelta(hours=24)]),
]


@pytest.mark.parametrize(("kind", "one", "same"), EQUAL, ids=[str(kind) for kind, _, _ in EQUAL])
def test_equal_nested_keys_are_one_row(kind, one, same, tmp_path):
    row = event_of(key=kind, n=int)
    sink = claimed("sqlite", row, tmp_path, ("key",))
    for number, key in enumerate((one, same)):
        sink.deliver("main", number, stage(sink, [row(key, number)]))
    assert sink.read() == [row(one, 1)]


# --- types that no codec takes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        Enum("Floats", {"A": 1.5}),
        Enum("Flags", {"A": True}),
        Enum("Mixed", {"A": 1, "B": "b"}),
        Enum("Empty", {}),
        Enum("Large", {"A": 2**63}),
        Literal[2**63],
        type("Own", (int,), {}),
        type("Text", (str,), {}),
        type("Moment", (datetime,), {}),
    ],
    ids=str,
)
def test_a_type_that_cannot_come_back_is_refused(kind):
    with pytest.raises(EventSchemaError, match="Field Row.value has type"):
        check_event_type(event_of(value=kind))
    with pytest.raises(EventSchemaError, match=r"Field Row.value\[\] has type"):
        check_event_type(event_of(value=list[kind | None]))
