"""The table sink for SQLite, which needs no server."""

import re
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock.app.stream import Sink
from penstock.connectors.declaration import Option, Options, SinkConnector, SinkContext
from penstock.connectors.tables import rules
from penstock.connectors.tables.sink import Cursor, EventTable, Row, RowsRefused, TableSink, Unavailable, literal, quoted
from penstock.connectors.uri import Uri
from penstock.errors import SinkError
from penstock.kinds.kind import Kind
from penstock.runtime.output import SinkFiles
from penstock.storage import durable
from penstock.storage.place import absolute, real


def _folded(name: str) -> str:
    """Return a name as SQLite compares it, by the case of ASCII's letters alone."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in name)


OF_THE_FILE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_READONLY,
}
"""Codes of errors that another statement would not mend."""


class Sqlite:
    """A SQLite file. Times are stored as ISO 8601 text, durations as seconds, decimals as text."""

    nested = "text"
    mark = "?"
    nan_is_null = True
    named = "name = ? COLLATE NOCASE"  # as SQLite names tables

    def __init__(self, path: Path) -> None:
        self.uri = self.place = f"sqlite:{path}"
        self._path = path

    def type_of(self, kind: Kind) -> str:
        return kind.sqlite

    def spot(self, table: str) -> str:
        return f"{table.lower()} of {real(self._path)}"

    def found(self, cursor: Cursor, table: EventTable) -> str:
        return self.spot(table.name)

    def is_there(self) -> bool:
        return self._path.exists()

    @contextmanager
    def transaction(self) -> Iterator[Cursor]:
        try:
            durable.make(self._path.parent)
            with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
                connection.execute("BEGIN IMMEDIATE")
                yield connection.cursor()
                connection.execute("COMMIT")
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, SinkError):
                raise
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                mend = "end the program that has it open in a transaction, which may be a driver that is paused"
                raise Unavailable(str(error), mend) from error
            of_the_file = getattr(error, "sqlite_errorcode", 0) & 0xFF in OF_THE_FILE or isinstance(error, OSError)
            mend = "free space on the disk, or name a SQLite file or a new one" if of_the_file else "mend that, and run again"
            raise SinkError(f"{self.uri} cannot be written: {error}; {mend}.") from error

    @contextmanager
    def reading(self) -> Iterator[Cursor]:
        try:
            with closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", timeout=30, uri=True)) as connection:
                yield connection.cursor()
        except sqlite3.Error as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
                raise Unavailable(str(error), "end the program that writes to it") from error
            raise SinkError(f"{self.uri} cannot be read: {error}; check that it exists, and is a SQLite file.") from error

    def load(self, cursor: Cursor, table: EventTable, rows: list[Row]) -> None:
        statement = table.upserted(f"VALUES ({', '.join('?' * len(table.names))})")
        assert isinstance(cursor, sqlite3.Cursor)
        changes = [(place, kind.to_sqlite) for place, kind in enumerate(table.kinds.values()) if kind and kind.to_sqlite]
        cursor.execute("SAVEPOINT penstock_rows")
        try:
            cursor.executemany(statement, (_changed(row, changes) for row in rows))
        except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.OperationalError) as error:
            if not cursor.connection.in_transaction:  # a trigger has rolled back the whole transaction
                raise
            if isinstance(error, sqlite3.OperationalError) and not _is_of_a_row(cursor, statement, len(table.names), error):
                raise
            cursor.execute("ROLLBACK TO penstock_rows")
            cursor.execute("RELEASE penstock_rows")
            raise RowsRefused(str(error)) from error
        cursor.execute("RELEASE penstock_rows")

    def lock_books(self, cursor: Cursor) -> None:
        """Do nothing, as SQLite runs one writing transaction at a time."""

    def watch(self, cursor: Cursor, table: EventTable) -> None:
        name, trigger = literal(table.name), quoted(f"penstock_others {table.name}")
        cursor.execute(
            f"CREATE TRIGGER {trigger} AFTER INSERT ON {table.quoted} "
            f"WHEN (SELECT NOT writing AND NOT others FROM penstock_tables WHERE name = {name}) "
            f"BEGIN UPDATE penstock_tables SET others = 1 WHERE name = {name}; END"
        )

    def watches(self, cursor: Cursor, table: EventTable) -> bool:
        cursor.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = ? AND tbl_name = ? COLLATE NOCASE",
            (f"penstock_others {table.name}", table.name),
        )
        return cursor.fetchone() is not None

    @contextmanager
    def writing(self, cursor: Cursor, table: EventTable, run: str) -> Iterator[bool]:
        cursor.execute("UPDATE penstock_tables SET writing = 1 WHERE name = ? AND run = ?", (table.name, run))
        yield bool(cursor.rowcount)
        cursor.execute("UPDATE penstock_tables SET writing = 0 WHERE name = ?", (table.name,))

    def release(self, runs: Collection[str]) -> None:
        """Do nothing, as SQLite can neither list nor end the transactions of other processes."""

    def quoted(self, table: str) -> str:
        return quoted(table)

    def too_long(self, name: str) -> bool:
        return False

    def unfit(self, cursor: Cursor, table: EventTable) -> list[str]:
        """Find columns whose affinity would turn texts into numbers, or round numbers."""
        cursor.execute('SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?)', (table.name,))
        wrong = []
        for name, declared, never_null, default, key, hidden in cursor.fetchall():
            if name not in table.kinds:
                if never_null and default is None and not key and not hidden:
                    wrong.append(f"column {name} is NOT NULL without a default, and the event has no such field")
                continue
            kind, affinity = table.kinds[name], _affinity(declared)
            if hidden in (2, 3):
                wrong.append(f"column {name} is generated")
            elif kind is not None and affinity in _changing(kind):
                wrong.append(f"column {name} is {declared}, in which values of {kind.name} would change")
        return [*wrong, *_merging(cursor, table)]

    def columns(self, cursor: Cursor, table: str) -> set[str]:
        cursor.execute("SELECT name FROM pragma_table_info(?)", (table,))
        return {name for (name,) in cursor.fetchall()}


def _merging(cursor: Cursor, table: EventTable) -> Iterator[str]:
    """Yield what makes a table take one row for another, or drop or change it, without an error."""
    cursor.execute("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", (table.name,))
    for (statement,) in cursor.fetchall():
        statement = re.sub(r"--[^\n]*|/\*.*?\*/", " ", statement, flags=re.DOTALL)
        if table.key:  # of what the sink upserts by, its own statement says what happens
            statement = re.sub(r"(?i)\bPRIMARY\s+KEY\s*(\([^)]*\))?\s*(ASC|DESC)?\s*ON\s+CONFLICT\s+\w+", " ", statement)
        for action in sorted({found.upper() for found in re.findall(r"(?i)\bON\s+CONFLICT\s+(IGNORE|REPLACE)\b", statement)}):
            yield f"a constraint of it is ON CONFLICT {action}, by which rows would vanish or change without an error"
    if table.key:
        cursor.execute(
            "SELECT one.name, part.name, part.coll FROM pragma_index_list(?) one, pragma_index_xinfo(one.name) part "
            "WHERE one.[unique] AND part.key",
            (table.name,),
        )
        parts = cursor.fetchall()
        of_the_key = {index for index, _, _ in parts if {name for other, name, _ in parts if other == index} == {*table.key}}
        for index, name, collation in parts:
            kind = table.kinds.get(name)
            if index not in of_the_key or collation == "BINARY" or (kind is not None and kind.sqlite != "text"):
                continue
            yield f"column {name} of a unique index is of collation {collation}, which takes different keys for one"


def _is_of_a_row(cursor: sqlite3.Cursor, statement: str, values: int, error: sqlite3.OperationalError) -> bool:
    """Whether an expression of the table, as of a CHECK constraint, fails for a row; the statement itself compiles then."""
    if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
        return False
    try:
        cursor.execute(f"EXPLAIN {statement}", [None] * values)
    except sqlite3.Error:
        return False
    return True


NUMBERS = ("INTEGER", "REAL", "NUMERIC")
"""Affinities that turn a text that looks like a number into one, and so change 007 or a number of thirty digits."""


def _changing(kind: Kind) -> tuple[str, ...]:
    """Return the affinities that would change values of a kind; TEXT would store numbers with 15 digits."""
    if kind.python in (str, Decimal) or kind.encode is not None:
        return NUMBERS
    return {int: ("REAL",), float: ("TEXT",), timedelta: ("TEXT",)}.get(kind.python, ())


def _affinity(declared: str) -> str:
    """Return the affinity of a column's declared type (https://sqlite.org/datatype3.html, section 3.1)."""
    words = declared.upper()
    if "INT" in words:
        return "INTEGER"
    if any(word in words for word in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in words or not words:
        return "BLOB"
    return "REAL" if any(word in words for word in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _changed(row: Row, changes: Sequence[tuple[int, Callable[[Any], Any]]]) -> list[Any]:
    """Convert a row to the values that SQLite stores; ``changes`` are functions by the index of the column."""
    values = list(row)
    for place, change in changes:
        if values[place] is not None:
            values[place] = change(values[place])
    return values


def _bind(sink: Sink, uri: Uri, options: Options, context: SinkContext) -> TableSink:
    rule = f"{rules.__name__}:{rules.refuse_nan.__name__}"
    names = sink.stream.event_type.__struct_fields__
    rules.refuse_alike(sink, "SQLite", names, _folded)
    files = SinkFiles(sink.name, "parquet", str(context.output), rule=rule, wide=True)
    return TableSink(sink, Sqlite(absolute(uri.place)), options.get("table"), files, options.get("fresh"))


SQLITE = SinkConnector(
    "sqlite",
    "FILE",
    "a table in a SQLite file, appended, or upserted by the sink's key",
    (Option("table", "the table's name; the sink's unless given"), rules.FRESH),
    reach="shared disk",
    bind=_bind,
)
