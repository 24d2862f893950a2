"""Whose rows are in a table: `--fresh` removes those of the run that it discards, and what else is there stays, or it is
refused.
"""

import shutil
import sqlite3
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.app.stream import Sink, Stream
from penstock.connectors.log import EventLog
from penstock.connectors.registry import bind_sinks
from penstock.connectors.tables.delta import DeltaSink
from penstock.errors import RunLockedError, SinkError
from penstock.storage import durable
from penstock.testing.contracts import SAMPLES, Sample, stage

OTHERS = ("another's", 7, None)


class Place:
    """A table that a sink of the run writes, and other programs as well."""

    def __init__(self, directory: Path, uri: str) -> None:
        self.directory, self.uri = directory, uri

    def bind(self, key=(), options=""):
        uri = f"{self.uri}{('&' if '?' in self.uri else '?') if options else ''}{options}"
        sink = Sink("Out", Stream("Samples", Sample), uri, key)
        return bind_sinks([sink], {}, self.directory / "output")["Out"]

    def claimed(self, run="run-1", discarded=(), **how):
        sink = self.bind(**how)
        sink.inspect(run, discarded)
        sink.claim(run, discarded)
        return sink

    def names(self):
        return sorted(name for name, _, _ in self.rows())


class InSqlite(Place):
    def __init__(self, directory):
        self.file = directory / "t.sqlite"
        super().__init__(directory, f"sqlite:{self.file}")

    def execute(self, *statement):
        connection = sqlite3.connect(self.file)
        with connection:
            return connection.execute(*statement).fetchall()

    def made_by_another(self):
        self.execute("CREATE TABLE Out (name text PRIMARY KEY, number integer, note text)")

    def add(self):
        self.execute("INSERT INTO Out VALUES (?, ?, ?)", OTHERS)

    def rows(self):
        return self.execute("SELECT name, number, note FROM Out")

    def drop(self):
        self.execute("DROP TABLE Out")


class InPostgres(Place):
    def __init__(self, directory, server):
        self.table = f"whose_{time.time_ns()}"
        super().__init__(directory, f"{server.uri}?table={self.table}")
        self._address = server.uri

    def execute(self, statement, parameters=()):
        import psycopg

        with psycopg.connect(self._address) as connection:
            found = connection.execute(statement.replace("Out", self.table).encode(), parameters)
            return found.fetchall() if found.description else []

    def made_by_another(self):
        self.execute("CREATE TABLE Out (name text PRIMARY KEY, number bigint, note text)")

    def add(self):
        self.execute("INSERT INTO Out VALUES (%s, %s, %s)", OTHERS)

    def rows(self):
        return self.execute("SELECT name, number, note FROM Out")

    def drop(self):
        self.execute("DROP TABLE Out")


def _columns():
    return pa.table({"name": [OTHERS[0]], "number": [OTHERS[1]], "note": pa.array([None], pa.string())})


class InDelta(Place):
    def __init__(self, directory):
        self.at = directory / "table"
        super().__init__(directory, f"delta:{self.at}")

    def made_by_another(self):
        DeltaTable.create(self.at, _columns().schema)

    def add(self):
        write_deltalake(self.at, _columns(), mode="append")

    def rows(self):
        return [tuple(row.values()) for row in DeltaTable(self.at).to_pyarrow_table().to_pylist()]

    def drop(self):
        shutil.rmtree(self.at)


class InIceberg(Place):
    def __init__(self, directory):
        (directory / "lake").mkdir()
        self.catalog = {"uri": f"sqlite:///{directory / 'lake.sqlite'}", "warehouse": f"file://{directory / 'lake'}"}
        options = "&".join(f"catalog.{name}={value}" for name, value in self.catalog.items())
        super().__init__(directory, f"iceberg:lake/results.samples?{options}")

    def _catalog(self):
        from pyiceberg.catalog import load_catalog

        return load_catalog("lake", type="sql", **self.catalog)

    def made_by_another(self):
        self._catalog().create_namespace_if_not_exists("results")
        self._catalog().create_table("results.samples", _columns().schema)

    def add(self):
        table = self._catalog().load_table("results.samples")
        table.append(_columns().cast(table.schema().as_arrow()))

    def rows(self):
        return [tuple(row.values()) for row in self._catalog().load_table("results.samples").scan().to_arrow().to_pylist()]

    def drop(self):
        self._catalog().drop_table("results.samples")


