"""Table sinks on real databases: exactly once, whatever dies when."""

import sqlite3
import threading
import time
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID

import psycopg
import pytest

from penstock.app.stream import Sink, Stream
from penstock.connectors.registry import bind_sinks, refuse_shared
from penstock.connectors.tables.postgresql import Postgres
from penstock.errors import ConfigurationError, SinkError
from penstock.kinds.event import Event
from penstock.runtime.codec import Codec
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.output import FileOutput


class Total(Event):
    text: str
    part: int
    seen: int
    note: str | None = None


class Colour(Enum):
    RED = "red"


class Inner(Event):
    depth: int


class Everything(Event):
    flag: bool
    whole: int
    real: float
    text: str
    raw: bytes
    when: datetime
    day: date
    span: timedelta
    price: Decimal
    name: UUID
    colour: Colour
    inner: Inner
    many: list[int]
    named: dict[str, float]
    maybe: int | None = None


def bound(uri, event_type, tmp_path, key=(), name="Out"):
    sink = Sink(name, Stream("S", event_type), uri, key)
    return bind_sinks([sink], {}, tmp_path / "output")[name]


def staged(sink, event_type, events, label="0-00000"):
    output = FileOutput([sink.files], label)
    output.write_columns(
        sink.files.name,
        Codec(event_type).to_columns(events, staged=sink.files.wide),
        LineageColumns.uncaused([0] * len(events), 0),
    )
    return output.close()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path):
    """A URI of a fresh database, and what runs a query on it."""
    if request.param == "sqlite":
        path = tmp_path / "results.sqlite"
        return f"sqlite:{path}", lambda query: sqlite3.connect(path).execute(query).fetchall()
    server = request.getfixturevalue("postgres")
    name = f"d{time.time_ns()}"
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    uri = server.uri.removesuffix("penstock") + name

    def rows(query):
        with psycopg.connect(uri) as connection:
            return connection.execute(query).fetchall()

    return uri, rows


def test_rows_are_upserted_by_key_and_the_last_counts(database, tmp_path):
    uri, rows = database
    sink = bound(uri, Total, tmp_path, key=("text", "part"))
    sink.claim("r1", ())
    sink.deliver("main", 0, staged(sink, Total, [Total("a", 1, 1), Total("b", 1, 1), Total("a", 1, 2)]))
    sink.deliver("main", 1, staged(sink, Total, [Total("a", 1, 3, "new"), Total("a", 2, 1)]))
    assert sorted(rows('SELECT text, part, seen, note FROM "Out"')) == [
        ("a", 1, 3, "new"),
        ("a", 2, 1, None),
        ("b", 1, 1, None),
    ]


def test_a_batch_delivered_again_leaves_no_second_copy(database, tmp_path):
    uri, rows = database
    sink = bound(uri, Total, tmp_path)
    sink.claim("r1", ())
    for _ in range(2):
        sink.deliver("main", 0, staged(sink, Total, [Total("a", 1, 1)] * 3))
    sink.deliver("other", 0, staged(sink, Total, [Total("a", 1, 1)]))
    resumed = bound(uri, Total, tmp_path)
    resumed.claim("r1", ())
    resumed.deliver("main", 0, staged(resumed, Total, [Total("a", 1, 1)] * 3))
    resumed.deliver("main", 1, [])
    assert rows('SELECT count(*) FROM "Out"') == [(4,)]


def test_every_type_of_field_comes_back(database, tmp_path):
    event = Everything(
        True,
        -(2**63),
        0.1,
        "é 'quoted' \\ \t",
        b"\x00\xff",
        datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        date(2026, 2, 3),
        timedelta(days=2, microseconds=5),
        Decimal("12345.6789"),
        UUID(int=5),
        Colour.RED,
        Inner(3),
        [1, 2],
        {"a": 0.5},
    )
    uri, rows = database
    sink = bound(uri, Everything, tmp_path)
    sink.claim("r1", ())
    sink.deliver("main", 0, staged(sink, Everything, [event]))
    [row] = rows('SELECT flag, whole, real, text, raw, price, colour, maybe FROM "Out"')
    assert (bool(row[0]), row[1], row[2], row[3], bytes(row[4])) == (True, -(2**63), 0.1, event.text, event.raw)
    assert (Decimal(row[5]), row[6], row[7]) == (event.price, "red", None)


def test_a_table_belongs_to_its_run(database, tmp_path):
    uri, rows = database
    sink = bound(uri, Total, tmp_path)
    sink.claim("r1", ())
    sink.deliver("main", 7, staged(sink, Total, [Total("a", 1, 1)]))
    with pytest.raises(SinkError, match="table Out of .* holds data that is not of this run"):
        bound(uri, Total, tmp_path).claim("r2", ())
    bound(f"{uri}?table=else", Total, tmp_path).claim("r2", ())
    fresh = bound(uri, Total, tmp_path)
    fresh.claim("r3", ("r1",))  # --fresh discards what r1 left
    assert rows('SELECT count(*) FROM "Out"') == [(0,)]
    fresh.deliver("main", 0, staged(fresh, Total, [Total("b", 1, 1)]))
    assert rows('SELECT text FROM "Out"') == [("b",)]


def test_a_table_that_does_not_fit_is_refused(database, tmp_path):
    uri, _ = database
    sink = bound(f"{uri}?table=t", Inner, tmp_path)
    sink.claim("r1", ())
    with pytest.raises(SinkError, match="has no column text, part, seen, note"):
        bound(f"{uri}?table=t", Total, tmp_path).claim("r1", ())


