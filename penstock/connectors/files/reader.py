"""Reads single files in workers, each by its own header or schema, which may differ from other files'."""

import csv
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.errors import SourceError
from penstock.kinds.arrow import fits, fitted, has_spark_lengths, rows_shown
from penstock.runtime.entrance import Misfit
from penstock.runtime.output import BORN, ROOT
from penstock.storage.place import path_of
from penstock.storage.records import STRANGE, Records, is_packed, misnamed, text_in, unpacked
from penstock.storage.spans import lines_in

ROWS_AT_ONCE = 8192
CHUNKS_AT_ONCE = 16
"""The chunks of a file of lines (see `penstock.storage.spans`) whose rows are passed on at once, if they are few."""
SPAN, MOST_SPANS = 4 << 20, 1000
"""The bytes of a span of a file, but that no file has more spans than so many."""
Part: TypeAlias = pa.RecordBatch | list[Any]
"""Some rows of a file: for Parquet a record batch (in a hop with `BORN` and `ROOT`), for CSV dicts of texts by field, for other
formats lines of bytes. Rows that are no events are `Misfit`.
"""


@dataclass(frozen=True)
class FileReader:
    """Reads files of a format in parts. It is pickled and sent to executors.

    Args:
        source: the name of the source.
        event_type: the name of its events' type.
        schema: of the events.
        encoding: of text files; None for UTF-8.
    """

    source: str
    event_type: str
    format: str
    schema: pa.Schema
    encoding: str | None

    def parts(self, address: str, begin: int = 0, end: int | None = None) -> Iterator[Part]:
        """Yield the rows of a file, at most `ROWS_AT_ONCE` at a time.

        Args:
            address: the path or URI by which Spark names the file.
            begin, end: the span of the file in which the lines begin; only for lines of UTF-8.

        Raises:
            SourceError: the file is gone, incomplete, or not of the format.
        """
        path = path_of_address(address)
        try:
            if self.format == "parquet":
                yield from self._columns(path)
            elif self.format == "csv":
                yield from self._fields(path)
            elif self.encoding is None:
                yield from self._lines(path, begin, end)
            else:
                yield from self._encoded_lines(path)
        except FileNotFoundError as error:
            raise SourceError(
                f"Source {self.source}: {path} is gone, and was not read yet: put it back; the events of a file that is "
                "removed before it is read are lost."
            ) from error
        except (EOFError, OSError, ValueError, ArithmeticError, zlib.error, csv.Error) as error:
            if isinstance(error, SourceError):
                raise
            raise unreadable(self.source, path, self.format, error) from error

    def spans(self, address: str, length: int) -> list[tuple[int, int]]:
        """Divide a file of lines into spans that can be read apart; one that is compressed is a single span.

        Args:
            length: the bytes of the file.
        """
        step = length if is_packed(path_of_address(address)) else max(SPAN, -(-length // MOST_SPANS))
        return [(begin, begin + step) for begin in range(0, length, step or 1)]

    def _columns(self, path: Path) -> Iterator[Part]:
        with path.open("rb") as file:
            parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
            file_schema = parquet.schema_arrow
            reason = self.misfit(file_schema)
            names = [name for name in (*self.schema.names, BORN, ROOT) if name in file_schema.names]
            for rows in parquet.iter_batches(ROWS_AT_ONCE, columns=names):
                if reason is not None:
                    yield [Misfit(row, f"{path}: {reason}") for row in rows_shown(rows)]
                else:
                    yield from self._fitted(path, rows)

    def misfit(self, there: pa.Schema) -> str | None:
        """Explain why the rows of a Parquet file with this schema are no events; None if they may be."""
        lengths = has_spark_lengths(there)
        reason = misnamed(there.names, self._needed(), self.schema.names)
        if reason is not None:
            return reason
        for field in self.schema:
            if field.name in there.names and not fits(there.field(field.name).type, field.type, lengths=lengths):
                column_type, needed = there.field(field.name).type, f"{self.event_type}.{field.name} needs {field.type}"
                return f"column {field.name} is of type {column_type}, but {needed}"
        return None

    def _needed(self) -> list[str]:
        return [field.name for field in self.schema if not field.nullable]

    def header_misfit(self, path: Path) -> str | None:
        """Explain why the lines of a CSV file are no events, by its header; None if they may be."""
        with text_in(path, self.encoding) as lines:
            records = Records(lines)
            return self._misnamed(records, records.header())

    def _misnamed(self, records: Records, header: list[str]) -> str | None:
        return records.fault or misnamed(header, self._needed(), self.schema.names)

    def _fitted(self, path: Path, rows: pa.RecordBatch) -> Iterator[Part]:
        """Yield rows with the types of the events' columns. A row that does not fit is found by halving: a `Misfit`."""
        try:
            columns = [
                fitted(rows.column(field.name), field.type)
                if field.name in rows.schema.names
                else pa.nulls(rows.num_rows, field.type)
                for field in self.schema
            ]
        except (pa.ArrowException, ValueError) as error:
            if rows.num_rows == 1:
                yield [Misfit(rows_shown(rows)[0], f"{path}: {error}")]
                return
            half = rows.num_rows // 2  # take and not slice: a slice's nested columns would share their values with other rows
            yield from self._fitted(path, rows.take(pa.array(range(half))))
            yield from self._fitted(path, rows.take(pa.array(range(half, rows.num_rows))))
        else:
            part = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            for name in (BORN, ROOT):
                if name in rows.schema.names:
                    part = part.append_column(name, rows.column(name))
            yield part

    def _fields(self, path: Path) -> Iterator[Part]:
        """Yield CSV records as dicts. A field is missing if it is empty and not quoted, or if the line is too short for it."""
        with text_in(path, self.encoding) as lines:
            records = Records(lines)
            header = records.header()
            wanted = [place for place, name in enumerate(header) if name in self.schema.names]
            reason = self._misnamed(records, header)
            part: list[Any] = []
            for fields in records:
                if reason is not None:
                    part.append(Misfit(records.raw, f"{path}: {reason}"))
                else:
                    part.append(self._event_of(path, header, wanted, fields, records))
                if len(part) == ROWS_AT_ONCE:
                    yield part
                    part = []
            if part:
                yield part

    def _event_of(
        self, path: Path, header: list[str], wanted: list[int], fields: list[str], records: Records
    ) -> Misfit | dict[str, str | None]:
        """Return the texts of a line's fields by name, None for a missing one; or a `Misfit` if the line is no event."""
        if records.fault is not None:
            return Misfit(records.raw, f"{path}: {records.fault}")
        if len(fields) > len(header):
            reason = f"the line has {len(fields)} fields, and the header names {len(header)}; quote what holds a comma"
            return Misfit(records.raw, f"{path}: {reason}")
        if STRANGE in records.raw:
            return Misfit(
                records.raw, f"{path}: the line is not in {self.encoding or 'UTF-8'}; name its encoding, as ?encoding=latin-1"
            )
        missing = records.missing(fields)
        return {header[place]: None if place in missing else fields[place] for place in wanted if place < len(fields)}

    def _lines(self, path: Path, begin: int, end: int | None) -> Iterator[Part]:
        """Yield the lines of a span as they are; of a compressed file all lines."""
        with unpacked(path) as file:
            held: list[bytes] = []
            for number, lines in enumerate(lines_in(file) if is_packed(path) else lines_in(file, begin, end), 1):
                held += lines
                if len(held) >= ROWS_AT_ONCE or number % CHUNKS_AT_ONCE == 0:
                    yield from _some_of(held)
                    held = []
            yield from _some_of(held)

    def _encoded_lines(self, path: Path) -> Iterator[Part]:
        """Yield lines in UTF-8. Bytes invalid in the encoding become invalid UTF-8, so that their line is refused later."""
        with text_in(path, self.encoding, newline=None) as lines:
            part: list[bytes] = []
            for line in lines:
                part.append(line.rstrip("\n").encode("utf-8", "surrogatepass"))
                if len(part) == ROWS_AT_ONCE:
                    yield part
                    part = []
            if part:
                yield part


def _some_of(rows: list[bytes]) -> Iterator[Part]:
    for first in range(0, len(rows), ROWS_AT_ONCE):
        yield rows[first : first + ROWS_AT_ONCE]


def lines_of_csv(path: Path, encoding: str | None) -> int:
    """Return the number of a CSV file's records below its header, as `FileReader` reads them."""
    with text_in(path, encoding) as lines:
        return max(0, sum(1 for _ in Records(lines)) - 1)


def path_of_address(address: str) -> Path:
    """Return the path for an address of a file by Spark."""
    split = urlsplit(address)
    return Path(address.removeprefix("file://").removeprefix("file:")) if split.scheme in ("", "file") else path_of(address)


def unreadable(source: str, path: Path, format: str, error: Exception) -> SourceError:
    """Return the error for a file that is incomplete, or not of its format."""
    return SourceError(
        f"Source {source}: {path} is not a whole {format} file ({str(error).removesuffix('.')}): it is cut short, "
        "or is not what its name says; put the whole file in its place, or move it away."
    )
