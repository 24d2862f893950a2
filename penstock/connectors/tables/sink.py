"""Sinks that append rows to a table of a database, or upsert them by key, exactly once for each micro-batch.

The transaction that writes a batch's rows also records the batch's number. So a batch whose commit went unanswered is
recognised when it is delivered again.
"""

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
import pyarrow as pa

from penstock.app.stream import Sink
from penstock.connectors.sink import BoundSink, Refused, fenced, foreign, other_run, present_rows
from penstock.connectors.tables.rules import refuse_optional_key, refuse_unfit
from penstock.errors import ConfigurationError, SinkError
from penstock.kinds.annotations import kind_of, optional
from penstock.kinds.event import Event, field_types
from penstock.kinds.fields import opened
from penstock.kinds.identity import nested_spelling, text_spelling
from penstock.kinds.kind import Kind
from penstock.runtime.codec import Codec
from penstock.runtime.output import SinkFiles, StagedFile
from penstock.storage.tables import batches_in

Result = TypeVar("Result")
Done = TypeVar("Done", covariant=True)
Row = tuple[Any, ...]

AT_ONCE, ONE_BY_ONE = 20_000, 32
"""The most rows that are held in memory and loaded at once; and the number at or below which refused rows are tried singly."""

PATIENCE_S, AT_FIRST_S = 120.0, 5.0
"""How long to retry a transaction while the database does not answer; the second applies until it has answered once."""

BOOKS = """
CREATE TABLE IF NOT EXISTS penstock_tables (
    name text PRIMARY KEY, run text NOT NULL, made boolean NOT NULL, others boolean NOT NULL, writing boolean NOT NULL
);
CREATE TABLE IF NOT EXISTS penstock_batches (
    name text NOT NULL, part text NOT NULL, batch bigint NOT NULL, PRIMARY KEY (name, part)
)
"""
"""The bookkeeping tables ("books"). ``penstock_tables`` holds for each table the run that owns it, whether Penstock created it,
whether others have inserted rows since (set by a trigger), and whether a delivery is writing to it (used by SQLite only).
``penstock_batches`` holds the last batch that each group of the run (``part``) has delivered to a table."""


class RowsRefused(Exception):
    """The database refuses rows because of their values; the text is the database's reason."""


class Unavailable(Exception):
    """The database does not answer at present, so the transaction is worth a retry.

    Args:
        mend: advice to the user, for when all retries fail.
    """

    def __init__(self, reason: str, mend: str = "start the database") -> None:
        super().__init__(reason)
        self.mend = mend


class Cursor(Protocol):
    """The part of DB-API's cursor that sinks use."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the last statement has written."""

    def execute(self, statement: str, parameters: Sequence[Any] = ..., /) -> Any:
        """Run a statement."""

    def fetchone(self) -> Any:
        """Return the next row of the result, or None."""

    def fetchall(self) -> list[Any]:
        """Return all remaining rows of the result."""


