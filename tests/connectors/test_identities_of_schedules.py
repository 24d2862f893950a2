"""Schedules with other times have other identities, rows finer than microseconds are in order, and a file must have times."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Event
from penstock.app.stream import Source
from penstock.connectors.declaration import SourceContext
from penstock.connectors.registry import bind_source
from penstock.connectors.schedule import ArrivalSchedule, RecordedSchedule, speed_up
from penstock.errors import ConfigurationError, SourceError


def test_schedules_with_other_times_have_other_identities():
    times = speed_up(pa.array([1.0, 2.0, 3.0]).to_numpy(), 1.0)
    schedules = [
        ArrivalSchedule(1_234_567.0, 1.0),
        ArrivalSchedule(1_234_568.0, 1.0),
        ArrivalSchedule(1_234_567.0, 1.0000001),
        ArrivalSchedule(1_234_567.0, 1.0, seed=1),
        RecordedSchedule(times, 1.0),
        RecordedSchedule(times / 10, 1.0, 10.0),
        RecordedSchedule(times, 2.0),
    ]
    assert len({schedule.identity() for schedule in schedules}) == len(schedules)
    assert ArrivalSchedule(500.0, 1.0).identity() == "rate 500, scv 1, seed 0"  # as older runs have noted it
    assert RecordedSchedule(times, 1.0).identity() == "first at 1.000000"


class Row(Event):
    t: str


def bound(uri, directory):
    source = Source("Rows", Row, sample=lambda number: Row(str(number)))
    return bind_source(source, uri, SourceContext(directory))


def test_rows_of_one_microsecond_are_replayed_in_the_order_of_their_times(tmp_path):
    moments = pa.array([1_700_000_000_000_000_500, 1_700_000_000_000_000_400, 1_700_000_000_000_000_400], pa.timestamp("ns"))
    pq.write_table(pa.table({"t": ["c", "a", "b"], "w": moments}), tmp_path / "rows.parquet")
    source = bound(f"replay:{tmp_path / 'rows.parquet'}?time=w", tmp_path)
    assert [payload.decode() for payload in source.sequence.read(0, 3, 0.0).payloads] == [f'{{"t":"{one}"}}' for one in "abc"]


def test_a_rate_whose_events_never_come_is_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="rate=1e-300 is so low"):
        bound("generator:poisson?rate=1e-300", tmp_path)


def test_a_file_without_times_is_refused(tmp_path):
    (tmp_path / "times").write_text("\n")
    with pytest.raises(SourceError, match="does not hold one time in seconds a line: it is empty"):
        bound(f"generator:recorded?times={tmp_path / 'times'}", tmp_path)
