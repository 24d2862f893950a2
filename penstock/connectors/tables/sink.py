"""Tables of a database: rows appended, or upserted by key, exactly once for each micro-batch.

The batch's number is noted in the transaction that writes its rows, so a batch whose commit went
unanswered is known when it is delivered again.
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
from penstock.connectors.sink import BoundSink, Refused, fenced, foreign, other_run, present
from penstock.connectors.tables.rules import refuse_optional_key, refuse_unfit
from penstock.errors import ConfigurationError, SinkError
from penstock.kinds.annotations import kind_of, optional
from penstock.kinds.event import Event, field_types
from penstock.kinds.fields import opened
from penstock.kinds.kind import Kind
from penstock.runtime.codec import Codec
from penstock.runtime.output import SinkFiles, StagedFile
from penstock.storage.tables import batches_in

Result = TypeVar("Result")
Done = TypeVar("Done", covariant=True)
Row = tuple[Any, ...]

AT_ONCE, ONE_BY_ONE = 20_000, 32
"""Rows that are loaded at once, which lie in memory; and those of which each is tried alone, once one of them was refused."""

PATIENCE_S, AT_FIRST_S = 120.0, 5.0
"""How long a batch is tried again while the database does not answer; and where it has never answered yet."""

BOOKS = """
CREATE TABLE IF NOT EXISTS penstock_tables (
    name text PRIMARY KEY, run text NOT NULL, made boolean NOT NULL, others boolean NOT NULL, writing boolean NOT NULL
);
CREATE TABLE IF NOT EXISTS penstock_batches (
    name text NOT NULL, part text NOT NULL, batch bigint NOT NULL, PRIMARY KEY (name, part)
)
"""
"""Whose each table is, whether it was made here, and whether others have put rows into it since, which a trigger of the table's
sees; ``writing`` is true within a delivery. And the last batch that each group of the run has delivered to it."""


class RowsRefused(Exception):
    """The database refuses rows for what is in them; its words."""


class Unavailable(Exception):
    """The database does not answer, or not now; it may later.

    Parameters
    ----------
    mend: what to do if it never does.
    """

    def __init__(self, reason: str, mend: str = "start the database") -> None:
        super().__init__(reason)
        self.mend = mend


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
    place: str
    """The URI with what tells this database from others."""
    nested: str
    """The type of columns of lists, dicts and events, which hold JSON."""
    mark: str
    """What stands for a parameter."""

    def type_of(self, kind: Kind) -> str:
        """A column's type."""

    def transaction(self) -> AbstractContextManager[Cursor]:
        """A transaction, committed at the end of the block.

        Raises
        ------
        Unavailable: the database did not answer; whether it has committed may be unknown.
        SinkError: it refused.
        """

    def reading(self) -> AbstractContextManager[Cursor]:
        """A look that changes nothing, and makes nothing that is not there.

        Raises
        ------
        Unavailable: the database did not answer.
        SinkError: it refused.
        """

    def load(self, cursor: Cursor, table: "Table", rows: list[Row]) -> None:
        """Append rows to a table, or upsert them in order; all of them, or none.

        Raises
        ------
        RowsRefused: it does not take one of them; the transaction goes on.
        """

    def quoted(self, table: str) -> str:
        """A table's name as statements have it."""

    def columns(self, cursor: Cursor, table: str) -> set[str]:
        """A table's columns; none where there is no such table."""

    def unfit(self, cursor: Cursor, table: "Table") -> list[str]:
        """Why a table that is there could not take the events as they are, or none at all; nothing, where it can."""

    def too_long(self, name: str) -> bool:
        """Whether the database would cut a name."""

    def lock_books(self, cursor: Cursor) -> None:
        """Wait until no other run makes the books, or a table, and let none until the transaction ends."""

    def watch(self, cursor: Cursor, table: "Table") -> None:
        """Have a table that was made here note that others insert rows."""

    def watches(self, cursor: Cursor, table: "Table") -> bool:
        """Whether it still does: who makes the table anew takes that away."""

    def writing(self, cursor: Cursor, table: "Table", run: str) -> AbstractContextManager[bool]:
        """Whether a table is a run's; within the block it stays that, and what is inserted is not noted as others'."""

    def release(self, runs: Collection[str]) -> None:
        """End what drivers of some runs have left open, which the one that follows them would wait for."""