class Database(Protocol):
    """The operations that each database product implements in its own way."""

    uri: str
    place: str
    """The URI, with all options that distinguish this database from others; it holds no secrets."""
    nested: str
    """The type of columns that hold lists, dicts and events, as JSON."""
    mark: str
    """The placeholder of a parameter in a statement."""
    nan_is_null: bool
    """Whether it keeps NaN as NULL."""
    named: str
    """The condition, with a placeholder, that finds a table in the books, however its name is spelled."""

    def spot(self, table: str) -> str:
        """Return the one name of a table that all its spellings share."""

    def found(self, cursor: Cursor, table: "EventTable") -> str:
        """Return the one name that an existing table has, however it and its database are addressed."""

    def type_of(self, kind: Kind) -> str:
        """Return the type of a column that holds values of a kind."""

    def is_there(self) -> bool:
        """Return whether there is such a database; False if the first transaction creates it."""

    def transaction(self) -> AbstractContextManager[Cursor]:
        """Return a context for a transaction, which is committed at the end of the block.

        Raises:
            Unavailable: the database did not answer; whether it has committed may be unknown.
            SinkError: the database refused a statement or the connection.
        """

    def reading(self) -> AbstractContextManager[Cursor]:
        """Return a context that only reads; it does not create a missing database.

        Raises:
            Unavailable: the database did not answer.
            SinkError: the database refused a statement or the connection.
        """

    def load(self, cursor: Cursor, table: "EventTable", rows: list[Row]) -> None:
        """Append rows to a table, or upsert them in order: either all of them or none.

        Raises:
            RowsRefused: the database refuses one of the rows; the transaction can continue.
        """

    def quoted(self, table: str) -> str:
        """Return a table's name as it is written in statements."""

    def columns(self, cursor: Cursor, table: str) -> set[str]:
        """Return the names of a table's columns; empty if there is no such table."""

    def unfit(self, cursor: Cursor, table: "EventTable") -> list[str]:
        """Return the reasons why an existing table cannot store the events unchanged; empty if it can."""

    def too_long(self, name: str) -> bool:
        """Whether the database would truncate a name."""

    def lock_books(self, cursor: Cursor) -> None:
        """Lock the books until the transaction ends, so that no two runs create them, or a table, at once."""

    def watch(self, cursor: Cursor, table: "EventTable") -> None:
        """Add a trigger to a table that Penstock created; it notes in the books that others have inserted rows."""

    def watches(self, cursor: Cursor, table: "EventTable") -> bool:
        """Whether a table has the trigger of `watch`; a table that someone has dropped and created again has none."""

    def writing(self, cursor: Cursor, table: "EventTable", run: str) -> AbstractContextManager[bool]:
        """Yield whether a run owns a table; in the block the owner cannot change, and `watch`'s trigger ignores inserts."""

    def release(self, runs: Collection[str]) -> None:
        """End the sessions that drivers of some runs have left open, as the next driver would wait for their locks."""


class EventTable:
    """The table for an event type, with a column for each field, and its SQL statements."""

    def __init__(self, name: str, event_type: type[Event], key: tuple[str, ...], database: Database) -> None:
        annotations = field_types(event_type, annotated=True)
        self.name, self.key, self.names = name, key, tuple(annotations)
        self.quoted = database.quoted(name)
        self.columns = ", ".join(map(quoted, self.names))
        self.kinds = {field: kind_of(annotation) for field, annotation in annotations.items()}
        """The kind of each column's values; None for lists, dicts and events."""
        self.limits: dict[int, int] = {}
        """The greatest length of a text, by the index of the column, for columns that cut blanks beyond that length."""
        self._types = {field: database.nested if kind is None else database.type_of(kind) for field, kind in self.kinds.items()}
        self._may_miss = {field for field, annotation in annotations.items() if optional(annotation)}

    def created(self) -> str:
        """Return the statement that creates the table."""
        columns = [
            f"{quoted(field)} {kind}{'' if field in self._may_miss else ' NOT NULL'}" for field, kind in self._types.items()
        ]
        if self.key:
            columns.append(f"PRIMARY KEY ({', '.join(map(quoted, self.key))})")
        return f"CREATE TABLE IF NOT EXISTS {self.quoted} ({', '.join(columns)})"

    def upserted(self, rows: str) -> str:
        """Return the statement that inserts or upserts the rows of a clause, ``VALUES ...`` or ``SELECT ...``."""
        if not self.key:
            return f"INSERT INTO {self.quoted} ({self.columns}) {rows}"
        rest = [f"{quoted(name)} = excluded.{quoted(name)}" for name in self.names if name not in self.key]
        action = f"UPDATE SET {', '.join(rest)}" if rest else "NOTHING"
        key = ", ".join(map(quoted, self.key))
        return f"INSERT INTO {self.quoted} ({self.columns}) {rows} ON CONFLICT ({key}) DO {action}"


