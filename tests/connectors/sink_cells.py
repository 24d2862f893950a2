"""What results and tables have been found to be, and what becomes of them at each sink; docs/how-to/sources-and-sinks.md has
the table.
"""

import math
import sqlite3
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import psycopg
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from penstock import Event
from penstock.app.stream import Sink, Stream
from penstock.connectors.registry import bind_sinks
from penstock.connectors.sink import Refusals
from penstock.errors import PenstockError
from penstock.runtime.codec import Codec
from penstock.testing.contracts import stage


class Result(Event):
    name: str
    real: float = 0.0
    price: Decimal = Decimal(0)
    at: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    note: str | None = None


EVE = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5)))
VALUES = {
    "a text of 300,000 characters": ([Result("x" * 300_000)], ()),
    "a key of 6,000 characters": ([Result("".join(chr(0x4E00 + number) for number in range(6_000)))], ("name",)),
    "the character NUL": ([Result("a\0b")], ()),
    "NaN": ([Result("nan", math.nan)], ()),
    "NaN as a key": ([Result("nan", math.nan)], ("real",)),
    "infinity": ([Result("inf", math.inf)], ()),
    "0.0 and -0.0 as keys": ([Result("zero", 0.0), Result("minus", -0.0)], ("real",)),
    "a decimal of 38 digits": ([Result("many", price=Decimal("9" * 20 + "." + "9" * 18))], ()),
    "a decimal of more": ([Result("third", price=Decimal(1) / 3)], ()),
    "a time that is in the year 10000 in UTC": ([Result("eve", at=EVE)], ()),
    "a key that may be missing": ([Result("none")], ("note",)),
}
"""Results, and the sink's key."""
TABLES = (
    "a column of another type",
    "a column more, never null",
    "a column never null, for what may be",
    "a generated column",
    "a constraint",
    "a trigger that refuses",
    "a view",
    "no unique key to upsert by",
)
"""What a table that is there already may be."""
DOORS = ("JSON Lines", "Parquet", "SQLite", "PostgreSQL", "Delta", "Iceberg")

EXACT, LETTER, REFUSED, ONE = "exact", "dead letter", "refused", "one row"
EXPECTED = {
    "a text of 300,000 characters": (EXACT,) * 6,
    "a key of 6,000 characters": ("", "", EXACT, LETTER, EXACT, EXACT),
    "the character NUL": (EXACT, EXACT, EXACT, LETTER, EXACT, EXACT),
    "NaN": (LETTER, EXACT, LETTER, EXACT, EXACT, EXACT),
    "NaN as a key": ("", "", LETTER, EXACT, LETTER, LETTER),
    "infinity": (LETTER, EXACT, EXACT, EXACT, EXACT, EXACT),
    "0.0 and -0.0 as keys": ("", "", ONE, ONE, ONE, ONE),
    "a decimal of 38 digits": (EXACT,) * 6,
    "a decimal of more": (EXACT, LETTER, EXACT, EXACT, LETTER, LETTER),
    "a time that is in the year 10000 in UTC": (EXACT, LETTER, LETTER, LETTER, LETTER, LETTER),
    "a key that may be missing": ("", "", REFUSED, REFUSED, REFUSED, REFUSED),
    "a column of another type": ("", "", REFUSED, REFUSED, REFUSED, REFUSED),
    "a column more, never null": ("", "", REFUSED, REFUSED, REFUSED, REFUSED),
    "a column never null, for what may be": ("", "", LETTER, LETTER, REFUSED, REFUSED),
    "a generated column": ("", "", REFUSED, REFUSED, "", ""),
    "a constraint": ("", "", LETTER, LETTER, LETTER, ""),
    "a trigger that refuses": ("", "", LETTER, LETTER, "", ""),
    "a view": ("", "", REFUSED, REFUSED, "", ""),
    "no unique key to upsert by": ("", "", REFUSED, REFUSED, "", ""),
}
"""By what is tried, for each sink: the result is there as it was, or a dead letter, or a sentence refuses the sink before
anything is read; of equal keys there is one row. Nothing where there is no such thing."""


