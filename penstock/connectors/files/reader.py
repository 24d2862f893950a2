"""How a worker reads one file: each by its own header or schema, whatever other files have."""

import bz2
import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import SourceError
from penstock.kinds.arrow import fits, fitted
from penstock.runtime.entrance import Misfit
from penstock.runtime.output import BORN
from penstock.storage.place import path_of

ROWS_AT_ONCE = 8192
FIELD = re.compile(r'(?:\A|,)("(?:[^"]|"")*"[^,]*|[^,]*)')
"""A field of a line of CSV, with its quotes."""
STRANGE = "\udcff"
"""Stands for bytes that are not of a file's encoding: no text holds it."""


def _strange(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return STRANGE, error.end


codecs.register_error("penstock.strange", _strange)
csv.field_size_limit(2**31 - 1)  # the module's own is below what people have
SPARKS = b"org.apache.spark.sql.parquet.row.metadata"
"""Where a Parquet file of Spark's says what Spark calls its columns."""
UNPACKED = {".gz": gzip.open, ".bz2": bz2.open}

Part: TypeAlias = pa.RecordBatch | list[Any]
"""Some rows of a file: typed columns, and those of a hop with their births in `BORN`; or, of CSV, texts by field, or what they misfit; or lines of bytes."""


@dataclass(frozen=True)
class FileReader:
    """Reads a file of a format in parts. It travels to executors.

    Parameters
    ----------
    source: the name of the source. event_type: the name of its events' type.
    schema: of the events as columns.
    encoding: of texts; None for UTF-8.
    """

    source: str
    event_type: str
    format: str
    schema: pa.Schema
    encoding: str | None

    def parts(self, address: str) -> Iterator[Part]:
        """The rows of a file, some at a time.

        Parameters
        ----------
        address: as Spark has it.

        Raises
        ------
        SourceError: it is not whole, or not what its name says.
        """
        path = path_of_address(address)
        read = {"parquet": self._columns, "csv": self._fields}.get(self.format, self._lines)
        try:
            yield from read(path)
        except FileNotFoundError as error:
            raise SourceError(
                f"Source {self.source}: {path} is gone, and was not read yet: put it back; files that are taken away before they are "
                "read are lost."
            ) from error
        except (EOFError, OSError, ValueError, ArithmeticError, zlib.error, csv.Error) as error:
            if isinstance(error, SourceError):
                raise
            raise unreadable(self.source, path, self.format, error) from error

    def _columns(self, path: Path) -> Iterator[Part]:
        with path.open("rb") as file:
            parquet = pq.ParquetFile(file)
            there = parquet.schema_arrow
            reason = self.misfit(there)
            names = [name for name in (*self.schema.names, BORN) if name in there.names]
            for rows in parquet.iter_batches(ROWS_AT_ONCE, columns=names):
                if reason is not None:
                    yield [Misfit(row, f"{path}: {reason}") for row in _shown(rows)]
                elif not names:
                    yield self._nulls(rows.num_rows)
                else:
                    yield from self._fitted(path, rows)

    def misfit(self, there: pa.Schema) -> str | None:
        """Why the rows of a Parquet file of some columns are no events; None where they may be."""
        lengths = b"interval day to second" in (there.metadata or {}).get(SPARKS, b"")
        for field in self.schema:
            if field.name in there.names and not fits(there.field(field.name).type, field.type, lengths=lengths):
                return f"column {field.name} is of type {there.field(field.name).type}, but {self.event_type}.{field.name} needs {field.type}"
        return None

    def _nulls(self, rows: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in self.schema], schema=self.schema)

    def _fitted(self, path: Path, rows: pa.RecordBatch) -> Iterator[Part]:
        """Rows in the events' columns; where one does not fit, those before it, itself, and those after it."""
        try:
            columns = [
                fitted(rows.column(field.name), field.type)
                if field.name in rows.schema.names
                else pa.nulls(rows.num_rows, field.type)
                for field in self.schema
            ]
        except (pa.ArrowException, ValueError) as error:
            if rows.num_rows == 1:
                yield [Misfit(_shown(rows)[0], f"{path}: {error}")]
                return
            half = rows.num_rows // 2  # taken, and not cut: what a part of nested columns holds must be its own alone
            yield from self._fitted(path, rows.take(pa.array(range(half))))
            yield from self._fitted(path, rows.take(pa.array(range(half, rows.num_rows))))
        else:
            part = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            yield part.append_column(BORN, rows.column(BORN)) if BORN in rows.schema.names else part

    def _fields(self, path: Path) -> Iterator[Part]:
        """A quoted field may be empty; one that is empty without quotes is missing, as are those that a shorter line lacks."""
        with _text(path, self.encoding) as lines:
            records = _Records(lines)
            header = records.header()
            wanted = [place for place, name in enumerate(header) if name in self.schema.names]
            twice = next((header[place] for place in wanted if header.count(header[place]) > 1), None)
            part: list[Any] = []
            for fields in records:
                if twice is not None:
                    part.append(
                        Misfit(records.raw, f"{path}: its first line names {twice!r} twice; name each field once")
                    )
                else:
                    part.append(self._event_of(path, header, wanted, fields, records))
                if len(part) == ROWS_AT_ONCE:
                    yield part
                    part = []
            if part:
                yield part

    def _event_of(
        self, path: Path, header: list[str], wanted: list[int], fields: list[str], records: "_Records"
    ) -> Misfit | dict[str, str | None]:
        """The texts of a line's fields by their names, or why they are none."""
        if len(fields) > len(header):
            said = f"the line has {len(fields)} fields, and the header names {len(header)}; quote what holds a comma"
            return Misfit(records.raw, f"{path}: {said}")
        if STRANGE in records.raw:
            return Misfit(
                records.raw,
                f"{path}: the line is not in {self.encoding or 'UTF-8'}; name its encoding, as ?encoding=latin-1",
            )
        missing = records.missing(fields)
        return {header[place]: None if place in missing else fields[place] for place in wanted if place < len(fields)}

    def _lines(self, path: Path) -> Iterator[Part]:
        """Lines in UTF-8; what is not of the encoding is left as bytes that are none of UTF-8, to be refused with its line."""
        with _text(path, self.encoding, newline=None) as lines:
            part: list[bytes] = []
            for line in lines:
                part.append(line.rstrip("\n").encode("utf-8", "surrogatepass"))
                if len(part) == ROWS_AT_ONCE:
                    yield part
                    part = []
            if part:
                yield part