@pytest.fixture(params=["sqlite", "delta", "iceberg", pytest.param("postgresql", marks=pytest.mark.servers)])
def place(request, tmp_path):
    if request.param == "postgresql":
        return InPostgres(tmp_path, request.getfixturevalue("postgres"))
    return {"sqlite": InSqlite, "delta": InDelta, "iceberg": InIceberg}[request.param](tmp_path)


@pytest.fixture(params=[(), ("name",)], ids=["appended", "by key"])
def key(request):
    return request.param


def deliver(sink, batch, events):
    sink.deliver("main", batch, stage(sink, events))


def test_rows_of_before_the_run_stay(place, key):
    place.made_by_another()
    place.add()
    deliver(place.claimed(key=key), 0, SAMPLES[:1])
    with pytest.raises(SinkError, match=r"there before the run, or.*fresh=keep.*fresh=empty"):
        place.claimed("run-2", ("run-1",), key=key)
    assert place.names() == ["a", OTHERS[0]]


def test_rows_that_another_program_adds_stay(place, key):
    deliver(place.claimed(key=key), 0, SAMPLES[:1])
    place.add()
    deliver(place.claimed(key=key), 1, SAMPLES[1:2])  # which does not make them ours
    with pytest.raises(SinkError, match="another program has added"):
        place.bind(key=key).inspect("run-2", ("run-1",))
    with pytest.raises(SinkError, match="another program has added"):
        place.claimed("run-2", ("run-1",), key=key)
    assert place.names() == ["a", OTHERS[0], "b"]


def test_what_is_said_of_them_is_done(place, key):
    deliver(place.claimed(key=key), 0, SAMPLES[:1])
    place.add()
    deliver(place.claimed("run-2", ("run-1",), key=key, options="fresh=keep"), 0, SAMPLES[1:2])
    assert place.names() == ["a", OTHERS[0], "b"]
    deliver(place.claimed("run-3", ("run-2", "run-1"), key=key, options="fresh=empty"), 0, SAMPLES[2:3])
    assert place.names() == ["c"]
    deliver(place.claimed("run-4", ("run-3", "run-2", "run-1"), key=key), 0, SAMPLES[:1])  # now they are all ours
    assert place.names() == ["a"]


def test_a_table_of_ours_alone_is_emptied_again_and_again(place, key):
    for number in range(4):
        discarded = tuple(f"run-{earlier}" for earlier in reversed(range(number)))
        sink = place.claimed(f"run-{number}", discarded, key=key)
        for batch, sample in enumerate(SAMPLES[:3]):
            deliver(sink, batch, [sample])
        assert place.names() == ["a", "b", "c"]


def test_a_table_that_was_dropped_is_missed_and_none_put_in_its_place(place, key):
    sink = place.claimed(key=key)
    deliver(sink, 0, SAMPLES[:1])
    place.drop()
    assert place.claimed(key=key).reached("main") == -1


def test_a_table_that_goes_on_being_the_runs_can_be_emptied(place, key):
    for batch in range(3):  # each a start
        deliver(place.claimed(key=key), batch, SAMPLES[batch : batch + 1])
    deliver(place.claimed("run-2", ("run-1",), key=key), 0, SAMPLES[3:])
    assert place.names() == ["ab/c"]


def test_rows_that_are_kept_once_are_kept_again(place, key):
    deliver(place.claimed(key=key), 0, SAMPLES[:1])
    place.add()
    place.claimed("run-2", ("run-1",), key=key, options="fresh=keep")
    with pytest.raises(SinkError, match="fresh=keep"):
        place.claimed("run-3", ("run-2", "run-1"), key=key)
    assert place.names() == ["a", OTHERS[0]]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_set_back_by_its_own_means_is_missed(tmp_path, kind):
    place = {"delta": InDelta, "iceberg": InIceberg}[kind](tmp_path)
    sink = place.claimed()
    for batch in range(3):
        deliver(sink, batch, SAMPLES[batch : batch + 1])
    if kind == "delta":
        DeltaTable(place.at).restore(1)
    else:
        table = place._catalog().load_table("results.samples")
        table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    assert place.names() == ["a"]
    assert place.claimed().reached("main") == -1