class Table:
    """The table of an event type: a column for each field."""

    def __init__(self, name: str, event_type: type[Event], key: tuple[str, ...], database: Database) -> None:
        annotations = field_types(event_type, annotated=True)
        self.name, self.key, self.names = name, key, tuple(annotations)
        self.quoted = database.quoted(name)
        self.columns = ", ".join(map(quoted, self.names))
        self.kinds = {field: kind_of(annotation) for field, annotation in annotations.items()}
        """Of the columns' values; None of lists, dicts and events."""
        self.limits: dict[int, int] = {}
        """The greatest lengths of texts, by the places of columns that cut blanks beyond them."""
        self._types = {field: database.nested if kind is None else database.type_of(kind) for field, kind in self.kinds.items()}
        self._may_miss = {field for field, annotation in annotations.items() if optional(annotation)}

    def created(self) -> str:
        """The statement that makes it."""
        columns = [
            f"{quoted(field)} {kind}{'' if field in self._may_miss else ' NOT NULL'}" for field, kind in self._types.items()
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
    fresh: what becomes of rows that may be others' where a run is discarded: ``keep`` or ``empty``; refused unless given.
    """

    def __init__(self, sink: Sink, database: Database, name: str | None, files: SinkFiles, fresh: str | None = None) -> None:
        self.files, self.uri, self._fresh, self._run = files, database.uri, fresh, ""
        self.place, self.keeps_last = f"table {name or sink.name} of {database.place}", bool(sink.key)
        self._has_answered = False
        self._database, self._codec = database, Codec(sink.stream.event_type)
        self._table = Table(name or sink.name, sink.stream.event_type, sink.key, database)
        self._nested = [field for field, kind in self._table.kinds.items() if kind is None]
        refuse_optional_key(sink, self._codec.schema)
        for one in (*(name or sink.name).split("."), *self._table.names):
            if database.too_long(one):
                raise ConfigurationError(
                    f"Sink {sink.name}: {database.uri} cuts names at 63 bytes, and {one} is longer; give it another name."
                )

    def inspect(self, run: str, discarded: Collection[str]) -> None:
        """What the first claim would make is not there yet, and nothing of it is made."""
        self._again(lambda cursor: self._inspect(cursor, run, discarded))

    def claim(self, run: str, discarded: Collection[str]) -> None:
        """A table that is there already must have the event's fields as columns."""
        self._database.release({run, *discarded})
        self._again(lambda cursor: self._claim(cursor, run, discarded))
        self._run = run

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        staged = present(files)
        if staged:
            self._again(lambda cursor: self._deliver(cursor, group, batch, staged))
        for path in staged:
            path.unlink(missing_ok=True)

    def reached(self, group: str) -> int | None:
        return self._again(lambda cursor: self._reached(cursor, group))

    def read(self) -> list[Any]:
        """In the table's order."""
        rows = self._again(lambda cursor: self._all(cursor), reading=True)
        by_name = (dict(zip(self._table.names, row, strict=True)) for row in rows)
        return self._codec.from_rows(opened(row, self._nested) for row in by_name)

    def _reached(self, cursor: Cursor, group: str) -> int | None:
        mark = self._database.mark
        cursor.execute(f"SELECT batch FROM penstock_batches WHERE name = {mark} AND part = {mark}", (self._table.name, group))
        row = cursor.fetchone()
        if row is None or not self._database.columns(cursor, self._table.name):
            return -1
        cursor.execute(f"SELECT made FROM penstock_tables WHERE name = {mark}", (self._table.name,))
        (made,) = cursor.fetchone() or (False,)
        anew = made and not self._database.watches(cursor, self._table) and not self._holds_rows(cursor)
        return -1 if anew else int(row[0])

    def _all(self, cursor: Cursor) -> list[Row]:
        cursor.execute(f"SELECT {self._table.columns} FROM {self._table.quoted}")
        return cursor.fetchall()

    def _inspect(self, cursor: Cursor, run: str, discarded: Collection[str]) -> "_Books":
        """See that the table can be the run's; returns what the books say of it."""
        table = self._table
        books = self._books(cursor)
        if books.run not in ("", run) and books.run not in discarded:
            raise SinkError(other_run(self.files, self.place, f"{self.uri}?table=NAME"))
        present = self._database.columns(cursor, table.name)
        missing = [name for name in table.names if name not in present]
        if present and missing:
            raise SinkError(
                f"Sink {self.files.name}: table {table.name} has no column {', '.join(missing)}; add it, or choose another "
                "table with ?table=NAME."
            )
        if present:
            refuse_unfit(self.files.name, f"table {table.name} of {self.uri}", self._database.unfit(cursor, table))
        if books.run in discarded and present and self._fresh is None and not books.alone and self._holds_rows(cursor):
            raise foreign(
                self.files, self.place, "holds rows that were there before the run, or that another program has added"
            )
        return books

    def _claim(self, cursor: Cursor, run: str, discarded: Collection[str]) -> None:
        table = self._table
        self._database.lock_books(cursor)
        if not self._database.columns(cursor, "penstock_tables"):  # who may not make tables can use those that are there
            for statement in BOOKS.split(";"):
                cursor.execute(statement)
        books = self._inspect(cursor, run, discarded)
        there = bool(self._database.columns(cursor, table.name))
        if books.run == run:
            return  # if it was dropped, what it held is missed by who compares, and nothing is put in its place
        if not there:
            cursor.execute(table.created())
        with self._database.writing(cursor, table, run):
            cursor.execute(table.upserted(f"SELECT {table.columns} FROM {table.quoted} WHERE 1 = 0"))  # is there a unique key?
        if books.run and self._fresh != "keep":
            cursor.execute(f"DELETE FROM {table.quoted}")
        if not there:
            self._database.watch(cursor, table)
        self._own(cursor, run, made=self._database.watches(cursor, table), others=self._holds_rows(cursor))

    def _own(self, cursor: Cursor, run: str, *, made: bool, others: bool) -> None:
        """Write down whose the table is from now on, and that nothing has been delivered to it."""
        name, mark = self._table.name, self._database.mark
        for books in ("penstock_batches", "penstock_tables"):
            cursor.execute(f"DELETE FROM {books} WHERE name = {mark}", (name,))
        cursor.execute(
            f"INSERT INTO penstock_tables VALUES ({mark}, {mark}, {mark}, {mark}, {mark})", (name, run, made, others, False)
        )

    def _books(self, cursor: Cursor) -> "_Books":
        known = self._database.columns(cursor, "penstock_tables")
        if not known:
            return _Books("", made=False, others=False)
        if "others" not in known:
            raise SinkError(
                f"Sink {self.files.name}: the table penstock_tables of {self.uri} is of a version of Penstock before its "
                "first release; drop it and penstock_batches, and choose another table."
            )
        cursor.execute(f"SELECT run, made, others FROM penstock_tables WHERE name = {self._database.mark}", (self._table.name,))
        run, made, others = cursor.fetchone() or ("", False, False)
        return _Books(run, made=bool(made) and self._database.watches(cursor, self._table), others=bool(others))

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
            if cursor.rowcount:
                refused: list[Refused] = []
                rows = self._rows(staged)
                while some := list(islice(rows, AT_ONCE)):
                    refused += self._loaded(cursor, some)
                if self.refusals is not None:
                    self.refusals.write(group, batch, refused)
                elif refused:
                    raise SinkError(f"Sink {self.files.name}: {refused[0].error}.")

    def _loaded(self, cursor: Cursor, rows: list[Row]) -> list[Refused]:
        """Load rows, without those that the database refuses, which are found by halves."""
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
                yield from zip(*columns, strict=True)

    def _again(self, do: "_Work[Result]", *, reading: bool = False) -> Result:
        """Do something in a transaction, and again while the database does not answer."""
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
    """What is written down of a table: the run, none if it is nobody's yet; see `BOOKS`."""

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
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def _values(column: pa.Array, kind: Kind | None) -> list[Any]:
    """A column's values as a database takes them: nested ones as JSON, numbers that were staged as texts in the one way that
    all equal ones have, for they may be keys."""
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    if kind is None:
        return [None if value is None else msgspec.json.encode(value).decode() for value in values]
    if kind.staged is not None and kind.identity is not None:
        return [None if value is None else str(kind.identity(kind.python(value))) for value in values]
    return values


def _opened(text: str | None) -> Any:
    """What the text of a nested value stands for."""
    return None if text is None else msgspec.json.decode(text)
