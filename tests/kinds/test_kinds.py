"""Each kind of field at each door: it comes out as it went in, or is refused with a sentence. No third outcome, but those
listed.
"""

import math
import time
from datetime import time as clock
from decimal import Decimal
from typing import Any

import pytest
from kind_cells import DOORS, Column, columns, outcome, sink_door

from penstock.kinds.fields import scalars_in

COLUMNS = {column.name: column for column in columns()}

JSON = {"JSON Lines", "log", "JSON Schema", "lookup in JSON Lines"}
TEXTS = {"key as text", "beside a message", "CSV", "lookup in CSV"}
ARROW = {
    "Parquet",
    "Delta",
    "Iceberg",
    "upsert in Delta",
    "upsert in Iceberg",
    "columns, batch dialect",
    "key, batch dialect",
    "lookup in Parquet",
}
DATABASES = {"SQLite", "upsert in SQLite", "lookup in SQLite", "PostgreSQL", "upsert in PostgreSQL"}
MESSAGE_PACK = {
    "hop, event dialect",
    "state, event dialect",
    "key, event dialect",
    "key of several fields",
    "key of a window",
    "looked up by",
}
FORMATS = {"Avro", "Protobuf"}


def is_refused(door: str, column: Column) -> str | None:
    """What the sentence says by which a column is refused, before there is a run."""
    name, nested = column.name, column.is_nested
    if door == "state, batch dialect" and not column.fits_array:
        if column.name == "int beyond 64 bits":
            return "which does not fit an array of int"
        return "asks more of its fields" if "naive" in name and not name.startswith("event") else "no array"
    if door == "key, batch dialect" and nested:
        return "by which the batch dialect cannot tell rows apart"
    if door in ("Delta", "Iceberg") and nested and "timedelta" in name:
        return "keeps no durations within"
    if door == "Delta" and name == "dict[str, naive datetime]":
        return "TIMESTAMP_NTZ"
    if door in ("upsert in Delta", "upsert in Iceberg") and nested:
        return "which such a table cannot compare" if "timedelta" not in name else ""
    if door.startswith("upsert") and "| None" in name:
        return "must not be optional"
    if door == "looked up by" and name == "int beyond 64 bits":
        return "can't serialize ints"
    return None


def is_letter(door: str, column: Column, value: Any) -> bool:
    """Whether a value is a dead letter: the door has no word for it."""
    scalars = list(scalars_in(value))
    endless = any(isinstance(each, float) and not math.isfinite(each) for each in scalars)
    if column.name == "str that is no UTF-8":
        return door != "CSV"  # whose lines have been decoded before
    if door == "looked up by" and endless:
        return True  # the table is JSON Lines here
    if any(isinstance(each, int) and not -(2**63) <= each < 2**64 for each in scalars) and door not in JSON | TEXTS:
        return True
    if any(isinstance(each, int) and each >= 2**63 for each in scalars) and door in ARROW | FORMATS | DATABASES:
        return True
    if door in ("upsert in Delta", "upsert in Iceberg") and value != value:
        return True
    if door == "Avro" and any(isinstance(each, clock) and each.tzinfo for each in scalars):
        return True
    if any(isinstance(each, Decimal) and not fits_decimal(each) for each in scalars) and door in ARROW:
        return True
    if "\0" in map(str, scalars) and "PostgreSQL" in door:
        return True
    if column.name.endswith("| None") and not isinstance(value, list | dict):
        return endless and door in JSON and math.isinf(value) and door != "lookup in JSON Lines"
    if door in JSON | TEXTS | DATABASES and endless:
        return (
            column.is_nested
            or door in JSON
            or (door in ("SQLite", "upsert in SQLite", "lookup in SQLite") and math.isnan(value))
        )
    return False


def is_nothing(door: str, column: Column, value: Any) -> bool:
    """Whether a value of what may be None is None: NaN in JSON and SQLite."""
    if not column.name.endswith("| None"):
        return False
    if isinstance(value, float) and math.isnan(value):
        return door in JSON or door in ("SQLite", "lookup in SQLite")
    return door == "lookup in JSON Lines" and isinstance(value, float) and math.isinf(value)


def fits_decimal(number: Decimal) -> bool:
    """Whether a number has 20 digits before its point, and 18 behind it, at most."""
    if not number.is_finite():
        return False
    _, _, fraction = str(f"{number:f}").partition(".")
    return len(fraction.rstrip("0")) <= 18 and -(10**20) < number < 10**20


LAKES = {"Delta", "Iceberg", "upsert in Delta", "upsert in Iceberg"}
CELLS = [
    pytest.param(door, name, marks=pytest.mark.slow if door in LAKES or column.is_nested else ())
    for name, column in COLUMNS.items()
    for door in DOORS
]


@pytest.mark.parametrize(("door", "name"), CELLS)
def test_what_goes_in_comes_out(door, name, tmp_path):
    check(door, DOORS[door], COLUMNS[name], tmp_path)


def check(door, carry, column, directory):
    found = outcome(column, carry, directory)
    refused = is_refused(door, column)
    if refused is not None or found.refused is not None:
        assert refused is not None, found.refused
        assert refused in (found.refused or ""), found
        return
    assert list(map(repr, found.letters)) == [repr(value) for value in column.values if is_letter(door, column, value)]
    assert list(map(repr, found.nothing)) == [repr(value) for value in column.values if is_nothing(door, column, value)]


@pytest.mark.servers
@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("key", [(), ("value",)])
def test_what_goes_into_postgresql_comes_out(name, key, tmp_path, postgres):
    table = f"t{time.time_ns()}"
    door = "upsert in PostgreSQL" if key else "PostgreSQL"
    check(door, sink_door(f"{postgres.uri}?table={table}", key), COLUMNS[name], tmp_path)
