"""Our own connectors under the suites that authors of others use, and one that another package might bring."""

import time
from datetime import datetime, timedelta
from importlib.metadata import EntryPoint
from typing import Annotated

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from penstock import App, Event
from penstock.connectors import (
    ADMISSION,
    Memory,
    Option,
    Sequence,
    SequenceSource,
    SinkConnector,
    SinkContext,
    Slice,
    SourceConnector,
    SourceContext,
    Uri,
    registry,
)
from penstock.connectors.files.sink import DirectorySink
from penstock.connectors.log import EventLog
from penstock.connectors.registry import bind_sinks, bind_source, connector, read_uri
from penstock.errors import ConfigurationError
from penstock.runtime.codec import Codec
from penstock.runtime.output import SinkFiles
from penstock.testing import SinkContract, SourceContract
from penstock.testing.contracts import SAMPLES, Sample, stage


class Person(Event, rename="camel", tag=True):
    first_name: str = ""


class Visit(Event, rename={"is_new": "isNew", "how_long": "howLong"}, tag=True, kw_only=True):
    """Which is made by names only, and is encoded by others."""

    name: str
    number: int
    is_new: bool = False
    how_long: timedelta = timedelta(0)
    local: Annotated[datetime, msgspec.Meta(tz=False)]
    host: Person
    guide: Person | None = None
    guests: list[Person]
    by_room: dict[str, Person | None]


MOMENT = datetime(2026, 11, 25, 12, 0, 0, 1)
VISIT = Visit(
    name="a",
    number=1,
    is_new=True,
    how_long=timedelta(days=-1, microseconds=500_000),
    local=MOMENT,
    host=Person("Ada"),
    guests=[Person("Bo"), Person()],
    by_room={"x": Person("Cy"), "y": None},
)


class OurSink(SinkContract):
    """What ours keep besides."""

    def test_an_event_that_is_encoded_by_other_names_comes_back(self, tmp_path):
        sink = self.bind(tmp_path, Visit)
        sink.claim("run-1", ())
        sink.deliver("main", 0, stage(sink, [VISIT]))
        assert sink.read() == [VISIT]


class TestJsonLines(OurSink):
    def connect(self, directory):
        return f"jsonl:{directory / 'out'}"


class TestParquet(OurSink):
    def connect(self, directory):
        return f"parquet:{directory / 'out'}"


class TestConsole(OurSink):
    def connect(self, directory):
        return "console"


class TestLog(OurSink):
    def connect(self, directory):
        return f"log:{directory / 'spool'}"


class TestLogWithKeys(TestLog):
    key = ("name", "number")


class TestSqlite(OurSink):
    def connect(self, directory):
        return f"sqlite:{directory / 'results.sqlite'}"


class TestSqliteUpserted(TestSqlite):
    key = ("name",)


class TestDelta(OurSink):
    def connect(self, directory):
        return f"delta:{directory / 'table'}?compact=1"


class TestDeltaMerged(TestDelta):
    key = ("name",)


class TestIceberg(OurSink):
    def connect(self, directory):
        (directory / "lake").mkdir(exist_ok=True)
        catalog = f"catalog.uri=sqlite:///{directory / 'lake.sqlite'}&catalog.warehouse=file://{directory / 'lake'}"
        return f"iceberg:lake/results.samples?{catalog}"


class TestIcebergMerged(TestIceberg):
    key = ("name",)


class TestIcebergMergedByTwoFields(TestIceberg):
    key = ("name", "number")


@pytest.mark.servers
class TestKafka(OurSink):
    shared = True
    key = ("name",)

    @pytest.fixture(autouse=True)
    def _topic(self, broker):
        self.uri = f"kafka:{broker.brokers}/contract-{time.time_ns()}?header.count=number"

    def connect(self, directory):
        return self.uri

    def test_a_run_that_was_discarded_leaves_nothing_behind(self, tmp_path):
        """But what it has sent, which other programs may have read."""


@pytest.mark.servers
class TestKafkaInTransactions(TestKafka):
    def connect(self, directory):
        return f"{self.uri}&transactions=yes"


@pytest.mark.servers
class TestPostgresql(OurSink):
    @pytest.fixture(autouse=True)
    def _table(self, postgres):
        self.uri = f"{postgres.uri}?table=contract_{time.time_ns()}"

    def connect(self, directory):
        return self.uri


@pytest.mark.servers
class TestIcebergInPostgresql(OurSink):
    """A catalog that several machines may use."""

    key = ("name",)

    @pytest.fixture(autouse=True)
    def _catalog(self, postgres):
        self.uri = postgres.uri.replace("postgresql://", "postgresql%2Bpsycopg://")
        self.name = f"lake{time.time_ns()}"

    def connect(self, directory):
        (directory / "lake").mkdir(exist_ok=True)
        return f"iceberg:{self.name}/results.samples?catalog.uri={self.uri}&catalog.warehouse=file://{directory / 'lake'}"


class TestLogAsSource(SourceContract):
    def connect(self, directory):
        log = EventLog(directory / "spool")
        if not log.streams():
            log.append("Samples", list(map(Codec(Sample).encode_json, SAMPLES)))
        return f"log:{directory / 'spool'}"


