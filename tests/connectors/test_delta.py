"""What the suite of all sinks does not ask of Delta tables: types, other writers, other readers, and tables that do not fit."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support import deliver_at_once

from penstock import Event
from penstock.app.stream import Sink, Stream
from penstock.connectors.registry import bind_sinks
from penstock.connectors.sink import Refusals
from penstock.connectors.tables import delta
from penstock.errors import ConfigurationError, SinkError
from penstock.runtime.codec import Codec
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.output import FileOutput
from penstock.testing.contracts import SAMPLES, Sample, stage


class Colour(Enum):
    RED = "red"


class Inner(Event):
    name: str
    numbers: list[int]


class Everything(Event):
    Key: str
    flag: bool
    number: int
    real: float
    raw: bytes
    at: datetime
    day: date
    clock: time
    took: timedelta
    money: Decimal
    name: UUID
    colour: Colour
    inner: Inner
    counts: dict[str, int]
    perhaps: int | None = None
    took_perhaps: timedelta | None = None


EVERYTHING = [
    Everything(
        f"a{number}",
        True,
        -(2**63),
        0.1,
        b"\x00\xff",
        datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        date(1969, 12, 31),
        time(23, 59),
        timedelta(days=-1, microseconds=number),
        Decimal("-1.000000000000000001"),
        UUID(int=7),
        Colour.RED,
        Inner("ü", [1, 2]),
        {"x": 1},
        None if number else 5,
        timedelta(0) if number else None,
    )
    for number in range(3)
]


def bound(directory, event_type=Sample, key=(), options="", at="table"):
    sink = Sink("Out", Stream("Samples", event_type), f"delta:{directory / at}{options}", key)
    return bind_sinks([sink], {}, directory / "output")["Out"]


def claimed(directory, **given):
    sink = bound(directory, **given)
    sink.claim("run-1", ())
    return sink


def staged(sink, events):
    output = FileOutput([sink.files], "0-00000")
    columns = Codec(type(events[0])).to_columns(events)
    output.write_columns(sink.files.label, columns, LineageColumns.uncaused([0] * len(events), 0))
    return output.close()


@pytest.mark.parametrize("key", [(), ("Key",)])
def test_events_of_all_types_come_back(tmp_path, key):
    sink = claimed(tmp_path, event_type=Everything, key=key)
    sink.deliver("main", 0, staged(sink, EVERYTHING[:2]))
    sink.deliver("main", 1, staged(sink, EVERYTHING[2:]))
    assert sorted(sink.read(), key=lambda event: event.Key) == EVERYTHING


def test_other_programs_read_the_table(tmp_path):
    sink = claimed(tmp_path)
    sink.deliver("main", 0, stage(sink, SAMPLES))
    names = [sample.name for sample in SAMPLES]
    assert polars.read_delta(str(tmp_path / "table"))["name"].to_list() == names
    rows = DeltaTable(tmp_path / "table").to_pyarrow_dataset()  # noqa: F841 - the query's
    assert [name for (name,) in duckdb.sql("SELECT name FROM rows").fetchall()] == names


def test_of_a_key_the_last_event_of_the_last_batch_stays(tmp_path):
    sink = claimed(tmp_path, key=("name",))
    sink.deliver("main", 0, stage(sink, [Sample("a", 1), Sample("b", 1), Sample("a", 2)]))
    sink.deliver("main", 1, stage(sink, [Sample("a", 4), Sample("c", 1), Sample("a", 3)]))
    assert sorted((event.name, event.number) for event in sink.read()) == [("a", 3), ("b", 1), ("c", 1)]
    assert sink.reached("main") == 1
    assert sink.reached("other") == -1


@pytest.mark.parametrize("key", [(), ("name",)])
def test_two_drivers_that_deliver_one_batch_at_once_leave_one_copy(tmp_path, key):
    sinks = [claimed(tmp_path / name, key=key, at="../table") for name in "abcd"]
    files = [stage(sink, SAMPLES) for sink in sinks]
    deliver_at_once(sinks, files)
    assert len(sinks[0].read()) == len(SAMPLES)
    assert DeltaTable(tmp_path / "table").version() == 1


def test_another_writer_between_reading_and_writing_does_not_harm(tmp_path, monkeypatch):
    sink = claimed(tmp_path, key=("name",))
    at, merge, tries = str(tmp_path / "table"), delta.DeltaSink._merge, []

    def overtaken(self, table, *given):
        if not tries:
            other = pa.table({"name": ["z"], "number": [9], "note": pa.array([None], pa.string())})
            write_deltalake(at, other, mode="append")
        tries.append(1)
        merge(self, table, *given)

    monkeypatch.setattr(delta.DeltaSink, "_merge", overtaken)
    sink.deliver("main", 0, stage(sink, SAMPLES))
    assert len(tries) == 2
    assert len(sink.read()) == len(SAMPLES) + 1


def test_small_files_are_put_together(tmp_path):
    sink = claimed(tmp_path, options="?compact=4")
    for batch in range(8):
        sink.deliver("main", batch, stage(sink, SAMPLES))
    assert len(DeltaTable(tmp_path / "table").file_uris()) == 1
    assert len(sink.read()) == 8 * len(SAMPLES)
    assert sink.reached("main") == 7


def test_a_table_that_was_there_is_taken_if_it_fits(tmp_path):
    own = pa.schema([*Codec(Sample).schema, pa.field("added", pa.int32())])
    DeltaTable.create(tmp_path / "table", own, partition_by=["name"])
    sink = claimed(tmp_path)
    sink.deliver("main", 0, stage(sink, SAMPLES))
    assert len(sink.read()) == len(SAMPLES)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"name": pa.string(), "number": pa.int64()}, "column note is missing"),
        ({"name": pa.string(), "number": pa.string(), "note": pa.string()}, "column number is"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path, columns, said):
    DeltaTable.create(tmp_path / "table", pa.schema(columns))
    with pytest.raises(SinkError, match=said):
        claimed(tmp_path)


def test_a_column_that_must_not_be_null_and_is_no_field_is_refused(tmp_path):
    own = pa.schema([*Codec(Sample).schema, pa.field("added", pa.int32(), nullable=False)])
    DeltaTable.create(tmp_path / "table", own)
    with pytest.raises(SinkError, match="added is never null"):
        claimed(tmp_path)


class Durations(Event):
    many: list[timedelta]


class Perhaps(Event):
    name: str | None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"event_type": Durations}, "no durations within"),
        ({"event_type": Perhaps, "key": ("name",)}, "must not be optional"),
        ({"options": "?compact=-1"}, "zero or more"),
        ({"options": "?storage.AWS_SECRET_ACCESS_KEY=hush"}, "set AWS_SECRET_ACCESS_KEY in the environment"),
        ({"options": "?storage.AZURE_STORAGE_ACCOUNT_KEY=hush"}, "in the environment"),
        ({"options": "?tables=5"}, "takes compact, fresh, storage.NAME"),
    ],
)
def test_what_cannot_be_is_refused_at_once(tmp_path, given, said):
    with pytest.raises(ConfigurationError, match=said):
        bound(tmp_path, **given)


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match=r"Sink Out: delta:.*cannot be written") as refused:
        claimed(tmp_path, at="file/table")
    assert "\n" not in str(refused.value)


class Sized(Event):
    name: str
    city: str | None = None
    size: int = 0


def refusing(tmp_path, events, key=()):
    """Deliver twice, as after a crash; what became dead letters, and what is in the table."""
    sink = claimed(tmp_path, event_type=Sized, key=key)
    (tmp_path / "letters").mkdir()
    sink.refusals = Refusals(tmp_path / "letters", 0, "Out", "Sizes")
    for _ in range(2):
        sink.deliver("main", 0, staged(sink, events))
    lines = [line for path in (tmp_path / "letters").iterdir() for line in path.read_text().splitlines()]
    assert sink.reached("main") == 0
    return {one["event"]["name"]: one["error"] for one in map(json.loads, lines)}, sorted(row.name for row in sink.read())


@pytest.mark.parametrize("key", [(), ("name",)])
def test_rows_that_a_constraint_refuses_are_dead_letters(tmp_path, key):
    DeltaTable.create(tmp_path / "table", Codec(Sized).schema)
    DeltaTable(tmp_path / "table").alter.add_constraint({"positive": "size > 0"})
    events = [Sized(f"n{number}", size=-1 if number in (3, 70) else 1) for number in range(100)]
    letters, rows = refusing(tmp_path, events, key)
    assert letters.keys() == {"n3", "n70"}
    assert all("it is against the table's positive (size > 0)" in error for error in letters.values())
    assert rows == sorted(event.name for event in events if event.size > 0)


@pytest.mark.parametrize("key", [(), ("name",)])
def test_rows_whose_partition_has_no_name_are_dead_letters(tmp_path, key):
    DeltaTable.create(tmp_path / "table", Codec(Sized).schema, partition_by=["city"])
    cities = {"a": "x" * 300, "b": "\u00fc" * 60, "c": "", "d": None, "e": "a/b c"}
    letters, rows = refusing(tmp_path, [Sized(name, city, 1) for name, city in cities.items()], key)
    assert ("too long" in letters["a"], "too long" in letters["b"], "empty" in letters["c"]) == (True, True, True)
    assert rows == ["d", "e"]


UNFIT = {
    "columns of other names": (
        {"configuration": {"delta.columnMapping.mode": "name"}},
        (),
        "its columns are mapped to other names",
    ),
    "append-only": ({"configuration": {"delta.appendOnly": "true"}}, ("name",), "it is append-only, and the sink has a key"),
    "never null": ({"never_null": "city"}, (), "column city is never null, and the field may be"),
}


@pytest.mark.parametrize("how", UNFIT)
def test_a_table_that_would_refuse_what_is_written_is_refused_at_the_start(tmp_path, how):
    given, key, said = UNFIT[how]
    never_null = given.pop("never_null", None) if "never_null" in given else None
    schema = pa.schema([field.with_nullable(field.name != (never_null or "name")) for field in Codec(Sized).schema])
    if "delta.columnMapping.mode" in given.get("configuration", {}):
        mapped(tmp_path / "table", schema)
    else:
        DeltaTable.create(tmp_path / "table", schema, **given)
    for start in ("inspect", "claim"):
        with pytest.raises(SinkError, match=said):
            getattr(bound(tmp_path, event_type=Sized, key=key), start)("run-1", ())


def mapped(place, schema):
    """A table as Spark makes it with column mapping, which this library does not make."""
    DeltaTable.create(place, schema)
    log = place / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "metaData" in action:
            action["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
            columns = json.loads(action["metaData"]["schemaString"])
            for number, field in enumerate(columns["fields"], 1):
                field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
            action["metaData"]["schemaString"] = json.dumps(columns)
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))


class Alike(Event):
    Key: str
    key: str


def test_names_that_differ_in_case_alone_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="Delta takes Key and key for one column"):
        bound(tmp_path, event_type=Alike)


def test_what_fails_while_rows_are_looked_at_is_no_violation(tmp_path, monkeypatch):
    DeltaTable.create(tmp_path / "table", Codec(Sized).schema)
    DeltaTable(tmp_path / "table").alter.add_constraint({"positive": "size > 0"})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(delta, "TemporaryDirectory", full)
    with pytest.raises(SinkError, match="No space left on device"):
        refusing(tmp_path, [Sized("a", size=1)])
    assert not list((tmp_path / "letters").iterdir())


def test_what_a_column_asks_of_its_values_is_asked_too(tmp_path):
    asked = {"delta.invariants": json.dumps({"expression": {"expression": "size > 0"}})}
    schema = pa.schema([field.with_metadata(asked if field.name == "size" else {}) for field in Codec(Sized).schema])
    DeltaTable.create(tmp_path / "table", schema)
    letters, rows = refusing(tmp_path, [Sized("a", size=1), Sized("b", size=-1)])
    assert (list(letters), rows) == (["b"], ["a"])
