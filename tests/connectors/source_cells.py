"""What files and tables have been found to hold, and what becomes of it at each door; docs/how-to/sources-and-sinks.md has the
table.
"""

import codecs
import gzip
import json
import sqlite3

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake

from penstock import Event
from penstock.app.stream import Source
from penstock.app.table import Table
from penstock.connectors.declaration import SourceContext
from penstock.connectors.files.reader import FileReader
from penstock.connectors.registry import bind_source
from penstock.errors import PenstockError
from penstock.runtime.codec import Codec
from penstock.runtime.entrance import Misfit


class Row(Event):
    name: str
    city: str | None = None
    size: int | None = None


ROWS = [Row("Ada", "Z\u00fcrich", 1), Row("Bob", "Rome", 2)]
COLUMNS = {name: [getattr(row, name) for row in ROWS] for name in ("name", "city", "size")}
LONG = "x" * 100

SHAPES = {
    "a column added": {**COLUMNS, "more": ["x", "y"]},
    "an optional column removed": {name: COLUMNS[name] for name in ("name", "size")},
    "a required column removed": {name: COLUMNS[name] for name in ("city", "size")},
    "columns in another order": {name: COLUMNS[name] for name in ("size", "city", "name")},
    "a column of another type": {**COLUMNS, "size": ["one", "two"]},
    "a column renamed in case": {"name": COLUMNS["name"], "City": COLUMNS["city"], "size": COLUMNS["size"]},
    "columns with names of ours": {**COLUMNS, "born": [1, 2], "now": [1, 2], "major": [1, 2], "_born": [1, 2]},
    "a column with a name of 100 bytes": {**COLUMNS, LONG: [1, 2]},
    "no rows": {name: [] for name in COLUMNS},
}
"""Columns, however they are written."""
FORMS = ("another encoding", "a mark at the beginning", "packed and cut short", "nothing at all")
"""What becomes of the bytes of a file."""
DOORS = ("CSV", "Parquet", "JSON", "Delta", "CSV, looked up", "JSON, looked up", "Parquet, looked up", "SQLite, looked up")

EXACT, NONE, LETTERS, REFUSED, NO_ROWS = "exact", "`None`", "dead letters", "refused", "no rows"
EXPECTED = {
    "a column added": (EXACT,) * 8,
    "an optional column removed": (NONE,) * 7 + (REFUSED,),
    "a required column removed": (LETTERS, LETTERS, LETTERS, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED),
    "columns in another order": (EXACT,) * 8,
    "a column of another type": (LETTERS, LETTERS, LETTERS, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED),
    "a column renamed in case": (LETTERS, LETTERS, NONE, REFUSED, REFUSED, NONE, REFUSED, EXACT),
    "columns with names of ours": (EXACT,) * 8,
    "a column with a name of 100 bytes": (EXACT,) * 8,
    "no rows": (NO_ROWS,) * 8,
    "another encoding": (LETTERS, "", LETTERS, "", REFUSED, REFUSED, "", ""),
    "a mark at the beginning": (EXACT, "", EXACT, "", EXACT, EXACT, "", ""),
    "packed and cut short": (REFUSED, REFUSED, "", REFUSED, REFUSED, "", REFUSED, REFUSED),
    "nothing at all": (NO_ROWS, REFUSED, NO_ROWS, "", REFUSED, NO_ROWS, REFUSED, REFUSED),
}
"""By what is tried, for each door: every row that is there as it is, or with `None`, or a dead letter, or what a sentence
refuses; where the first file of a source is refused at the start, later ones make dead letters. Nothing where there is no such
thing.
"""


def outcome(tried, door, directory):
    """What comes of it."""
    written = _written(tried, door, directory)
    try:
        if door.endswith("looked up"):
            events, letters = _looked_up(written), 0
        elif door == "Delta":
            sequence = bind_source(Source("Rows", Row, uri=f"delta:{written}"), None, SourceContext()).sequence
            events, letters = _decoded(sequence.read(0, sequence.end(0.0), 0.0).payloads)
        else:
            events, letters = _read(written, door)
    except PenstockError as error:
        return REFUSED if "\n" not in str(error) else "more than a sentence"
    if letters:
        return LETTERS
    if not events:
        return NO_ROWS
    if events == ROWS:
        return EXACT
    assert events == [msgspec.structs.replace(row, city=None) for row in ROWS], events
    return NONE