class TestGenerator(SourceContract):
    def connect(self, directory):
        return "generator:poisson?rate=1000&count=30&seed=5"


class TestDeltaAsSource(SourceContract):
    def connect(self, directory):
        at = directory / "table"
        if not at.exists():
            for rows in (SAMPLES[:3], SAMPLES[3:], SAMPLES):
                write_deltalake(at, pa.table(Codec(Sample).to_columns(rows)), mode="append")
        return f"delta:{at}"


class TestReplay(SourceContract):
    def connect(self, directory):
        rows = Codec(Sample).to_columns(SAMPLES).append_column("at", pa.array([3.0, 1.0, 2.0, 4.0]))
        pq.write_table(pa.table(rows.to_pydict()), directory / "samples.parquet")
        return f"replay:{directory / 'samples.parquet'}?time=at"


# --- what a package of somebody else's would bring ----------------------------------------------------


class Fixed(Sequence):
    """The samples, as a sequence of somebody's own."""

    def end(self, started):
        return len(SAMPLES)

    def read(self, start, end, started):
        return Slice([Codec(Sample).encode_json(sample) for sample in SAMPLES[start:end]], [0] * (end - start))


def bind_fixed(source, uri, options, context):
    return SequenceSource(source, Fixed(), uri, options, context)


def bind_mirrored(sink, uri, options, context):
    return DirectorySink(SinkFiles(sink.name, "jsonl", str(context.output)), sink.stream.event_type)


FIXED = SourceConnector("fixed", "", "the samples", (Option("name", "of nothing"), *ADMISSION), bind=bind_fixed)
MIRRORED = SinkConnector("mirrored", "PLACE", "files", bind=bind_mirrored)


class FixedConnection:
    def bind(self, source, context):
        return SequenceSource(source, Fixed(), None, {}, context, name="fixed")


class TestFixed(SourceContract):
    def connect(self, directory):
        return FixedConnection()


@pytest.fixture
def registered(monkeypatch):
    """As if a package with these entry points were installed."""
    rows = {"sources": ("fixed", "FIXED"), "sinks": ("mirrored", "MIRRORED")}
    entries = {
        side: {scheme: EntryPoint(scheme, f"{__name__}:{name}", f"penstock.{side}")} for side, (scheme, name) in rows.items()
    }
    monkeypatch.setattr(registry, "_registered", lambda side: entries[side])


def test_a_package_of_its_own_registers_connectors(registered, tmp_path):
    app = App("other")
    source = app.source("Samples", Sample)
    sink = app.sink("Out", source)
    assert bind_source(source, "fixed:?max_rows=3", SourceContext()).admission.max_rows == 3
    assert bind_sinks([sink], {"Out": "mirrored:here"}, tmp_path)["Out"].uri == f"jsonl:{tmp_path / 'Out'}"
    with pytest.raises(ConfigurationError, match="fixed takes no option 'speed'; it takes name, min_rows"):
        bind_source(source, "fixed:?speed=3", SourceContext())
    with pytest.raises(ConfigurationError, match=r"write one of jsonl:\.\.\., .*, fixed:\.\.\., or \./PATH"):
        read_uri("ftp:there", "sources")


def test_an_entry_point_that_leads_elsewhere_is_refused(registered, monkeypatch):
    monkeypatch.setitem(registry._registered("sinks"), "mirrored", EntryPoint("mirrored", "os:sep", "penstock.sinks"))
    with pytest.raises(ConfigurationError, match="is no connector"):
        connector("sinks", "mirrored")


def test_a_connector_is_given_as_it_is(tmp_path):
    kept = Memory()
    app = App("kept")
    sink = app.sink("Out", app.source("Samples", Sample), uri=kept)
    bound = bind_sinks([sink], {}, tmp_path)["Out"]
    assert kept.bind(sink, SinkContext(tmp_path / "x")).uri == bound.uri.replace("Out", "x")


def test_every_row_leads_to_a_connector_of_its_scheme():
    for side, rows in registry.ROWS.items():
        for scheme in rows:
            found = connector(side, scheme)
            assert found.scheme == scheme
            assert found.help
            assert all(option.help for option in found.options)


@pytest.mark.parametrize(
    ("text", "scheme", "place", "options"),
    [
        ("jsonl:in?max_files=3", "jsonl", "in", {"max_files": "3"}),
        ("jsonl:wh?t/is", "jsonl", "wh?t/is", {}),
        (
            "kafka:h:9092,g:9092/t?header.x-id=a&kafka.client.id=b",
            "kafka",
            "h:9092,g:9092/t",
            {"header.x-id": "a", "kafka.client.id": "b"},
        ),
        ("postgresql://me:secret@host/db?table=t", "postgresql", "//me:secret@host/db", {"table": "t"}),
        ("/a/b:c.jsonl", "", "/a/b:c.jsonl", {}),
        ("in?put?max_files=1", "", "in?put", {"max_files": "1"}),
    ],
)
def test_uris_are_divided(text, scheme, place, options):
    uri = Uri.parse(text)
    assert (uri.scheme, uri.place, uri.options) == (scheme, place, options)
    if scheme:
        assert Uri.parse(uri.text) == uri
