"""What a database refuses for what is in a row is a dead letter, once; the rest goes in. And tables that could not take the
events.
"""

import json
import sqlite3
import time
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from test_tables import bound, staged

from penstock import Event
from penstock.connectors.sink import Refusals
from penstock.errors import ConfigurationError, SinkError


class Price(Event):
    name: str
    price: Decimal


class Thing(Event):
    name: str
    size: int
    real: float = 0.0
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.servers)])
def database(request, tmp_path):
    """A URI of a fresh database, and what runs a statement on it."""
    if request.param == "sqlite":
        path = tmp_path / "results.sqlite"

        def in_file(statement):
            connection = sqlite3.connect(path)
            try:
                rows = connection.execute(statement).fetchall()
                connection.commit()
                return rows
            finally:
                connection.close()

        return f"sqlite:{path}", in_file
    return postgres_database(request.getfixturevalue("postgres"))


def postgres_database(server, options=""):
    name = f"d{time.time_ns()}"
    with psycopg.connect(server.uri, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} {options}")
    uri = server.uri.removesuffix("penstock") + name

    def on_server(statement):
        with psycopg.connect(uri, client_encoding="utf8") as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    return uri, on_server


@pytest.fixture
def postgresql(postgres):
    return postgres_database(postgres)


def delivered(uri, events, tmp_path, key=(), batch=0):
    sink = bound(uri, type(events[0]), tmp_path, key)
    letters = tmp_path / "letters"
    letters.mkdir(exist_ok=True)
    sink.refusals = Refusals(letters, 0, "Out", "Things")
    sink.claim("r1", ())
    for _ in range(2):  # as after a crash
        sink.deliver("main", batch, staged(sink, type(events[0]), events))
    return [json.loads(line) for path in sorted(letters.iterdir()) for line in path.read_text().splitlines()]