class _Records:
    """The lines of CSV that are not blank, divided into fields, and each as it stands."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._read: list[str] = []
        self._reader = csv.reader(self._noted(lines))

    def __iter__(self) -> Iterator[list[str]]:
        self._read.clear()
        for fields in self._reader:
            if fields:
                yield fields
            self._read.clear()

    def header(self) -> list[str]:
        """The first of them; none of an empty file."""
        return next(iter(self), [])

    @property
    def raw(self) -> str:
        """The line that was divided last; a quoted field may hold several."""
        return "".join(self._read).rstrip("\r\n")

    def missing(self, fields: list[str]) -> set[int]:
        """Which of its fields are empty, and have no quotes."""
        empty = {place for place, field in enumerate(fields) if field == ""}
        if empty and '""' in self.raw:
            spelled = FIELD.findall(self.raw)
            if len(spelled) == len(fields):
                empty = {place for place in empty if not spelled[place].startswith('"')}
        return empty

    def _noted(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            self._read.append(line)
            yield line


def header_of(path: Path, encoding: str | None) -> list[str]:
    """The names that a CSV file's first line has for its fields; none of an empty file."""
    with _text(path, encoding) as lines:
        return _Records(lines).header()


def _text(path: Path, encoding: str | None, newline: str | None = "") -> io.TextIOWrapper:
    """A file's text; a mark at its beginning is none, and what is not of the encoding is `STRANGE`."""
    plain = (encoding or "utf-8").lower().replace("_", "-")
    marked = "utf-8-sig" if plain in ("utf-8", "utf8") else plain
    return io.TextIOWrapper(unpacked(path), encoding=marked, errors="penstock.strange", newline=newline)


def unpacked(path: Path) -> IO[bytes]:
    """A file's bytes, unpacked as its suffix says."""
    file: IO[bytes] = path.open("rb")
    unpack: Any = UNPACKED.get(path.suffix)
    return file if unpack is None else unpack(file)


def path_of_address(address: str) -> Path:
    """A path as Spark writes it."""
    split = urlsplit(address)
    return (
        Path(address.removeprefix("file://").removeprefix("file:"))
        if split.scheme in ("", "file")
        else path_of(address)
    )


def unreadable(source: str, path: Path, format: str, error: Exception) -> SourceError:
    """What is said of a file that cannot be read."""
    return SourceError(
        f"Source {source}: {path} is not a whole {format} file ({str(error).removesuffix('.')}): it is cut short, or is not what its name "
        "says; put the whole file in its place, or move it away."
    )


def _shown(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as they are shown in dead letters, also where Python has no such values."""
    try:
        shown: list[dict[str, Any]] = rows.to_pylist()
    except (ValueError, ArithmeticError):
        texts = [_column_shown(column) for column in rows.columns]
        return [dict(zip(rows.schema.names, values, strict=True)) for values in zip(*texts, strict=True)]
    return shown


def _column_shown(column: pa.Array) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, ArithmeticError):
        return (
            [str(number) for number in column.cast(pa.int64()).to_pylist()]
            if not pa.types.is_nested(column.type)
            else ["?"] * len(column)
        )
    return values