def _written(tried, door, directory):
    columns = SHAPES.get(tried, COLUMNS)
    kind = door.partition(",")[0]
    if kind == "Delta":
        place = directory / "table"
        write_deltalake(place, _arrow(columns))
        if tried == "packed and cut short":
            (file,) = place.glob("*.parquet")
            file.write_bytes(file.read_bytes()[:-20])
        return place
    if kind == "SQLite":
        return _in_sqlite(tried, columns, directory)
    if kind == "Parquet":
        place = directory / "rows.parquet"
        pq.write_table(_arrow(columns), place)
        content = place.read_bytes()
        place.write_bytes({"packed and cut short": content[:-20], "nothing at all": b""}.get(tried, content))
        return place
    return _as_text(tried, kind, columns, directory)


def _as_text(tried, kind, columns, directory):
    rows = list(zip(*columns.values(), strict=True))
    if kind == "CSV":
        text = "".join(",".join(map(str, row)) + "\n" for row in [tuple(columns), *rows])
    else:
        text = "".join(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
    content = text.encode("latin-1" if tried == "another encoding" else "utf-8")
    place = directory / ("rows.csv" if kind == "CSV" else "rows.jsonl")
    if tried == "a mark at the beginning":
        content = codecs.BOM_UTF8 + content
    if tried == "nothing at all":
        content = b""
    if tried == "packed and cut short":
        place, content = place.with_name(place.name + ".gz"), gzip.compress(content)[:-9]
    place.write_bytes(content)
    return place


def _arrow(columns):
    kinds = {"name": pa.string(), "city": pa.string(), "size": pa.int64()}
    return pa.table({name: pa.array(values, None if values else kinds[name]) for name, values in columns.items()})


def _in_sqlite(tried, columns, directory):
    place = directory / "rows.sqlite"
    if tried == "nothing at all":
        return place
    with sqlite3.connect(place) as database:
        names = ", ".join(f'"{name}"' for name in columns)
        database.execute(f"CREATE TABLE rows ({names})")
        rows = zip(*columns.values(), strict=True)
        database.executemany(f"INSERT INTO rows VALUES ({', '.join('?' * len(columns))})", rows)
    database.close()
    if tried == "packed and cut short":
        place.write_bytes(place.read_bytes()[:-4000])
    return place


def _looked_up(place):
    uri = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet", ".sqlite": "sqlite"}[
        next(suffix for suffix in place.suffixes if suffix != ".gz")
    ]
    table = Table(f"{uri}:{place}" + ("/rows" if uri == "sqlite" else ""), Row, ("name",), "1 s")
    table.follow()
    return list(table._rows.values())


def _decoded(payloads):
    events, letters = [], 0
    for payload in payloads:
        try:
            events.append(Codec(Row).decode_json(payload))
        except (ValueError, msgspec.MsgspecError):
            letters += 1
    return events, letters


def _read(place, door):
    if door == "JSON":
        content = place.read_bytes().removeprefix(codecs.BOM_UTF8)
        return _decoded(line for line in content.splitlines() if line.strip())
    events, letters, codec = [], 0, Codec(Row)
    for part in FileReader("Rows", "Row", door.lower(), codec.schema, None).parts(f"file:{place}"):
        if isinstance(part, pa.RecordBatch):
            events += codec.from_columns(part)
            continue
        for row in part:
            try:
                if isinstance(row, Misfit):
                    raise ValueError(row.reason)
                events.append(codec.from_text(row))
            except ValueError:
                letters += 1
    return events, letters


def table():
    """The table of the docs."""
    lines = ["| | " + " | ".join(DOORS) + " |", "| --- " * (len(DOORS) + 1) + "|"]
    lines += [f"| {tried} | " + " | ".join(found) + " |" for tried, found in EXPECTED.items()]
    return "\n".join(lines)
