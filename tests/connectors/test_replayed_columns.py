"""What `replay:` reads of a column is what `parquet:` reads of it, or refused; and each event has a time at which it is due."""

import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Event
from penstock.app.stream import Source
from penstock.connectors.declaration import SourceContext
from penstock.connectors.files.reader import FileReader
from penstock.connectors.registry import bind_source
from penstock.errors import ConfigurationError, SourceError
from penstock.runtime.codec import Codec

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
COLUMNS = {
    "seconds since the epoch": pa.array([1767225600]),
    "a small number": pa.array([5]),
    "a number with a fraction": pa.array([1.1]),
    "a text": pa.array(["5"]),
    "a flag": pa.array([True]),
    "bytes": pa.array([b"5"]),
    "a date": pa.array([date(2026, 1, 1)]),
    "a time": pa.array([NOON], pa.timestamp("us", "UTC")),
    "a naive time": pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")),
    "nanoseconds": pa.array([1], pa.timestamp("ns", "UTC")),
    "a duration": pa.array([timedelta(seconds=5)]),
    "a decimal": pa.array([Decimal("1.5")]),
    "a dictionary": pa.array(["a"]).dictionary_encode(),
    "nothing": pa.array([None]),
}
FIELDS = (int, float, str, bool, bytes, date, datetime, timedelta, Decimal, int | None, str | None)


def event_of(kind):
    return type("Row", (Event,), {"__annotations__": {"k": kind}})


def source_of(directory, table, kind, options="time=at"):
    pq.write_table(table, directory / "f.parquet")
    return bind_source(Source("Rows", event_of(kind)), f"replay:{directory}/f.parquet?{options}", SourceContext())


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("kind", FIELDS, ids=str)
def test_a_column_is_read_as_by_the_parquet_source_or_refused(tmp_path, column, kind):
    table = pa.table({"k": COLUMNS[column], "at": pa.array([1.0])})
    event_type = event_of(kind)
    codec = Codec(event_type)
    pq.write_table(table, tmp_path / "other.parquet")
    [part] = FileReader("Rows", "Row", "parquet", codec.schema, None).parts(str(tmp_path / "other.parquet"))
    fits = isinstance(part, pa.RecordBatch) and (codec.schema.field("k").nullable or not part["k"].null_count)
    if not fits:
        with pytest.raises(SourceError, match=r"does not fit Row|does not make it optional"):
            source_of(tmp_path, table, kind)
        return
    [payload] = source_of(tmp_path, table, kind).sequence.read(0, 1, 0.0).payloads
    assert codec.decode_json(payload) == codec.from_columns(part)[0]


def test_a_field_that_may_miss_may_have_no_column(tmp_path):
    class Row(Event):
        n: int
        k: int | None = None

    pq.write_table(pa.table({"n": [1], "at": [1.0]}), tmp_path / "f.parquet")
    sequence = bind_source(Source("Rows", Row), f"replay:{tmp_path}/f.parquet?time=at", SourceContext()).sequence
    assert [Codec(Row).decode_json(payload) for payload in sequence.read(0, 1, 0.0).payloads] == [Row(1)]


@pytest.mark.parametrize(
    "times",
    [
        pa.array([date(2026, 1, 1), date(2026, 1, 2)]),
        pa.array([NOON, NOON + timedelta(days=1)], pa.timestamp("ns", "UTC")),
        pa.array([timedelta(0), timedelta(days=1)]),
        pa.array([0, 86_400]),
        pa.array([Decimal(0), Decimal(86_400)]),
        pa.array([0.0, 86_400.0], pa.float32()),
    ],
    ids=lambda column: str(column.type),
)
def test_times_of_any_type_are_seconds(tmp_path, times):
    sequence = source_of(tmp_path, pa.table({"k": [1, 2], "at": times}), int).sequence
    assert sequence.end(time.time() - 86_399) == 1
    assert sequence.end(time.time() - 86_401) == 2


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([1.0, None], "has no time in row 2"),
        ([float("nan"), 1.0], "has no time in row 1"),
        ([1.0, float("inf")], "has no time in row 2"),
        ([1, None], "has no time in row 2"),
        ([NOON, None], "has no time in row 2"),
        ([None, None], "is of type null; give timestamps"),
        (["1", "2"], "is of type string; give timestamps"),
        ([[1.0], [2.0]], "give timestamps"),
        ([NOON.time()] * 2, "give timestamps"),
    ],
)
def test_a_row_that_would_never_be_due_is_refused(tmp_path, times, said):
    with pytest.raises(SourceError, match=f"column at of .*{said}"):
        source_of(tmp_path, pa.table({"k": [1, 2], "at": pa.array(times)}), int)


def test_a_speed_at_which_no_event_would_come_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="so slow that the last event would never come"):
        source_of(tmp_path, pa.table({"k": [1, 2], "at": [0.0, 1.0]}), int, "time=at&speed=1e-320")


def test_a_directory_is_no_file_to_replay(tmp_path):
    with pytest.raises(SourceError, match="is no file; name one"):
        bind_source(Source("Rows", event_of(int)), f"replay:{tmp_path}?time=at", SourceContext())


@pytest.mark.parametrize(
    ("lines", "said"), [("1\nnan\n", "row 2"), ("1\ninf\n", "row 2"), ("1 2\n3 4\n", "2 columns"), ("x\n", "x")]
)
def test_a_file_of_times_that_never_come_is_refused(tmp_path, lines, said):
    (tmp_path / "times").write_text(lines)
    with pytest.raises(SourceError, match=f"does not hold one time in seconds a line.*{said}"):
        bind_source(Source("Rows", event_of(int)), f"generator:recorded?times={tmp_path}/times", SourceContext())


def test_a_file_of_times_in_any_order_is_sorted(tmp_path):
    (tmp_path / "times").write_text("3\n1\n2.5\n")
    from penstock.connectors.schedule import schedule_of
    from penstock.connectors.uri import Uri

    schedule = schedule_of(Uri("generator", "recorded"), {"times": str(tmp_path / "times")})
    assert np.array_equal(schedule.times(0, 3), [0.0, 1.5, 2.0])
