"""A static table for lookups: a file or a database table, held in memory, and read again when it changes."""

import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from penstock.app.duration import Duration, seconds
from penstock.errors import SourceError, TopologyError
from penstock.extras import needs
from penstock.kinds.coding import convert, json_decoder
from penstock.kinds.event import Event, check_event_type, field_types
from penstock.kinds.fields import event_to_encoded, is_nested, nothing_of, opened, refuse_numbers, times_of
from penstock.kinds.identity import identity
from penstock.kinds.lax import lax_converter
from penstock.masked import masked
from penstock.storage.records import STRANGE, Records, misnamed, text_in

FORMATS = ("csv", "jsonl", "parquet", "sqlite", "postgresql")
FILES = FORMATS[:3]


class Table:
    """The rows of a static table, by key.

    Args:
        uri: ``csv:PATH``, ``jsonl:PATH``, ``parquet:PATH``, ``sqlite:FILE/TABLE`` or ``postgresql://.../DATABASE/TABLE``; a
            plain file path works, too, if its suffix names the format.
        row: the type of a row; its fields are the columns.
        key: the fields that identify a row.
        refresh: how often to check a file for changes, and to read a database's table again.

    Raises:
        TopologyError: the address is not understood, or the rows lack a field of the key.
    """

    def __init__(self, uri: str, row: type[Event], key: Sequence[str], refresh: Duration) -> None:
        self.shown, self.row, self.key = masked(uri), row, tuple(key)
        """``shown``: the table's address, without a password."""
        self._format, self._place = _divided(uri)
        self._refresh = seconds(refresh)
        self._rows: dict[bytes, Event] = {}
        self._looked: float | None = None
        self._version: tuple[int, ...] | None = None
        check_event_type(row)
        self._to_encoded, self._lax = event_to_encoded(row), lax_converter(row)
        self._nothing, self._times = nothing_of(row), times_of(row)
        self._nested = [name for name, annotation in field_types(row).items() if is_nested(annotation)]
        for name in self.key:
            if name not in field_types(row):
                raise TopologyError(
                    f"Table {self.shown}: its rows have no field {name!r} to be looked up by; they have "
                    f"{', '.join(field_types(row))}."
                )

    def get(self, key: tuple[Any, ...]) -> Event | None:
        """Return the row of a key, or None; keys are compared as those of keyed elements, see `penstock.kinds.identity`."""
        return self._rows.get(_identity(key))

    def follow(self) -> None:
        """Read the table, unless it was checked within ``refresh`` or has not changed.

        Raises:
            SourceError: the table cannot be read, a row does not fit its type, or two rows have the same key.
        """
        now = time.monotonic()
        if self._looked is not None and now - self._looked < self._refresh:
            return
        version = self._seen()
        if self._looked is None or version is None or version != self._version:
            self._rows = self._read()
            self._version = version
        self._looked = now

    def _seen(self) -> tuple[int, ...] | None:
        """Return a value that changes with each version of a file; None for a database, which has no such value."""
        if self._format not in FILES:
            return None
        try:
            state = Path(self._place).stat()
        except OSError as error:
            raise self._unreadable(error) from error
        return state.st_mtime_ns, state.st_size, state.st_ino

    def _read(self) -> dict[bytes, Event]:
        rows: dict[bytes, Event] = {}
        try:
            for number, values in enumerate(self._raw(), 1):
                row = self._fitting(values, number)
                key = tuple(getattr(row, name) for name in self.key)
                known = _identity(key)
                if known in rows:
                    shown = ", ".join(map(repr, key))
                    raise SourceError(
                        f"Table {self.shown} has two rows of {', '.join(self.key)} {shown}: keep only one of them."
                    )
                rows[known] = row
        except (OSError, EOFError, ValueError, KeyError, TypeError, OverflowError, zlib.error, sqlite3.Error) as error:
            if isinstance(error, SourceError):
                raise
            raise self._unreadable(error) from error
        return rows

    def _fitting(self, values: Any, number: int) -> Any:
        try:
            if self._format == "jsonl":
                return json_decoder(self.row).decode(values)
            if self._format == "csv":
                values = self._nothing | {name: value for name, value in values.items() if value is not None}
            if self._format in ("csv", "sqlite"):  # these have no lists and dicts, so columns hold them as JSON
                refuse_numbers(values, self._times)
                values = opened(values, self._nested)
            if self._to_encoded is not None:
                values = self._to_encoded(values)
            if self._format in ("csv", "sqlite"):  # CSV has only texts, and SQLite no booleans
                return self._lax(values)
            return convert(values, self.row)
        except msgspec.MsgspecError as error:
            raise SourceError(
                f"Table {self.shown}: row {number} is no {self.row.__name__} ({error}); mend the row, or the type."
            ) from error

    def _raw(self) -> Iterable[Any]:
        columns = list(field_types(self.row))
        if self._format == "jsonl":
            return self._lines()
        if self._format == "csv":
            return list(self._records())
        if self._format == "parquet":
            return self._columns()
        return self._selected(columns)

    def _lines(self) -> list[str]:
        with text_in(Path(self._place), None, newline=None) as text:
            lines = [line for line in text if line.strip()]
        strange = next((number for number, line in enumerate(lines, 1) if STRANGE in line), None)
        if strange is not None:
            raise SourceError(f"Table {self.shown} cannot be read: row {strange} is not in UTF-8; write it so.")
        return lines

    def _records(self) -> Iterator[dict[str, str | None]]:
        """Yield the records of a CSV file by field name; a value that is empty and not quoted is None."""
        with text_in(Path(self._place), None) as lines:
            records = Records(lines)
            header = records.header()
            if records.fault is not None:
                raise SourceError(f"Table {self.shown}: its first line cannot be read: {records.fault}.")
            self._check_header(header)
            for number, fields in enumerate(records, 1):
                if records.fault is not None:
                    raise SourceError(f"Table {self.shown}: row {number} cannot be read: {records.fault}.")
                if len(fields) > len(header):
                    raise SourceError(
                        f"Table {self.shown}: row {number} has {len(fields)} fields, and its first line names {len(header)}; "
                        "quote what holds a comma."
                    )
                if STRANGE in records.raw:
                    raise SourceError(f"Table {self.shown} cannot be read: row {number} is not in UTF-8; write it so.")
                missing = records.missing(fields)
                yield {
                    name: None if place in missing else field
                    for place, (name, field) in enumerate(zip(header, fields, strict=False))
                }

    def _check_header(self, header: Sequence[str]) -> None:
        needed = [field.name for field in msgspec.structs.fields(self.row) if field.required]
        reason = misnamed(header, needed, field_types(self.row))
        if reason is not None:
            raise SourceError(f"Table {self.shown} does not fit {self.row.__name__}: {reason}.")

    def _columns(self) -> list[dict[str, Any]]:
        """Return the rows of a Parquet file. A column of another type stays as it is, so that converting its rows reports the
        misfit.
        """
        import pyarrow as pa  # imported here, so that commands without Parquet start quickly
        import pyarrow.parquet as pq

        from penstock.kinds.arrow import arrow_schema, fits, fitted

        wanted = arrow_schema(self.row)
        there = pq.read_schema(self._place)
        self._check_header(there.names)
        names = [name for name in wanted.names if name in there.names]
        table = pq.read_table(self._place, columns=names, coerce_int96_timestamp_unit="us").combine_chunks()
        for number, field in enumerate(table.schema):
            kind = wanted.field(field.name).type
            if pa.types.is_timestamp(field.type) and field.type.tz is None:  # times have a zone only if the file says so
                kind = pa.timestamp("us")
            if fits(field.type, kind, lengths=True):
                parts = [fitted(part, kind) for part in table.column(number).chunks]
                table = table.set_column(number, field.name, pa.chunked_array(parts, kind))
        rows: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
        return rows

    def _selected(self, columns: list[str]) -> Iterable[Mapping[str, Any]]:
        """Return the rows of a database's table, by column."""
        place, _, table = self._place.rpartition("/")
        # Columns are qualified by the table: SQLite takes an unknown quoted name alone for a text.
        quoted = ", ".join('t."' + name.replace('"', '""') + '"' for name in columns)
        # In PostgreSQL, the part before a dot is the schema, as in sinks.
        parts = table.rsplit(".", 1) if self._format == "postgresql" else [table]
        statement = f"SELECT {quoted} FROM " + ".".join('"' + part.replace('"', '""') + '"' for part in parts) + " AS t"
        if self._format == "sqlite":
            with closing(sqlite3.connect(f"{Path(place).absolute().as_uri()}?mode=ro", uri=True)) as connection:
                return [dict(zip(columns, row, strict=True)) for row in connection.execute(statement)]
        with needs():
            import psycopg
        try:
            with psycopg.connect(f"postgresql:{place}", connect_timeout=5) as connection:
                records = connection.execute(statement.encode()).fetchall()
        except psycopg.Error as error:
            raise self._unreadable(error) from error
        return [dict(zip(columns, row, strict=True)) for row in records]

    def _unreadable(self, error: Exception) -> SourceError:
        what = getattr(error, "strerror", None) or " ".join(str(error).split()) or type(error).__name__
        return SourceError(
            f"The table {self.shown} cannot be read ({what}); put it where this machine sees it, with columns "
            f"{', '.join(field_types(self.row))}."
        )


def _identity(key: tuple[Any, ...]) -> bytes:
    return identity(list(key))


def _divided(uri: str) -> tuple[str, str]:
    """Split a table's address into its format and its place."""
    head, colon, rest = uri.partition(":")
    form, place = (head, rest) if colon and "/" not in head else (Path(uri).suffix.removeprefix("."), uri)
    if form not in FORMATS or not place:
        ways = ", ".join(f"{known}:..." for known in FORMATS)
        raise TopologyError(f"{masked(uri)!r} is no table that can be looked up in; write one of {ways}.")
    if form not in FILES and "/" not in place:
        raise TopologyError(f"{masked(uri)!r} names no table: write {form}:PLACE/TABLE.")
    return form, place