def things(*sizes):
    return [Thing(f"n{number}", size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize("key", [(), ("name",)])
def test_rows_that_a_constraint_refuses_are_dead_letters_and_the_others_go_in(database, tmp_path, key):
    uri, run = database
    run(
        'CREATE TABLE "Out" (name text PRIMARY KEY, size bigint NOT NULL CHECK (size < 100), real double precision, at text)'
        if uri.startswith("sqlite")
        else 'CREATE TABLE "Out" (name text PRIMARY KEY, size bigint NOT NULL CHECK (size < 100), real double precision, at '
        "timestamptz)"
    )
    letters = delivered(uri, things(*range(90, 110)), tmp_path, key)
    assert sorted(run('SELECT size FROM "Out"')) == [(size,) for size in range(90, 100)]
    assert [letter["event"]["size"] for letter in letters] == list(range(100, 110))
    assert {letter["element"] for letter in letters} == {"Out"}
    assert all("refuses it: " in letter["error"] and "onstraint" in letter["error"] for letter in letters)


def test_rows_that_a_trigger_refuses_are_dead_letters(database, tmp_path):
    uri, run = database
    if uri.startswith("sqlite"):
        run('CREATE TABLE "Out" (name text, size bigint, real real, at text)')
        run("CREATE TRIGGER no BEFORE INSERT ON \"Out\" WHEN NEW.size = 5 BEGIN SELECT RAISE(ABORT, 'not five'); END")
    else:
        run('CREATE TABLE "Out" (name text, size bigint, real double precision, at timestamptz)')
        run(
            "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.size = 5 THEN RAISE 'not five'; END IF; "
            "RETURN NEW; END $$"
        )
        run('CREATE TRIGGER no BEFORE INSERT ON "Out" FOR EACH ROW EXECUTE FUNCTION no()')
    [letter] = delivered(uri, things(4, 5, 6), tmp_path)
    assert "not five" in letter["error"]
    assert run('SELECT size FROM "Out" ORDER BY size') == [(4,), (6,)]


@pytest.mark.servers
@pytest.mark.parametrize("key", [(), ("name",)])
def test_thousands_of_refused_rows_are_found(postgresql, tmp_path, key):
    uri, run = postgresql
    run('CREATE TABLE "Out" (name text PRIMARY KEY, size bigint CHECK (size % 2 = 0), real double precision, at timestamptz)')
    letters = delivered(uri, things(*range(4_000)), tmp_path, key)
    assert len(letters) == 2_000
    assert run('SELECT count(*) FROM "Out"') == [(2_000,)]


def test_equal_decimals_are_one_key(database, tmp_path):
    uri, run = database
    assert delivered(uri, [Price("a", Decimal("1.10")), Price("b", Decimal("1.1"))], tmp_path, ("price",)) == []
    assert run('SELECT name FROM "Out"') == [("b",)]


def test_a_trigger_that_rolls_all_back_is_told_with_its_words(tmp_path):
    path = tmp_path / "t.sqlite"
    connection = sqlite3.connect(path)
    connection.execute('CREATE TABLE "Out" (name text, price text)')
    connection.execute(
        "CREATE TRIGGER no BEFORE INSERT ON \"Out\" WHEN NEW.name = 'b' BEGIN SELECT RAISE(ROLLBACK, 'not b'); END"
    )
    connection.commit()
    connection.close()
    with pytest.raises(SinkError, match="not b"):
        delivered(f"sqlite:{path}", [Price("a", Decimal(1)), Price("b", Decimal(1))], tmp_path)


@pytest.mark.servers
def test_a_key_that_no_index_holds_is_a_dead_letter(postgresql, tmp_path):
    uri, run = postgresql
    long = "".join(chr(0x4E00 + (number * 7919) % 20000) for number in range(6000))
    [letter] = delivered(uri, [Thing("a", 1), Thing(long, 2)], tmp_path, ("name",))
    assert "index row" in letter["error"]
    assert run('SELECT name FROM "Out"') == [("a",)]


@pytest.mark.servers
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_databases_of_other_encodings(postgres, tmp_path, encoding):
    uri, run = postgres_database(postgres, f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    letters = delivered(uri, [Thing("é", 1), Thing("€", 2)], tmp_path)
    assert len(letters) == (encoding == "LATIN1")
    assert all(letter["event"]["name"] == "€" and "encoding" in letter["error"] for letter in letters)
    sink = bound(uri, Thing, tmp_path)
    sink.claim("r1", ())  # a second start
    sink.deliver("main", 1, staged(sink, Thing, things(3)))
    assert run('SELECT size FROM "Out" ORDER BY size') == [(1,), (3,)] if letters else [(1,), (2,), (3,)]


UNFIT = {
    "rounding": ("name text, price numeric(10,2)", Price, "column price is numeric\\(10,2\\), which rounds"),
    "never null": ("name text, price numeric, more text NOT NULL", Price, "column more is NOT NULL without a default"),
    "always generated": ("name text, price numeric GENERATED ALWAYS AS (1) STORED", Price, "column price is generated"),
    "an identity": (
        "name text, size bigint GENERATED ALWAYS AS IDENTITY, real double precision, at timestamptz",
        Thing,
        "size is generated always",
    ),
    "another type": (
        "name text, size date, real double precision, at timestamptz",
        Thing,
        "column size is date and not bigint",
    ),
    "less exact": ("name text, size bigint, real real, at timestamptz", Thing, "column real is real and not double precision"),
    "no zone": (
        "name text, size bigint, real double precision, at timestamp",
        Thing,
        "column at is timestamp without time zone and not",
    ),
    "texts of numbers": (
        "name text, size bigint, real text, at timestamptz",
        Thing,
        "column real is text and not double precision",
    ),
    "padded": ("name char(10), price numeric", Price, "column name is character\\(10\\) and not text"),
}


@pytest.mark.servers
@pytest.mark.parametrize("how", UNFIT)
def test_a_table_that_could_not_take_the_events_is_refused_at_the_start(postgresql, tmp_path, how):
    uri, run = postgresql
    columns, event_type, reason = UNFIT[how]
    run(f'CREATE TABLE "Out" ({columns})')
    for start in ("inspect", "claim"):
        with pytest.raises(SinkError, match=f"Sink Out: table Out of .*{reason}"):
            getattr(bound(uri, event_type, tmp_path), start)("r1", ())


@pytest.mark.servers
@pytest.mark.parametrize("how", ["a view", "row-level security"])
def test_what_no_rows_are_copied_into_is_refused_at_the_start(postgresql, tmp_path, how):
    uri, run = postgresql
    run("CREATE TABLE things (name text, price numeric)")
    role = f"guarded{time.time_ns()}"
    run(f"CREATE ROLE {role} LOGIN")
    run(f"GRANT ALL ON SCHEMA public TO {role}")
    if how == "a view":
        run('CREATE VIEW "Out" AS SELECT * FROM things')
    else:
        run('ALTER TABLE things RENAME TO "Out"')
        run('ALTER TABLE "Out" ENABLE ROW LEVEL SECURITY')
    run(f'GRANT ALL ON "Out" TO {role}')
    own = uri.replace(uri.split("//")[1].split("@")[0], role) if "@" in uri else uri
    with pytest.raises(SinkError, match="it is a view" if how == "a view" else "row-level security holds for this role"):
        bound(own, Price, tmp_path).inspect("r1", ())


@pytest.mark.servers
@pytest.mark.parametrize("key", [(), ("name",)])
def test_blanks_that_a_column_would_cut_are_dead_letters(postgresql, tmp_path, key):
    uri, run = postgresql
    run(f'CREATE TABLE "Out" (name varchar(3){" UNIQUE" if key else ""}, price numeric)')
    prices = [Price(name, Decimal(1)) for name in ("abc", "ab ", "abc  ", "abcd")]
    letters = delivered(uri, prices, tmp_path, key)
    assert [letter["event"]["name"] for letter in letters] == ["abc  ", "abcd"]
    assert sorted(run('SELECT name FROM "Out"')) == [("ab ",), ("abc",)]


@pytest.mark.servers
def test_what_a_trigger_raises_with_a_state_of_its_own_is_a_dead_letter(postgresql, tmp_path):
    uri, run = postgresql
    run('CREATE TABLE "Out" (name text, price numeric)')
    run(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF NEW.price < 0 THEN RAISE 'no debts' USING ERRCODE = 'UE001'; END IF; RETURN NEW; END $$"
    )
    run('CREATE TRIGGER no BEFORE INSERT ON "Out" FOR EACH ROW EXECUTE FUNCTION no()')
    letters = delivered(uri, [Price("a", Decimal(1)), Price("b", Decimal(-1))], tmp_path)
    assert [(letter["event"]["name"], "no debts" in letter["error"]) for letter in letters] == [("b", True)]
    assert run('SELECT name FROM "Out"') == [("a",)]


FAILING = {
    "a check": ["CREATE TABLE \"Out\" (name text CHECK (json_extract(name, '$.a') > 0), price text)"],
    "an index": ['CREATE TABLE "Out" (name text, price text)', "CREATE INDEX i ON \"Out\" (json_extract(name, '$.a'))"],
}


@pytest.mark.parametrize("how", FAILING)
def test_an_expression_of_sqlite_that_fails_for_a_row_makes_it_a_dead_letter(tmp_path, how):
    connection = sqlite3.connect(tmp_path / "t.sqlite")
    for statement in FAILING[how]:
        connection.execute(statement)
    connection.commit()
    prices = [Price('{"a": 1}', Decimal(1)), Price("no JSON", Decimal(2))]
    letters = delivered(f"sqlite:{tmp_path / 't.sqlite'}", prices, tmp_path)
    assert [(letter["event"]["name"], "JSON" in letter["error"]) for letter in letters] == [("no JSON", True)]
    assert connection.execute('SELECT name FROM "Out"').fetchall() == [('{"a": 1}',)]


FITTING = {
    "a default": "name text, price numeric, more text NOT NULL DEFAULT 'x'",
    "an identity of its own": "id bigint GENERATED ALWAYS AS IDENTITY, name text, price numeric",
    "a shorter text": "name varchar(30), price numeric",
    "generated of others": "name text, price numeric, twice numeric GENERATED ALWAYS AS (price * 2) STORED",
    "a domain": "name label, price numeric",
}


@pytest.mark.servers
@pytest.mark.parametrize("key", [(), ("name",)])
@pytest.mark.parametrize("how", FITTING)
def test_tables_that_people_have(postgresql, tmp_path, how, key):
    uri, run = postgresql
    run("CREATE DOMAIN label AS text CHECK (value <> '')")
    run(f'CREATE TABLE "Out" ({FITTING[how]}{", UNIQUE (name)" if key else ""})')
    prices = [Price("a", Decimal(4) / 3), Price("b", Decimal("1E+21"))]
    assert delivered(uri, prices, tmp_path, key) == []
    assert sorted(run('SELECT name, price FROM "Out"')) == [("a", Decimal(4) / 3), ("b", Decimal("1E+21"))]


@pytest.mark.servers
def test_a_column_that_a_trigger_fills_may_be_never_null(postgresql, tmp_path):
    uri, run = postgresql
    run('CREATE TABLE "Out" (name text UNIQUE, price numeric, more text NOT NULL)')
    run("CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.more = 'x'; RETURN NEW; END $$")
    run('CREATE TRIGGER fill BEFORE INSERT ON "Out" FOR EACH ROW EXECUTE FUNCTION fill()')
    assert delivered(uri, [Price("a", Decimal(1))], tmp_path, ("name",)) == []
    assert run('SELECT more FROM "Out"') == [("x",)]


@pytest.mark.servers
def test_a_key_that_may_be_checked_later_is_refused_at_once(postgresql, tmp_path):
    uri, run = postgresql
    run('CREATE TABLE "Out" (name text PRIMARY KEY DEFERRABLE, price numeric)')
    began = time.monotonic()
    with pytest.raises(SinkError, match="the unique key by name may be checked later"):
        bound(uri, Price, tmp_path, ("name",)).claim("r1", ())
    assert time.monotonic() - began < 30


@pytest.mark.servers
def test_names_are_those_of_a_schema_and_none_is_cut(postgresql, tmp_path):
    uri, run = postgresql
    run("CREATE SCHEMA analytics")
    run("CREATE TABLE analytics.counts (name text, price numeric)")
    assert delivered(f"{uri}?table=analytics.counts", [Price("a", Decimal(1))], tmp_path) == []
    assert run("SELECT name FROM analytics.counts") == [("a",)]
    assert delivered(f"{uri}?table=arrived", [Price("a", Decimal(1))], tmp_path, ("name",), batch=1) == []
    with pytest.raises(ConfigurationError, match="cuts names at 63 bytes, and x{70} is longer"):
        bound(f"{uri}?table={'x' * 70}", Price, tmp_path)


@pytest.mark.servers
def test_who_may_not_make_tables_can_use_those_that_are_there(postgresql, tmp_path):
    uri, run = postgresql
    run('CREATE TABLE "Out" (name text, price numeric)')
    bound(uri, Price, tmp_path).claim("r1", ())  # makes the books
    run("REVOKE CREATE ON SCHEMA public FROM public")
    run("DROP ROLE IF EXISTS writer")
    run("CREATE ROLE writer LOGIN")
    run('GRANT SELECT, INSERT, UPDATE, DELETE ON "Out", penstock_tables, penstock_batches TO writer')
    own = uri.replace(uri.split("//")[1].split("@")[0], "writer") if "@" in uri else uri
    sink = bound(own, Price, tmp_path)
    sink.claim("r1", ())
    sink.deliver("main", 0, staged(sink, Price, [Price("a", Decimal(1))]))
    assert run('SELECT name FROM "Out"') == [("a",)]
    began = time.monotonic()
    with pytest.raises(SinkError, match="nobody"):
        bound(own.replace("writer", "nobody"), Price, tmp_path).claim("r1", ())
    assert time.monotonic() - began < 30


SQLITE_UNFIT = {
    "numbers of texts": ("name integer, price text", "column name is INTEGER, in which values of str would change"),
    "numbers of decimals": ("name text, price numeric", "column price is numeric, in which values of Decimal would change"),
    "never null": ("name text, price text, more text NOT NULL", "column more is NOT NULL without a default"),
    "generated": ("name text, price text GENERATED ALWAYS AS (name)", "no column price"),
}


@pytest.mark.parametrize("how", SQLITE_UNFIT)
def test_a_table_of_sqlite_that_would_change_values_is_refused(tmp_path, how):
    columns, reason = SQLITE_UNFIT[how]
    path = Path(tmp_path / "t.sqlite")
    connection = sqlite3.connect(path)
    connection.execute(f'CREATE TABLE "Out" ({columns})')
    connection.commit()
    connection.close()
    with pytest.raises(SinkError, match=reason):
        bound(f"sqlite:{path}", Price, tmp_path).claim("r1", ())