def outcome(tried, door, directory, postgres=None):
    """What comes of it, where a result that is plain goes in beside it."""
    results, key = VALUES.get(tried, ([Result("bad", note=None)], ("name",) if "upsert" in tried else ()))
    uri = _place(door, directory, postgres)
    if tried in TABLES:
        _PREPARED[door](tried, uri, directory)
    try:
        sink = bind_sinks([Sink("Out", Stream("S", Result), uri, key)], {}, directory / "output")["Out"]
        sink.inspect("r1", ())
        sink.claim("r1", ())
    except PenstockError as error:
        return REFUSED if "\n" not in str(error) else "more than a sentence"
    (directory / "letters").mkdir()
    sink.refusals = Refusals(directory / "letters", 0, "Out", "S")
    plain = Result("ok", 1.0, note="n")
    letters = 0
    for number, result in enumerate([plain, *results]):
        try:
            files = stage(sink, [result])  # by the rules of workers
        except (PenstockError, ValueError):
            letters += 1
        else:
            sink.deliver("main", number, files)
    letters += sum(len(path.read_text().splitlines()) for path in (directory / "letters").iterdir())
    found = sorted(map(_fields, sink.read()))
    if len(results) == 2:
        return ONE if len(found) == 2 else "two rows"
    assert found == sorted(map(_fields, [plain, *results][: 2 - letters])), found
    return LETTER if letters else EXACT


def _fields(result):
    """What equal results have equal, NaN with them."""
    return (result.name, str(result.real + 0.0), result.price, result.at, result.note)


def _place(door, directory, postgres):
    if door == "Iceberg":
        (directory / "lake").mkdir()
        told = f"catalog.type=sql&catalog.uri=sqlite:///{directory}/lake/catalog.db&catalog.warehouse=file://{directory}/lake"
        return f"iceberg:local/things.out?{told}"
    return {
        "JSON Lines": f"jsonl:{directory}/out",
        "Parquet": f"parquet:{directory}/out",
        "SQLite": f"sqlite:{directory}/out.sqlite",
        "PostgreSQL": postgres,
        "Delta": f"delta:{directory}/table",
    }[door]


def _in_sql(tried, run, types):
    """Make such a table."""
    columns = dict(zip(("name", "real", "price", "at", "note"), types, strict=True))
    after = []
    if tried == "a column of another type":
        columns["price"] = "date" if types[2] == "numeric" else "real"
    elif tried == "a column more, never null":
        columns["more"] = "text NOT NULL"
    elif tried == "a column never null, for what may be":
        columns["note"] += " NOT NULL"
    elif tried == "a generated column":
        columns["note"] = "text GENERATED ALWAYS AS ('x') STORED"
    elif tried == "a constraint":
        columns["name"] += " CHECK (name <> 'bad')"
    shown = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    run(f"CREATE TABLE {'things' if tried == 'a view' else chr(34) + 'Out' + chr(34)} ({shown})")
    if tried == "a view":
        after.append('CREATE VIEW "Out" AS SELECT * FROM things')
    return after


def _sqlite(tried, uri, directory):
    with sqlite3.connect(uri.removeprefix("sqlite:")) as database:
        for statement in _in_sql(tried, database.execute, ("text", "real", "text", "text", "text")):
            database.execute(statement)
        if tried == "a trigger that refuses":
            database.execute(
                "CREATE TRIGGER no BEFORE INSERT ON \"Out\" WHEN NEW.name = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END"
            )
    database.close()


def _postgresql(tried, uri, directory):
    with psycopg.connect(uri) as database:
        types = ("text", "double precision", "numeric", "timestamptz", "text")
        for statement in _in_sql(tried, database.execute, types):
            database.execute(statement)
        if tried == "a trigger that refuses":
            database.execute(
                "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "IF NEW.name = 'bad' THEN RAISE 'no'; END IF; RETURN NEW; END $$"
            )
            database.execute('CREATE TRIGGER no BEFORE INSERT ON "Out" FOR EACH ROW EXECUTE FUNCTION no()')


def _lake_columns(tried):
    schema = Codec(Result).schema
    if tried == "a column of another type":
        schema = schema.set(schema.get_field_index("price"), pa.field("price", pa.float64()))
    if tried == "a column more, never null":
        schema = schema.append(pa.field("more", pa.string(), False))
    if tried == "a column never null, for what may be":
        schema = schema.set(schema.get_field_index("note"), pa.field("note", pa.string(), False))
    return schema


def _delta(tried, uri, directory):
    table = DeltaTable.create(uri.removeprefix("delta:"), _lake_columns(tried))
    if tried == "a constraint":
        table.alter.add_constraint({"good": "name <> 'bad'"})


def _iceberg(tried, uri, directory):
    catalog = load_catalog(
        "local", type="sql", uri=f"sqlite:///{directory}/lake/catalog.db", warehouse=f"file://{directory}/lake"
    )
    catalog.create_namespace("things")
    catalog.create_table("things.out", _lake_columns(tried))


_PREPARED = {"SQLite": _sqlite, "PostgreSQL": _postgresql, "Delta": _delta, "Iceberg": _iceberg}


def table():
    """The table of the docs."""
    lines = ["| | " + " | ".join(DOORS) + " |", "| --- " * (len(DOORS) + 1) + "|"]
    lines += [f"| {tried} | " + " | ".join(found) + " |" for tried, found in EXPECTED.items()]
    return "\n".join(lines)