class TableSink(BoundSink):
    """A sink that writes each micro-batch to a table in one transaction.

    Args:
        name: of the table; None for the sink's name.
        fresh: ``keep`` or ``empty`` a table in which others may have rows when a run is discarded; None to refuse such a table.
    """

    def __init__(self, sink: Sink, database: Database, name: str | None, files: SinkFiles, fresh: str | None = None) -> None:
        self.files, self.uri, self._fresh, self._run = files, database.uri, fresh, ""
        self.place, self.keeps_last = f"table {name or sink.name} of {database.place}", bool(sink.key)
        self._has_answered, self._found = False, ""
        self._database, self._codec = database, Codec(sink.stream.event_type)
        self._table = EventTable(name or sink.name, sink.stream.event_type, sink.key, database)
        annotations = field_types(sink.stream.event_type, annotated=True)
        kinds = ((self._table.names.index(name), annotations[name]) for name in sink.key)
        spellings = ((place, text_spelling(kind) or nested_spelling(kind)) for place, kind in kinds)
        self._spellings = {place: spell for place, spell in spellings if spell is not None}
        """By column of the key, what gives equal values one text, where a table holds texts, or JSON."""
        self._nested = [field for field, kind in self._table.kinds.items() if kind is None]
        refuse_optional_key(sink, self._codec.schema)
        for identifier in (*(name or sink.name).split("."), *self._table.names):
            if database.too_long(identifier):
                raise ConfigurationError(
                    f"Sink {sink.name}: {database.uri} cuts names at 63 bytes, and {identifier} is longer; shorten it."
                )

    @property
    def nan_is_null(self) -> bool:
        return self._database.nan_is_null

    @property
    def spot(self) -> str:
        return self._found or self._database.spot(self._table.name)

    def inspect(self, run: str, discarded: Collection[str]) -> None:
        """Check the table; neither the database, the table nor the books are created, and all of them may be missing."""
        if self._database.is_there():
            self._again(lambda cursor: self._inspect(cursor, run, discarded))

    def claim(self, run: str, discarded: Collection[str]) -> None:
        """Claim the table, and create it if there is none; an existing one must have a column for each field of the event."""
        self._database.release({run, *discarded})
        self._again(lambda cursor: self._claim(cursor, run, discarded))
        self._found = self._again(lambda cursor: self._database.found(cursor, self._table), reading=True)
        self._run = run

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        staged = present_rows(self.files, files, self._table.names)
        if staged:
            self._again(lambda cursor: self._deliver(cursor, group, batch, staged))
        for path in staged:
            path.unlink(missing_ok=True)

    def reached(self, group: str) -> int | None:
        return self._again(lambda cursor: self._reached(cursor, group))

    def read(self) -> list[Any]:
        """Return the events in the order in which the database returns the rows."""
        rows = self._again(lambda cursor: self._all(cursor), reading=True)
        by_name = (dict(zip(self._table.names, row, strict=True)) for row in rows)
        return self._codec.from_rows(opened(row, self._nested) for row in by_name)

    def _reached(self, cursor: Cursor, group: str) -> int | None:
        mark = self._database.mark
        self._spell(cursor)
        cursor.execute(f"SELECT batch FROM penstock_batches WHERE name = {mark} AND part = {mark}", (self._table.name, group))
        row = cursor.fetchone()
        if row is None or not self._database.columns(cursor, self._table.name):
            return -1
        cursor.execute(f"SELECT made FROM penstock_tables WHERE name = {mark}", (self._table.name,))
        (made,) = cursor.fetchone() or (False,)
        # The trigger is gone and the table is empty: someone has created it again since the batch was noted.
        recreated = made and not self._database.watches(cursor, self._table) and not self._holds_rows(cursor)
        return -1 if recreated else int(row[0])

    def _all(self, cursor: Cursor) -> list[Row]:
        cursor.execute(f"SELECT {self._table.columns} FROM {self._table.quoted}")
        return cursor.fetchall()

    def _inspect(self, cursor: Cursor, run: str, discarded: Collection[str]) -> "_Books":
        """Check that the run may own the table; returns the table's entry in the books."""
        table = self._table
        books = self._books(cursor)
        if books.run not in ("", run) and books.run not in discarded:
            raise SinkError(other_run(self.files, self.place, f"{self.uri}?table=NAME"))
        columns = self._database.columns(cursor, table.name)
        missing = [name for name in table.names if name not in columns]
        if columns and missing:
            raise SinkError(
                f"Sink {self.files.name}: table {table.name} has no column {', '.join(missing)}; add it, or choose another "
                "table with ?table=NAME."
            )
        if columns:
            refuse_unfit(self.files.name, f"table {table.name} of {self.uri}", self._database.unfit(cursor, table))
        if books.run in discarded and columns and self._fresh is None and not books.alone and self._holds_rows(cursor):
            raise foreign(
                self.files, self.place, "holds rows that were there before the run, or that another program has added"
            )
        return books

    def _claim(self, cursor: Cursor, run: str, discarded: Collection[str]) -> None:
        table = self._table
        self._database.lock_books(cursor)
        if not self._database.columns(cursor, "penstock_tables"):  # a user who may not create tables can use existing ones
            for statement in BOOKS.split(";"):
                cursor.execute(statement)
        books = self._inspect(cursor, run, discarded)
        exists = bool(self._database.columns(cursor, table.name))
        if books.run == run:
            return  # a table that was dropped since is not created again, so that a comparison finds its rows missing
        if not exists:
            cursor.execute(table.created())
        with self._database.writing(cursor, table, run):
            cursor.execute(table.upserted(f"SELECT {table.columns} FROM {table.quoted} WHERE 1 = 0"))  # needs a unique key
        if books.run and self._fresh != "keep":
            cursor.execute(f"DELETE FROM {table.quoted}")
        if not exists:
            self._database.watch(cursor, table)
        self._own(cursor, run, made=self._database.watches(cursor, table), others=self._holds_rows(cursor))

    def _own(self, cursor: Cursor, run: str, *, made: bool, others: bool) -> None:
        """Record the run as the table's owner, and that it has delivered nothing yet."""
        name, mark = self._table.name, self._database.mark
        for books in ("penstock_batches", "penstock_tables"):
            cursor.execute(f"DELETE FROM {books} WHERE name = {mark}", (name,))
        cursor.execute(
            f"INSERT INTO penstock_tables VALUES ({mark}, {mark}, {mark}, {mark}, {mark})", (name, run, made, others, False)
        )

    def _books(self, cursor: Cursor) -> "_Books":
        columns = self._database.columns(cursor, "penstock_tables")
        if not columns:
            return _Books("", made=False, others=False)
        if "others" not in columns:
            raise SinkError(
                f"Sink {self.files.name}: the table penstock_tables of {self.uri} was created by Penstock before its first "
                "release; drop it and penstock_batches, and choose another table for the sink."
            )
        self._spell(cursor)
        cursor.execute(f"SELECT run, made, others FROM penstock_tables WHERE name = {self._database.mark}", (self._table.name,))
        run, made, others = cursor.fetchone() or ("", False, False)
        return _Books(run, made=bool(made) and self._database.watches(cursor, self._table), others=bool(others))

    def _spell(self, cursor: Cursor) -> None:
        """Spell the table's name as the books do, where the database takes several spellings for one."""
        cursor.execute(f"SELECT name FROM penstock_tables WHERE {self._database.named}", (self._table.name,))
        (self._table.name,) = cursor.fetchone() or (self._table.name,)

    def _holds_rows(self, cursor: Cursor) -> bool:
        cursor.execute(f"SELECT 1 FROM {self._table.quoted} LIMIT 1")
        return cursor.fetchone() is not None

    def _deliver(self, cursor: Cursor, group: str, batch: int, staged: list[Path]) -> None:
        mark = self._database.mark
        with self._database.writing(cursor, self._table, self._run) as ours:
            if not ours:
                raise fenced(self.files, self.place)
            cursor.execute(
                f"INSERT INTO penstock_batches VALUES ({mark}, {mark}, {mark}) ON CONFLICT (name, part) "
                "DO UPDATE SET batch = excluded.batch WHERE penstock_batches.batch < excluded.batch",
                (self._table.name, group, batch),
            )
            if cursor.rowcount:  # none if this batch, or a later one, is in the books already
                refused: list[Refused] = []
                rows = self._rows(staged)
                while chunk := list(islice(rows, AT_ONCE)):
                    refused += self._loaded(cursor, chunk)
                self.write_refused(group, batch, refused)

    def _loaded(self, cursor: Cursor, rows: list[Row]) -> list[Refused]:
        """Load rows, except those that the database refuses, and return these; they are found by bisection."""
        try:
            self._database.load(cursor, self._table, rows)
        except RowsRefused as error:
            if 1 < len(rows) <= ONE_BY_ONE:
                return [refused for row in rows for refused in self._loaded(cursor, [row])]
            if len(rows) == 1:
                values = (
                    _opened(value) if kind is None else value
                    for value, kind in zip(rows[0], self._table.kinds.values(), strict=True)
                )
                return [Refused(dict(zip(self._table.names, values, strict=True)), f"{self.uri} refuses it: {error}")]
            half = len(rows) // 2
            return self._loaded(cursor, rows[:half]) + self._loaded(cursor, rows[half:])
        return []

    def _rows(self, staged: list[Path]) -> Iterator[Row]:
        for path in staged:
            for batch in batches_in(path, self._codec.staged):
                columns = [_values(batch.column(name), kind) for name, kind in self._table.kinds.items()]
                for place, spell in self._spellings.items():
                    columns[place] = list(map(spell, columns[place]))
                yield from zip(*columns, strict=True)

    def _again(self, do: "_Work[Result]", *, reading: bool = False) -> Result:
        """Call ``do`` in a transaction, and retry while the database does not answer; returns the result of ``do``."""
        begin = self._database.reading if reading else self._database.transaction
        began, pause = time.monotonic(), 0.1
        patience = PATIENCE_S if self._has_answered else AT_FIRST_S
        while True:
            try:
                with begin() as cursor:
                    result = do(cursor)
                self._has_answered = True
                return result
            except Unavailable as error:
                if time.monotonic() - began > patience:
                    raise SinkError(
                        f"Sink {self.files.name}: {self.uri} has not answered for {patience:g} s ({error}); {error.mend}, and "
                        "run again."
                    ) from error
                time.sleep(pause)
                pause = min(2.0, 2 * pause)


class _Books(NamedTuple):
    """A table's entry in the books (see `BOOKS`); ``run`` is empty if no run owns the table yet."""

    run: str
    made: bool
    others: bool

    @property
    def alone(self) -> bool:
        """Whether all rows of the table were written by the run that the books name."""
        return bool(self.made and not self.others)


class _Work(Protocol[Done]):
    def __call__(self, cursor: Cursor, /) -> Done: ...


def quoted(name: str) -> str:
    """Return a name as a quoted identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _values(column: pa.Array, kind: Kind | None) -> list[Any]:
    """Return a column's values as a database accepts them: nested ones as JSON. Numbers that were staged as texts get one
    canonical text, so that equal numbers are equal keys."""
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    if kind is None:
        return [None if value is None else msgspec.json.encode(value).decode() for value in values]
    if kind.staged is not None and kind.identity is not None:
        return [None if value is None else str(kind.identity(kind.python(value))) for value in values]
    return values


def _opened(text: str | None) -> Any:
    """Return the nested value that a text of JSON encodes."""
    return None if text is None else msgspec.json.decode(text)