def test_what_adds_no_row_is_nobodys(tmp_path):
    place = InDelta(tmp_path)
    deliver(place.claimed(), 0, SAMPLES[:1])
    DeltaTable(place.at).alter.add_constraint({"positive": "number >= 0"})
    DeltaTable(place.at).optimize.compact()
    place.claimed("run-2", ("run-1",))
    assert place.names() == []


@pytest.mark.parametrize("kind", ["jsonl", "delta"])
def test_a_claim_that_was_killed_half_way_is_gone_on_with(tmp_path, kind, monkeypatch):
    place = InDelta(tmp_path) if kind == "delta" else Place(tmp_path, f"jsonl:{tmp_path / 'out'}")
    deliver(place.claimed(), 0, SAMPLES)

    def killed(*given, **named):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if kind == "delta":
            patched.setattr(DeltaTable, "delete", killed)
        else:
            patched.setattr("penstock.connectors.files.sink.remove_batches", killed)
        with pytest.raises(KeyboardInterrupt):
            place.claimed("run-2", ("run-1",))
    again = place.claimed("run-2", ("run-1",))
    assert again.reached("main") == -1
    assert again.read() == []
    deliver(again, 0, SAMPLES[:1])
    assert place.claimed("run-2", ("run-1",)).read() == SAMPLES[:1]


def test_a_driver_that_wakes_between_a_look_and_a_move_writes_nothing_down(tmp_path, monkeypatch):
    place = Place(tmp_path, f"jsonl:{tmp_path / 'out'}")
    sink = place.claimed()
    files, real = stage(sink, SAMPLES), durable.move

    def paused(path, to):
        monkeypatch.undo()
        fresh = place.claimed("run-2", ("run-1",))
        deliver(fresh, 0, SAMPLES[:1])
        real(path, to)

    monkeypatch.setattr(durable, "move", paused)
    sink.deliver("main", 9, files)
    assert place.claimed("run-2", ("run-1",)).reached("main") == 0
    assert place.claimed("run-2", ("run-1",)).read() == SAMPLES[:1]


def test_others_that_come_between_a_look_and_a_version_are_seen(tmp_path, monkeypatch):
    place = InDelta(tmp_path)
    sink = place.claimed()
    deliver(sink, 0, SAMPLES[:1])
    real = DeltaSink._properties

    def slow(self, *given):
        found = real(self, *given)
        place.add()
        return found

    monkeypatch.setattr(DeltaSink, "_properties", slow)
    deliver(sink, 1, SAMPLES[1:2])
    monkeypatch.undo()
    for batch in (2, 3):
        deliver(sink, batch, SAMPLES[2:3])
    with pytest.raises(SinkError, match="another program has added"):
        place.claimed("run-2", ("run-1",))


def test_a_driver_that_is_paused_before_its_version_is_refused(tmp_path, monkeypatch):
    place = InDelta(tmp_path)
    sink = place.claimed()
    real = DeltaSink._properties

    def paused(self, *given):
        monkeypatch.undo()
        found = real(self, *given)
        place.claimed("run-2", ("run-1",))
        return found

    monkeypatch.setattr(DeltaSink, "_properties", paused)
    with pytest.raises(RunLockedError, match="belongs to another run now"):
        deliver(sink, 0, SAMPLES)
    assert place.names() == []


