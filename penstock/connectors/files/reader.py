"""How a worker reads one file: each by its own header or schema, whatever other files have."""

import bz2
import csv
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from penstock.errors import SourceError
from penstock.kinds.arrow import fits, fitted
from penstock.runtime.entrance import Misfit
from penstock.runtime.output import BORN
from penstock.storage.place import path_of

BLOCK = 16 << 20
"""Bytes of CSV that are divided at a time, and the longest line."""
ROWS_AT_ONCE = 8192
LINES_AT_ONCE = 8192
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
        except (EOFError, OSError, ValueError, zlib.error) as error:
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
                    yield [Misfit(row, f"{path}: {reason}") for row in rows.to_pylist()]
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
                yield [Misfit(rows.to_pylist()[0], f"{path}: {error}")]
                return
            half = rows.num_rows // 2
            yield from self._fitted(path, rows.slice(0, half))
            yield from self._fitted(path, rows.slice(half))
        else:
            part = pa.RecordBatch.from_arrays(columns, schema=self.schema)
            yield part.append_column(BORN, rows.column(BORN)) if BORN in rows.schema.names else part

    def _fields(self, path: Path) -> Iterator[Part]:
        """A quoted field may be empty; one that is empty without quotes is missing."""
        encoding = self.encoding or "utf-8"
        strange: list[Misfit | dict[str, Any]] = []
        with unpacked(path) as file:
            header = header_of(path, self.encoding)
            if not header:
                return

            def keep(row: pa.csv.InvalidRow) -> str:
                strange.append(_of_other_length(path, header, row))
                return "skip"

            rows = pa.csv.open_csv(
                file,
                pa.csv.ReadOptions(use_threads=False, block_size=BLOCK, encoding=encoding),
                pa.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=keep),
                pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(header, pa.binary()), null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
                ),
            )  # fmt: skip
            wanted = [name for name in header if name in self.schema.names]
            for batch in rows:
                lists = [batch.column(name).to_pylist() for name in wanted]
                yield (
                    [_texts(path, wanted, values) for values in zip(*lists, strict=True)]
                    if wanted
                    else [{}] * batch.num_rows
                )
                if strange:
                    yield list(strange)
                    strange.clear()
            if strange:
                yield strange

    def _lines(self, path: Path) -> Iterator[Part]:
        """Lines in UTF-8; what is of no such encoding is left as bytes that are none of UTF-8, to be refused with its line."""
        with unpacked(path) as file, io.TextIOWrapper(file, encoding=self.encoding, errors="surrogateescape") as lines:
            part: list[bytes] = []
            for line in lines:
                part.append(line.rstrip("\n").encode("utf-8", "surrogateescape"))
                if len(part) == LINES_AT_ONCE:
                    yield part
                    part = []
            if part:
                yield part


def header_of(path: Path, encoding: str | None) -> list[str]:
    """The names that a CSV file's first line has for its fields; none of an empty file."""
    with (
        unpacked(path) as file,
        io.TextIOWrapper(file, encoding=_marked(encoding), errors="replace", newline="") as lines,
    ):
        return next(csv.reader(lines), [])


def _marked(encoding: str | None) -> str:
    """An encoding, whose mark at the beginning of a file is no text."""
    return "utf-8-sig" if encoding is None or encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding


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


def _of_other_length(path: Path, header: list[str], row: "pa.csv.InvalidRow") -> Misfit | dict[str, Any]:
    """A line of CSV that has more fields than the header, which is no event; or fewer, whose last ones are missing."""
    if row.actual_columns > row.expected_columns:
        return Misfit(
            row.text,
            f"{path}: the line has {row.actual_columns} fields, and the header names {row.expected_columns}; quote what holds a comma",
        )
    values = next(csv.reader([row.text]))
    return {name: value or None for name, value in zip(header, values, strict=False)}


def _texts(path: Path, names: list[str], values: tuple[bytes | None, ...]) -> Misfit | dict[str, str | None]:
    try:
        return {name: None if value is None else value.decode() for name, value in zip(names, values, strict=True)}
    except UnicodeDecodeError as error:
        line = ",".join("" if value is None else value.decode("utf-8", "backslashreplace") for value in values)
        return Misfit(line, f"{path}: the line is not in UTF-8 ({error}); name its encoding, as ?encoding=latin-1")
