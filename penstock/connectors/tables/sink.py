"""Tables of a database: rows appended, or upserted by key, exactly once for each micro-batch.

The batch's number is noted in the transaction that writes its rows, so a batch whose commit went
unanswered is known when it is delivered again.
"""

import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa

from penstock.app.fields import opened
from penstock.app.stream import Sink
from penstock.connectors.sink import BoundSink, other_run, present
from penstock.connectors.tables.rules import refuse_optional_key
from penstock.errors import SinkError
from penstock.runtime.codec import Codec
from penstock.runtime.output import SinkFiles, StagedFile
from penstock.storage.tables import batches_in

Result = TypeVar("Result")
Done = TypeVar("Done", covariant=True)
Row = tuple[Any, ...]

PATIENCE_S, AT_FIRST_S = 120.0, 5.0
"""How long a batch is tried again while the database does not answer; and where it has never answered yet."""

BOOKS = """
CREATE TABLE IF NOT EXISTS penstock_tables (name text PRIMARY KEY, run text NOT NULL);
CREATE TABLE IF NOT EXISTS penstock_batches (
    name text NOT NULL, part text NOT NULL, batch bigint NOT NULL, PRIMARY KEY (name, part)
)
"""
"""Whose each table is, and the last batch that each group of the run has delivered to it."""


class Unavailable(Exception):
    """The database does not answer, or not now; it may later."""


class Cursor(Protocol):
    """What the statements below are run on."""

    @property
    def rowcount(self) -> int:
        """Rows that the last statement has written."""

    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> Any:
        """Run one."""

    def fetchone(self) -> Any:
        """The next row of a result, or None."""

    def fetchall(self) -> list[Any]:
        """All rows of a result."""


class Database(Protocol):
    """What differs from one database to another."""

    uri: str
    types: dict[str, str]
    """A column's type by the kind of its values; see `kind_of`."""
    mark: str
    """What stands for a parameter."""

    def transaction(self) -> AbstractContextManager[Cursor]:
        """A transaction, committed at the end of the block.

        Raises
        ------
        Unavailable: the database did not answer; whether it has committed may be unknown.
        SinkError: it refused.
        """

    def load(self, cursor: Cursor, table: "Table", rows: Iterator[Row]) -> None:
        """Append rows to a table, or upsert them in order."""

    def columns(self, cursor: Cursor, table: str) -> set[str]:
        """A table's columns; none where there is no such table."""


class Table:
    """The table of an event type: a column for each field."""

    def __init__(self, name: str, schema: pa.Schema, key: tuple[str, ...], types: dict[str, str]) -> None:
        self.name, self.key, self.names = name, key, tuple(schema.names)
        self.quoted = quoted(name)
        self.columns = ", ".join(map(quoted, self.names))
        self._schema, self._types = schema, types

    def created(self) -> str:
        """The statement that makes it."""
        columns = [
            f"{quoted(field.name)} {self._types[kind_of(field.type)]}{'' if field.nullable else ' NOT NULL'}"
            for field in self._schema
        ]
        if self.key:
            columns.append(f"PRIMARY KEY ({', '.join(map(quoted, self.key))})")
        return f"CREATE TABLE IF NOT EXISTS {self.quoted} ({', '.join(columns)})"

    def upserted(self, rows: str) -> str:
        """The statement that upserts what ``rows``, a clause, yields."""
        if not self.key:
            return f"INSERT INTO {self.quoted} ({self.columns}) {rows}"
        rest = [f"{quoted(name)} = excluded.{quoted(name)}" for name in self.names if name not in self.key]
        action = f"UPDATE SET {', '.join(rest)}" if rest else "NOTHING"
        key = ", ".join(map(quoted, self.key))
        return f"INSERT INTO {self.quoted} ({self.columns}) {rows} ON CONFLICT ({key}) DO {action}"