def test_an_optional_key_is_refused(database, tmp_path):
    with pytest.raises(ConfigurationError, match="upserted by note, which must not be optional"):
        bound(database[0], Total, tmp_path, key=("note",))


def test_two_sinks_of_one_table_are_refused(database, tmp_path):
    stream = Stream("S", Total)
    sinks = [Sink("A", stream, f"{database[0]}?table=t"), Sink("B", stream, f"{database[0]}?table=t")]
    with pytest.raises(ConfigurationError, match="both write to table t"):
        bind_sinks(sinks, {}, tmp_path)


OTHER_SPELLINGS = {
    "schema": lambda uri, table: f"{uri}?table=public.{table}",
    "host": lambda uri, table: f"{uri.replace('127.0.0.1', 'localhost')}?table={table}",
}


@pytest.mark.parametrize("spelling", OTHER_SPELLINGS)
def test_a_table_in_postgresql_is_one_however_it_is_addressed(postgres, tmp_path, spelling):
    """Two sinks of a run, and sinks of two runs; capitals and dots in names are those of other tables."""
    table = f"t{time.time_ns()}"
    other = OTHER_SPELLINGS[spelling](postgres.uri, table)
    assert other != f"{postgres.uri}?table={table}"
    stream = Stream("S", Total)
    sinks = [Sink("A", stream, f"{postgres.uri}?table={table}"), Sink("B", stream, other)]
    sinks.append(Sink("C", stream, f"{postgres.uri}?table={table.upper()}"))
    run = bind_sinks(sinks, {}, tmp_path)
    for sink in run.values():
        sink.claim("r1", ())
    with pytest.raises(ConfigurationError, match=f"The sinks A and B both write to table .*{table}"):
        refuse_shared(run)
    refuse_shared({name: run[name] for name in "AC"})
    with pytest.raises(SinkError, match="not of this run"):
        bound(other, Total, tmp_path).claim("r2", ())


@pytest.mark.parametrize("moment", ["before", "copy", "commit"])
def test_a_server_killed_in_the_middle_of_a_batch(postgres, tmp_path, monkeypatch, moment):
    sink = bound(f"{postgres.uri}?table=killed_{moment}", Total, tmp_path)
    sink.claim("r1", ())
    files = staged(sink, Total, [Total(str(number), 1, number) for number in range(5_000)])
    starting = []

    def kill_once():
        if not starting:
            postgres.kill()
            starting.append(threading.Timer(1.0, postgres.start))
            starting[0].start()

    class Dying(list):
        def __iter__(self):
            for number, row in enumerate(super().__iter__()):
                if number == 2_500:
                    kill_once()
                yield row

    load = Postgres.load

    def load_and_die(self, cursor, table, rows):
        if moment == "copy":
            load(self, cursor, table, Dying(rows))
        else:
            load(self, cursor, table, rows)
            kill_once()

    if moment == "before":
        kill_once()
    else:
        monkeypatch.setattr(Postgres, "load", load_and_die)
    sink.deliver("main", 0, files)
    starting[0].join()
    with psycopg.connect(postgres.uri) as connection:
        query = f"SELECT count(*), count(DISTINCT text), sum(seen) FROM killed_{moment}"
        assert connection.execute(query).fetchone() == (5_000, 5_000, sum(range(5_000)))


def test_a_commit_that_went_unanswered_is_not_repeated(postgres, tmp_path, monkeypatch):
    sink = bound(f"{postgres.uri}?table=unanswered", Total, tmp_path)
    sink.claim("r1", ())
    transaction = Postgres.transaction
    answers = []

    def lose_the_answer(self):
        from contextlib import contextmanager

        from penstock.connectors.tables.sink import Unavailable

        @contextmanager
        def once():
            with transaction(self) as cursor:
                yield cursor
            if not answers:
                answers.append("lost")
                raise Unavailable("the connection broke after COMMIT was sent")

        return once()

    monkeypatch.setattr(Postgres, "transaction", lose_the_answer)
    sink.deliver("main", 0, staged(sink, Total, [Total("a", 1, 1)]))
    with psycopg.connect(postgres.uri) as connection:
        assert connection.execute("SELECT count(*) FROM unanswered").fetchone() == (1,)


def test_a_server_that_stays_away_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.connectors.tables.sink.AT_FIRST_S", 0.5)
    sink = bound("postgresql://nobody:secret@127.0.0.1:9/none", Total, tmp_path)
    with pytest.raises(SinkError, match="has not answered for 0.5 s") as caught:
        sink.claim("r1", ())
    assert "secret" not in str(caught.value)


def test_a_file_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="cannot be written"):
        bound(f"sqlite:{tmp_path}/file/db", Total, tmp_path).claim("r1", ())


def test_what_is_no_database_is_refused(tmp_path):
    (tmp_path / "db").write_text("this is no database, but long enough to have a header of its own " * 20)
    with pytest.raises(SinkError, match="not a database"):
        bound(f"sqlite:{tmp_path}/db", Total, tmp_path).claim("r1", ())


def test_a_database_that_is_only_looked_at_is_not_made(tmp_path):
    class Row(Event):
        key: int

    sink = bound(f"sqlite:{tmp_path / 'deep' / 'rows.db'}", Row, tmp_path)
    sink.inspect("a run", ())
    assert not (tmp_path / "deep").exists()
    sink.claim("a run", ())
    sink.inspect("a run", ())
    assert (tmp_path / "deep" / "rows.db").exists()
