"""What the suite of all sinks does not ask of Delta tables: types, other writers, other readers, and tables that do not fit."""

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
from penstock.connectors.tables import delta
from penstock.errors import ConfigurationError, SinkError
from penstock.runtime.codec import Codec
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
        f"a{number}", True, -(2**63), 0.1, b"\x00\xff", datetime(2026, 1, 2, 3, 4, 5, 6, UTC), date(1969, 12, 31), time(23, 59),
        timedelta(days=-1, microseconds=number), Decimal("-1.000000000000000001"), UUID(int=7), Colour.RED,
        Inner("ü", [1, 2]), {"x": 1}, None if number else 5, timedelta(0) if number else None,
    )
    for number in range(3)
]  # fmt: skip


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
    output.write_columns(sink.files.label, columns, pa.array([0] * len(events)).to_numpy())
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
