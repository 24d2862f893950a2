"""What is staged and not delivered yet, and what others have left where a sink is to write."""

import sqlite3

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from penstock import Event
from penstock.app.stream import Sink, Stream
from penstock.connectors.registry import bind_sinks
from penstock.connectors.tables import delta
from penstock.engine.running.ledger import clear_staging, staged_below
from penstock.errors import ConfigurationError, SinkError
from penstock.testing.contracts import stage


class Former(Event):
    n: int


class Latter(Event):
    n: int
    s: str | None = None


def bound(uri, kind, directory, key=()):
    return bind_sinks([Sink("Out", Stream("S", kind), uri, key)], {}, directory / "output")["Out"]


def claimed(*how, **more):
    sink = bound(*how, **more)
    sink.inspect("run", ())
    sink.claim("run", ())
    return sink


def add_column(uri):
    door, _, place = uri.partition(":")
    if door == "sqlite":
        with sqlite3.connect(place) as connection:
            connection.execute('ALTER TABLE "Out" ADD COLUMN s text')
    else:
        DeltaTable(place).alter.add_columns([Field("s", PrimitiveType("string"))])


@pytest.mark.parametrize("door", ["sqlite", "delta"])
@pytest.mark.parametrize("grows", [True, False])
def test_what_was_staged_with_other_fields_waits_for_the_former_application(door, grows, tmp_path):
    """The driver died between commit and delivery, and the application's events have another field since."""
    uri = f"{door}:{tmp_path}/there"
    former, latter = (Former, Latter) if grows else (Latter, Former)
    sink = claimed(uri, former, tmp_path)
    sink.deliver("main", 0, stage(sink, [former(1)]))
    left = stage(sink, [former(2) if grows else Latter(2, "kept")])
    if grows:
        add_column(uri)
    now = claimed(uri, latter, tmp_path)
    with pytest.raises(SinkError, match="had the fields .* start once with the application as it was"):
        now.deliver("main", 1, left)
    again = claimed(uri, former, tmp_path)
    again.deliver("main", 1, left)
    assert sorted(event.n for event in again.read()) == [1, 2]
    assert grows or {event.s for event in again.read()} == {None, "kept"}


@pytest.mark.parametrize(
    ("statement", "key", "says"),
    [
        ('CREATE TABLE "Out" (n integer, s text COLLATE NOCASE PRIMARY KEY)', ("s",), "(?i)of collation nocase"),
        ('CREATE TABLE "Out" (n integer UNIQUE ON CONFLICT IGNORE, s text)', (), "ON CONFLICT IGNORE"),
        ('CREATE TABLE "Out" (n integer unique on  conflict replace, s text)', (), "ON CONFLICT REPLACE"),
        ('CREATE TABLE "Out" (n integer, s text NOT NULL ON CONFLICT REPLACE DEFAULT 1)', (), "ON CONFLICT REPLACE"),
    ],
)
def test_a_table_that_drops_or_merges_rows_is_refused(statement, key, says, tmp_path):
    class Text(Event):
        n: int
        s: str

    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute(statement)
    with pytest.raises(SinkError, match=says):
        bound(f"sqlite:{tmp_path}/t.sqlite", Text, tmp_path, key).inspect("run", ())


def test_a_table_with_an_ordinary_key_is_taken(tmp_path):
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute('CREATE TABLE "Out" (n integer, s text COLLATE NOCASE, PRIMARY KEY (n))')
        connection.execute('CREATE UNIQUE INDEX other ON "Out" (n)')
    claimed(f"sqlite:{tmp_path}/t.sqlite", Latter, tmp_path, key=("n",))


@pytest.mark.parametrize(
    "statement",
    [
        'CREATE TABLE "Out" (n integer PRIMARY KEY ON CONFLICT REPLACE, s text)',
        'CREATE TABLE "Out" (n integer, s text, PRIMARY KEY (n) ON CONFLICT IGNORE)',
        'CREATE TABLE "Out" (n integer PRIMARY KEY, s text UNIQUE COLLATE NOCASE)',
        'CREATE TABLE "Out" (n integer COLLATE NOCASE, s text, PRIMARY KEY (n)) /* not ON CONFLICT IGNORE */',
    ],
)
def test_a_table_that_loses_nothing_is_taken(statement, tmp_path):
    with sqlite3.connect(tmp_path / "t.sqlite") as connection:
        connection.execute(statement)
    sink = claimed(f"sqlite:{tmp_path}/t.sqlite", Latter, tmp_path, key=("n",))
    for batch, text in enumerate(("one", "other")):
        sink.deliver("main", batch, stage(sink, [Latter(1, text)]))
    assert sink.read() == [Latter(1, "other")]


def test_fields_that_sqlite_takes_for_one_column_are_refused(tmp_path):
    class Twice(Event):
        a: int
        A: int

    with pytest.raises(ConfigurationError, match="SQLite takes a and A for one column"):
        bound(f"sqlite:{tmp_path}/t.sqlite", Twice, tmp_path)

    class Accents(Event):
        é: int
        É: int

    claimed(f"sqlite:{tmp_path}/t.sqlite", Accents, tmp_path)


@pytest.mark.parametrize("door", ["jsonl", "parquet"])
def test_what_others_have_staged_is_not_removed(door, tmp_path):
    precious = tmp_path / "out" / ".staging" / "precious.txt"
    precious.parent.mkdir(parents=True)
    precious.write_text("mine")
    sink = bound(f"{door}:{tmp_path}/out", Former, tmp_path)
    leftovers = staged_below([tmp_path / "out"])
    with pytest.raises(SinkError, match="holds data that is not of this run"):
        sink.inspect("run", ())
    assert leftovers == [precious]
    assert precious.read_text() == "mine"


def test_what_a_run_has_staged_is_its_own(tmp_path):
    sink = claimed(f"jsonl:{tmp_path}/out", Former, tmp_path)
    stage(sink, [Former(1)])
    claimed(f"jsonl:{tmp_path}/out", Former, tmp_path)
    clear_staging(staged_below([tmp_path / "out"]))
    assert staged_below([tmp_path / "out"]) == []


def test_a_repeated_delivery_is_made_durable_too(tmp_path, monkeypatch):
    """The driver was killed after its commit to a Delta table, and another program has added rows since."""
    uri = f"delta:{tmp_path}/there"
    sink = claimed(uri, Former, tmp_path)
    files = stage(sink, [Former(1)])
    with monkeypatch.context() as patched:
        patched.setattr(delta.DeltaSink, "_make_durable", lambda *given: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sink.deliver("main", 0, files)
    [added] = list((tmp_path / "there").glob("*.parquet"))
    DeltaTable(str(tmp_path / "there")).alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})
    synced = []
    monkeypatch.setattr(delta.durable, "sync_path", synced.append)
    claimed(uri, Former, tmp_path).deliver("main", 0, files)
    assert added in synced
    log = tmp_path / "there" / "_delta_log"
    assert {log / f"{version:020}.json" for version in (1, 2)} <= {*synced}
