"""How a worker reads one file: each by its own header or schema, whatever other files have."""

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
from penstock.storage.records import STRANGE, Records, misnamed, text_in

ROWS_AT_ONCE = 8192
Part: TypeAlias = pa.RecordBatch | list[Any]
"""Some rows of a file: typed columns, those of a hop with `BORN` and `ROOT`; or, of CSV, texts by field, or what they
misfit; or lines of bytes.
"""


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
                f"Source {self.source}: {path} is gone, and was not read yet: put it back; files that are taken away before "
                "they are read are lost."
            ) from error
        except (EOFError, OSError, ValueError, ArithmeticError, zlib.error, csv.Error) as error:
            if isinstance(error, SourceError):
                raise
            raise unreadable(self.source, path, self.format, error) from error

    def _columns(self, path: Path) -> Iterator[Part]:
        with path.open("rb") as file:
            parquet = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
            there = parquet.schema_arrow
            reason = self.misfit(there)
            names = [name for name in (*self.schema.names, BORN, ROOT) if name in there.names]
            for rows in parquet.iter_batches(ROWS_AT_ONCE, columns=names):
                if reason is not None:
                    yield [Misfit(row, f"{path}: {reason}") for row in rows_shown(rows)]
                else:
                    yield from self._fitted(path, rows)

    def misfit(self, there: pa.Schema) -> str | None:
        """Why the rows of a Parquet file of some columns are no events; None where they may be."""
        lengths = has_spark_lengths(there)
        reason = misnamed(there.names, self._needed(), self.schema.names)
        if reason is not None:
            return reason
        for field in self.schema:
            if field.name in there.names and not fits(there.field(field.name).type, field.type, lengths=lengths):
                had, needed = there.field(field.name).type, f"{self.event_type}.{field.name} needs {field.type}"
                return f"column {field.name} is of type {had}, but {needed}"
        return None

    def _needed(self) -> list[str]:
        return [field.name for field in self.schema if not field.nullable]

    def header_misfit(self, path: Path) -> str | None:
        """Why the lines of a CSV file are no events, by its first one; None where they may be."""
        with text_in(path, self.encoding) as lines:
            records = Records(lines)
            return self._misnamed(records, records.header())

    def _misnamed(self, records: Records, header: list[str]) -> str | None:
        return records.fault or misnamed(header, self._needed(), self.schema.names)

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
                yield [Misfit(rows_shown(rows)[0], f"{path}: {error}")]
                return
            half = rows.num_rows // 2  # taken, and not cut: what a part of nested columns holds must be its own alone
            yield from self._fitted(path, rows.take(pa.array(range(half))))
            yield from self._fitted(path, rows.take(pa.array(range(half, rows.num_rows))))
        else:
            part = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            for name in (BORN, ROOT):
                if name in rows.schema.names:
                    part = part.append_column(name, rows.column(name))
            yield part

    def _fields(self, path: Path) -> Iterator[Part]:
        """A quoted field may be empty; one that is empty without quotes is missing, as are those that a shorter line lacks."""
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
        """The texts of a line's fields by their names, or why they are none."""
        if records.fault is not None:
            return Misfit(records.raw, f"{path}: {records.fault}")
        if len(fields) > len(header):
            said = f"the line has {len(fields)} fields, and the header names {len(header)}; quote what holds a comma"
            return Misfit(records.raw, f"{path}: {said}")
        if STRANGE in records.raw:
            return Misfit(
                records.raw, f"{path}: the line is not in {self.encoding or 'UTF-8'}; name its encoding, as ?encoding=latin-1"
            )
        missing = records.missing(fields)
        return {header[place]: None if place in missing else fields[place] for place in wanted if place < len(fields)}

    def _lines(self, path: Path) -> Iterator[Part]:
        """Lines in UTF-8; what is not of the encoding is left as bytes that are none of UTF-8, to be refused with its line."""
        with text_in(path, self.encoding, newline=None) as lines:
            part: list[bytes] = []
            for line in lines:
                part.append(line.rstrip("\n").encode("utf-8", "surrogatepass"))
                if len(part) == ROWS_AT_ONCE:
                    yield part
                    part = []
            if part:
                yield part


def lines_of_csv(path: Path, encoding: str | None) -> int:
    """How many lines a CSV file has below its first, as they are read."""
    with text_in(path, encoding) as lines:
        return max(0, sum(1 for _ in Records(lines)) - 1)


def path_of_address(address: str) -> Path:
    """A path as Spark writes it."""
    split = urlsplit(address)
    return Path(address.removeprefix("file://").removeprefix("file:")) if split.scheme in ("", "file") else path_of(address)


def unreadable(source: str, path: Path, format: str, error: Exception) -> SourceError:
    """What is said of a file that cannot be read."""
    return SourceError(
        f"Source {source}: {path} is not a whole {format} file ({str(error).removesuffix('.')}): it is cut short, "
        "or is not what its name says; put the whole file in its place, or move it away."
    )
