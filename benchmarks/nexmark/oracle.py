"""What must come out of a query, by DuckDB over the same events, and what has come out."""

import importlib
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
from model import Auction, Bid, Person

from penstock import Event

HERE = Path(__file__).parent
QUERIES = sorted(path.stem for path in HERE.glob("q[0-9][0-9].py"))
Rows = list[tuple[Any, ...]]


def module_of(query: str) -> Any:
    """The query's module: its application ``app``, its ``SQL``, and how its results are to be taken.

    ``LAST`` names the fields of which the last result counts, ``SUM`` those over which results add up.
    """
    if str(HERE) not in sys.path:
        sys.path.append(str(HERE))
    return importlib.import_module(query)


def wanted(query: str, events: Sequence[Event]) -> Counter[tuple[Any, ...]]:
    """The rows that DuckDB finds."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for kind in (Person, Auction, Bid):
        rows = [msgspec.structs.asdict(event) for event in events if type(event) is kind]
        columns = {name: [_naive(row[name]) for row in rows] for name in kind.__struct_fields__}
        connection.register(f"{kind.__name__.lower()}_given", pa.table(columns))
        connection.execute(f"CREATE TABLE {kind.__name__.lower()} AS SELECT * FROM {kind.__name__.lower()}_given")
    return Counter(tuple(map(_plain, row)) for row in connection.execute(module_of(query).SQL).fetchall())


def found(query: str, results: Iterable[Event]) -> Counter[tuple[Any, ...]]:
    """The rows that results amount to."""
    module = module_of(query)
    rows = list(results)
    if hasattr(module, "LAST"):
        latest = {tuple(getattr(row, name) for name in module.LAST): row for row in rows}
        rows = list(latest.values())
    if hasattr(module, "SUM"):
        total: Counter[Any] = Counter()
        for row in rows:
            *key, count = msgspec.structs.astuple(row)
            total[tuple(key)] += count
        return Counter({(*key, count): 1 for key, count in total.items()})
    return Counter(tuple(map(_plain, msgspec.structs.astuple(row))) for row in rows)


def _naive(value: Any) -> Any:
    return value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value


def _plain(value: Any) -> Any:
    """A value that can be compared: times in UTC, floats to nine digits, lists as tuples."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    return tuple(value) if isinstance(value, list) else _naive(value)