def test_events_that_another_has_appended_to_a_log_stay(tmp_path):
    place = Place(tmp_path, f"log:{tmp_path / 'spool'}")
    deliver(place.claimed(), 0, SAMPLES[:1])
    log = EventLog(tmp_path / "spool")
    log.append("Samples", [b'{"name": "x", "number": 1}'])
    with pytest.raises(SinkError, match="another program has appended"):
        place.claimed("run-2", ("run-1",))
    assert len(log.read("Samples", 0, 9)) == 2


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_directory_keeps_files_that_the_run_did_not_write(tmp_path, kind):
    place = Place(tmp_path, f"{kind}:{tmp_path / 'out'}")
    deliver(place.claimed(), 0, SAMPLES)
    for name in ("README.md", f"mine.{kind}", "00000000-notes.txt", "sub"):
        (tmp_path / "out" / name).mkdir() if name == "sub" else (tmp_path / "out" / name).write_text("mine")
    place.claimed("run-2", ("run-1",))
    left = {path.name for path in (tmp_path / "out").iterdir() if path.name[0] != "."}
    assert left == {"README.md", f"mine.{kind}", "00000000-notes.txt", "sub"}


def test_a_directory_says_how_far_it_is_though_a_consumer_has_taken_its_files(tmp_path):
    place = Place(tmp_path, f"jsonl:{tmp_path / 'out'}")
    sink = place.claimed()
    deliver(sink, 0, SAMPLES[:1])
    shutil.copytree(tmp_path / "out", tmp_path / "backup")
    deliver(sink, 1, SAMPLES[1:])
    for path in (tmp_path / "out").glob("*.jsonl"):
        path.unlink()
    assert place.claimed().reached("main") == 1
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "backup").rename(tmp_path / "out")
    assert place.claimed().reached("main") == 0
    shutil.rmtree(tmp_path / "out")
    assert place.claimed().reached("main") == -1


class Paused:
    """A driver that is stopped in the middle of a delivery, in its database transaction, until it is woken."""

    def __init__(self, sink, monkeypatch, batch, events):
        self.inside, self.woken = threading.Event(), threading.Event()
        files, real = stage(sink, events), type(sink._database).load
        self.failure = None

        def load(database, cursor, table, rows):
            real(database, cursor, table, rows)
            if database is sink._database and not self.woken.is_set():
                self.inside.set()
                self.woken.wait(60)

        def run():
            try:
                sink.deliver("main", batch, files)
            except Exception as error:
                self.failure = error

        monkeypatch.setattr(type(sink._database), "load", load)
        self._thread = threading.Thread(target=run)
        self._thread.start()
        assert self.inside.wait(30)

    def wake(self):
        self.woken.set()
        self._thread.join(60)


@pytest.mark.servers
def test_who_follows_a_driver_that_is_paused_in_its_transaction_ends_that(tmp_path, postgres, monkeypatch):
    place = InPostgres(tmp_path, postgres)
    first = Paused(place.claimed(key=("name",)), monkeypatch, 0, SAMPLES)
    began = time.monotonic()
    fresh = place.claimed("run-2", ("run-1",), key=("name",))
    deliver(fresh, 0, SAMPLES[:1])
    assert time.monotonic() - began < 9, "who follows does not wait for a lock"
    first.wake()
    assert isinstance(first.failure, RunLockedError)
    assert place.names() == ["a"]


@pytest.mark.servers
def test_the_same_run_goes_on_with_the_batch_of_a_driver_that_is_paused(tmp_path, postgres, monkeypatch):
    place = InPostgres(tmp_path, postgres)
    first = Paused(place.claimed(), monkeypatch, 0, SAMPLES[:2])
    second = place.claimed()
    deliver(second, 0, SAMPLES[:2])
    first.wake()
    assert first.failure is None  # it finds the batch delivered
    assert place.names() == ["a", "b"]


@pytest.mark.servers
def test_a_lock_that_another_program_holds_is_said(tmp_path, postgres, monkeypatch):
    import psycopg

    place = InPostgres(tmp_path, postgres)
    sink = place.claimed(key=("name",))
    deliver(sink, 0, SAMPLES[:1])
    monkeypatch.setattr("penstock.connectors.tables.sink.PATIENCE_S", 1.0)
    with psycopg.connect(postgres.uri) as other:
        other.execute(f"LOCK TABLE {place.table}".encode())
        with pytest.raises(SinkError, match="another session has locked.*end the session that holds the lock"):
            deliver(sink, 1, SAMPLES[1:2])
    deliver(sink, 1, SAMPLES[1:2])
    assert place.names() == ["a", "b"]