class TableSink(BoundSink):
    """A table that is written batch by batch.

    Parameters
    ----------
    name: the table's; the sink's unless given.
    """

    def __init__(self, sink: Sink, database: Database, name: str | None, files: SinkFiles) -> None:
        self.files, self.uri = files, database.uri
        self.place = f"table {name or sink.name} of {database.uri}"
        self._has_answered = False
        self._database, self._codec = database, Codec(sink.stream.event_type)
        self._nested = [field.name for field in self._codec.schema if pa.types.is_nested(field.type)]
        self._table = Table(name or sink.name, self._codec.schema, sink.key, database.types)
        refuse_optional_key(sink, self._codec.schema)

    def claim(self, run: str, discarded: Collection[str]) -> None:
        """A table that is there already must have the event's fields as columns."""
        self._again(lambda cursor: self._claim(cursor, run, discarded))

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        staged = present(files)
        self._again(lambda cursor: self._deliver(cursor, group, batch, staged))
        for path in staged:
            path.unlink(missing_ok=True)

    def reached(self, group: str) -> int | None:
        return self._again(lambda cursor: self._reached(cursor, group))

    def read(self) -> list[Any]:
        """In the table's order."""
        rows = self._again(lambda cursor: self._all(cursor))
        by_name = (dict(zip(self._table.names, row, strict=True)) for row in rows)
        return self._codec.from_rows(opened(row, self._nested) for row in by_name)

    def _reached(self, cursor: Cursor, group: str) -> int | None:
        mark = self._database.mark
        cursor.execute(
            f"SELECT batch FROM penstock_batches WHERE name = {mark} AND part = {mark}", (self._table.name, group)
        )
        row = cursor.fetchone()
        return None if row is None else int(row[0])

    def _all(self, cursor: Cursor) -> list[Row]:
        cursor.execute(f"SELECT {self._table.columns} FROM {self._table.quoted}")
        return cursor.fetchall()

    def _claim(self, cursor: Cursor, run: str, discarded: Collection[str]) -> None:
        table, mark = self._table, self._database.mark
        for statement in BOOKS.split(";"):
            cursor.execute(statement)
        cursor.execute(f"SELECT run FROM penstock_tables WHERE name = {mark}", (table.name,))
        (owner,) = cursor.fetchone() or (None,)
        if owner not in (None, run) and owner not in discarded:
            raise SinkError(other_run(self.files, f"table {table.name} of {self.uri}", f"{self.uri}?table=NAME"))
        present = self._database.columns(cursor, table.name)
        missing = [name for name in table.names if name not in present]
        if present and missing:
            raise SinkError(
                f"Sink {self.files.name}: table {table.name} has no column {', '.join(missing)}; add it, or choose another "
                "table with ?table=NAME."
            )
        cursor.execute(table.created())
        cursor.execute(
            table.upserted(f"SELECT {table.columns} FROM {table.quoted} WHERE 1 = 0")
        )  # is there a unique key?
        if owner in discarded:
            cursor.execute(f"DELETE FROM {table.quoted}")
        if owner != run:
            cursor.execute(f"DELETE FROM penstock_batches WHERE name = {mark}", (table.name,))
            cursor.execute(f"DELETE FROM penstock_tables WHERE name = {mark}", (table.name,))
            cursor.execute(f"INSERT INTO penstock_tables VALUES ({mark}, {mark})", (table.name, run))

    def _deliver(self, cursor: Cursor, group: str, batch: int, staged: list[Path]) -> None:
        mark = self._database.mark
        cursor.execute(
            f"INSERT INTO penstock_batches VALUES ({mark}, {mark}, {mark}) ON CONFLICT (name, part) "
            "DO UPDATE SET batch = excluded.batch WHERE penstock_batches.batch < excluded.batch",
            (self._table.name, group, batch),
        )
        if cursor.rowcount:
            self._database.load(cursor, self._table, self._rows(staged))

    def _rows(self, staged: list[Path]) -> Iterator[Row]:
        for path in staged:
            for batch in batches_in(path, self._codec.schema):
                columns = [_values(batch.column(name)) for name in self._table.names]
                yield from zip(*columns, strict=True)

    def _again(self, do: "_Work[Result]") -> Result:
        """Do something in a transaction, and again while the database does not answer."""
        began, pause = time.monotonic(), 0.1
        patience = PATIENCE_S if self._has_answered else AT_FIRST_S
        while True:
            try:
                with self._database.transaction() as cursor:
                    result = do(cursor)
                self._has_answered = True
                return result
            except Unavailable as error:
                if time.monotonic() - began > patience:
                    raise SinkError(
                        f"Sink {self.files.name}: {self.uri} has not answered for {patience:g} s ({error}); start the "
                        "database, and run again."
                    ) from error
                time.sleep(pause)
                pause = min(2.0, 2 * pause)


class _Work(Protocol[Done]):
    def __call__(self, cursor: Cursor, /) -> Done: ...


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def kind_of(kind: pa.DataType) -> str:
    """What a column of an Arrow type holds: one word for each type that events are made of."""
    if pa.types.is_nested(kind):
        return "json"
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return "timestamp_ntz"
    return re.split(r"\W", str(kind))[0]


def _values(column: pa.Array) -> list[Any]:
    """A column's values in Python; nested ones as JSON."""
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    if not pa.types.is_nested(column.type):
        return values
    return [None if value is None else msgspec.json.encode(value).decode() for value in values]
