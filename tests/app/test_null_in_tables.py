"""A choice that is named null, and bytes whose Base64 is null, are no None in a table that is looked up."""

import json
import sqlite3
from contextlib import closing
from enum import Enum
from typing import Literal

import pytest

from penstock import App, Event
from penstock.testing import TopologyDriver


class Choice(Enum):
    NULL = "null"
    OTHER = "other"


class Row(Event):
    k: int
    a: Literal["null", "x"] | None = None
    c: Choice | None = None
    b: bytes | None = None
    d: dict[str, Literal["null", "x"] | None] = {}


class Asked(Event):
    k: int


class Found(Event):
    row: Row


WITHIN = {"z": "null", "n": None}
CELLS = [1, "null", "null", "null", json.dumps(WITHIN)]


def csv_table(place):
    quoted = CELLS[4].replace('"', '""')
    place.write_text(f'k,a,c,b,d\n1,null,null,null,"{quoted}"\n')
    return f"csv:{place}"


def sqlite_table(place):
    with closing(sqlite3.connect(place)) as database, database:
        database.execute("CREATE TABLE t (k INTEGER, a TEXT, c TEXT, b TEXT, d TEXT)")
        database.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?)", CELLS)
    return f"sqlite:{place}/t"


@pytest.mark.parametrize("table", [csv_table, sqlite_table])
def test_null_is_a_name(table, tmp_path):
    app = App("null")
    asked, found = app.source("Asked", Asked), app.stream("Found", Found)
    app.sink("Out", found)
    app.lookup(asked, table(tmp_path / "table"), key="k", row=Row, emits=found, name="L")(lambda event, row: iter([found(row)]))
    driver = TopologyDriver(app)
    driver.batch({"Asked": [Asked(1)]})
    assert driver.output("Out") == [Found(Row(1, "null", Choice.NULL, b"\x9e\xe9e", WITHIN))]
