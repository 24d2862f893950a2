"""One place by several spellings: two sinks of it are refused, and Penstock and Spark name its files alike."""

from datetime import UTC, time, timedelta, timezone

import pytest
from test_delta import staged
from test_iceberg import catalog, properties

from penstock import Event
from penstock.app.stream import Sink, Stream
from penstock.connectors.registry import bind_sinks
from penstock.errors import ConfigurationError, SinkError
from penstock.storage.place import absolute
from penstock.testing.contracts import Sample, stage

STREAM = Stream("Samples", Sample)
SPELLINGS = {
    "jsonl": ("jsonl:{}/out", "jsonl:{}/other/../out", "jsonl:{}/link/out", "jsonl:/{}/out"),
    "parquet": ("parquet:{}/out", "parquet:{}/link/out"),
    "log": ("log:{}/log", "log:{}/link/log", "log:{}/other/../log"),
    "sqlite": (
        "sqlite:{}/d.db?table=Totals",
        "sqlite:{}/d.db?table=totals",
        "sqlite:{}/link/d.db?table=Totals",
        "sqlite:{}/other/../d.db?table=Totals",
    ),
    "delta": ("delta:{}/t", "delta:{}/link/t", "delta:file://{}/t", "delta:{}/other/../t"),
}


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "here" / "other").mkdir(parents=True)
    (tmp_path / "here" / "link").symlink_to(tmp_path / "here")
    return tmp_path / "here"


@pytest.mark.parametrize(
    ("one", "other"), [(first, other) for first, *others in SPELLINGS.values() for other in others], ids=lambda uri: uri[:40]
)
def test_two_sinks_of_one_place_are_refused_however_it_is_spelled(directory, one, other):
    sinks = [Sink("A", STREAM, one.format(directory)), Sink("B", STREAM, other.format(directory))]
    with pytest.raises(ConfigurationError, match="The sinks A and B both write to"):
        bind_sinks(sinks, {}, directory / "output")


@pytest.mark.parametrize(("one", "other"), [("Totals", "totals"), ("totals", "TOTALS")])
def test_a_table_belongs_to_one_run_however_its_name_is_spelled(directory, one, other):
    def bound(table):
        uri = f"sqlite:{directory}/d.db?table={table}"
        return bind_sinks([Sink("Out", STREAM, uri, ("name",))], {}, directory / "output")["Out"]

    first = bound(one)
    first.claim("run-1", ())
    first.deliver("main", 0, stage(first, [Sample("a", 1)]))
    with pytest.raises(SinkError, match="not of this run"):
        bound(other).claim("run-2", ())
    again = bound(other)
    again.claim("run-1", ())
    assert again.reached("main") == 0
    again.deliver("main", 1, stage(again, [Sample("a", 2)]))
    assert bound(one).read() == [Sample("a", 2)]


def test_a_path_is_named_as_spark_names_it(directory, monkeypatch):
    monkeypatch.chdir(directory / "other")
    assert absolute("../in") == directory / "in"
    assert absolute(f"{directory}/link/../in") == directory.parent / "in"  # and not here/in, which Spark would read
    assert absolute("//data/in").as_posix() == "/data/in"
    assert absolute(f"{directory}/link") == directory / "link"  # as earlier runs have noted it


def test_a_home_that_there_is_none_of_is_refused():
    with pytest.raises(ConfigurationError, match="no home directory that ~ stands for; write the whole path"):
        absolute("~nobody-of-this-name/x")


class Clock(Event):
    at: time
    n: int = 0


@pytest.mark.parametrize(
    "uri", ["sqlite:{}/d.db", "delta:{}/t", "iceberg:lake/results.clocks?{}"], ids=["sqlite", "delta", "iceberg"]
)
def test_equal_times_of_a_key_are_one_row(directory, uri):
    catalog(directory)
    given = "&".join(f"catalog.{name}={text}" for name, text in properties(directory).items())
    place = uri.format(given if uri.startswith("iceberg") else directory)
    sink = bind_sinks([Sink("Out", Stream("Clocks", Clock), place, ("at",))], {}, directory / "output")["Out"]
    sink.claim("run-1", ())
    noon, east = time(12, tzinfo=UTC), time(17, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    sink.deliver("main", 0, staged(sink, [Clock(noon, 1), Clock(east, 2)]))
    assert sink.read() == [Clock(noon, 2)]
    sink.deliver("main", 1, staged(sink, [Clock(east, 3), Clock(time(12), 4)]))
    assert sorted(sink.read(), key=lambda row: row.n) == [Clock(noon, 3), Clock(time(12), 4)]
