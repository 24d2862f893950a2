"""Reads rows from the files of a Delta table as events in JSON."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.connectors.tables.delta_log import Added, DeltaLog
from penstock.errors import SourceError
from penstock.kinds.arrow import refuse_beyond, refuse_infinite, rows_shown
from penstock.kinds.event import Event
from penstock.runtime.codec import Codec
from penstock.storage.records import misnamed

KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_decimal,
    pa.types.is_timestamp,
    pa.types.is_date,
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind),
)
"""Groups of Arrow types, each given as a predicate; a type can be cast to any other of its group."""


class RowReader:
    """Reads the columns of a table that are fields of an event type, and ignores others.

    A column that a file lacks, because it was added later, is null for that file. A partition's column has the value of the
    file's partition. Durations are numbers of seconds.

    Raises:
        SourceError: the table lacks a column that events require, or a column has a type that does not fit.
    """

    def __init__(self, log: DeltaLog, event_type: type[Event]) -> None:
        self._log, self._type = log, event_type
        self._codec = Codec(event_type)
        self._schema = self._codec.schema
        self._sizes: tuple[str, list[int]] = ("", [])
        self._kept: tuple[tuple[str, int] | None, pa.Table | None] = (None, None)
        self._check()

    def payloads(self, file: Added, start: int, end: int) -> list[bytes]:
        """Return the rows of a file from index ``start`` to ``end - 1``, as JSON."""
        payloads: list[bytes] = []
        for rows in self._read(file, start, end):
            payloads.extend(self._encoded(file, rows))
        if len(payloads) != end - start:
            raise self._log.refusal(
                f"says that {file.path} has {file.rows} rows, but the file has another number",
                "mend the table's statistics, and start afresh with --fresh",
            )
        return payloads

    def _read(self, file: Added, start: int, end: int) -> Iterator[pa.Table]:
        """Yield the rows of a file from ``start`` to ``end - 1``: slices of the row groups that hold them."""
        if self._sizes[0] != file.path:
            self._sizes = (file.path, self._log.opened(file.path, _groups))
        first = 0
        for number, size in enumerate(self._sizes[1]):
            low, high = max(start, first), min(end, first + size)
            if low < high:
                yield self._group(file.path, number).slice(low - first, high - low)
            first += size

    def _group(self, path: str, number: int) -> pa.Table:
        """Return a row group, and cache the last one, as it is usually read in several slices."""
        if self._kept[0] != (path, number):
            self._kept = (None, None)
            self._kept = ((path, number), self._log.opened(path, lambda file: self._cut(file, number)))
        return self._kept[1]

    def _cut(self, file: pq.ParquetFile, number: int) -> pa.Table:
        available = set(file.schema_arrow.names)
        return file.read_row_group(number, columns=[name for name in self._schema.names if name in available])

    def _encoded(self, file: Added, rows: pa.Table) -> Iterator[bytes]:
        """Yield rows as JSON; for a row with a value that does not fit its field, an error text: it becomes a dead letter."""
        columns = {}
        for field in self._schema:
            try:
                columns[field.name] = _values(self._column(file, rows, field))
            except (pa.ArrowException, ValueError, OverflowError, KeyError) as error:
                if len(rows) > 1:  # try each row alone, to find those that do not fit
                    for number in range(len(rows)):
                        yield from self._encoded(file, rows.slice(number, 1))
                else:
                    reason = f"{self._log.at}, {file.path}: column {field.name} cannot be read as {field.type} ({error})"
                    yield f"{reason}: {rows_shown(rows.combine_chunks().to_batches()[0])[0]}".encode()
                return
        optional = {field.name for field in self._schema if field.nullable}
        for values in zip(*columns.values(), strict=True):
            row = zip(columns, values, strict=True)
            fields = {name: value for name, value in row if value is not None or name in optional}  # others take the default
            yield self._codec.encode_json(self._codec.encoded(fields))

    def _column(self, file: Added, rows: pa.Table, field: pa.Field) -> Any:
        if field.name in rows.column_names:
            return fitted(rows[field.name], field.type)
        value = file.partition.get(field.name)
        if value is None or value == "":
            return pa.nulls(len(rows), field.type)
        wanted = self._log.columns[field.name].type
        if pa.types.is_binary(wanted):
            raise self._log.refusal(f"is partitioned by {field.name}, of bytes, which Penstock cannot read", "make it a text")
        partition = pa.array([value])
        if isinstance(value, str) and pa.types.is_timestamp(wanted) and wanted.tz and not value.endswith("Z"):
            partition = partition.cast(pa.timestamp("us"))
        return pa.repeat(fitted(partition.cast(wanted), field.type)[0], len(rows))

    def _check(self) -> None:
        columns = self._log.columns
        needed = [field.name for field in self._schema if not field.nullable]
        reason = misnamed(list(columns), needed, self._schema.names)
        if reason is not None:
            raise SourceError(f"{self._log.what}: delta:{self._log.at} does not fit {self._type.__name__}: {reason}.")
        for field in self._schema:
            if field.name in columns and not fits(columns[field.name].type, field.type):
                raise SourceError(
                    f"{self._log.what}: column {field.name} of delta:{self._log.at} is of type {columns[field.name].type}, but "
                    f"{self._type.__name__}.{field.name} needs {_kept(field.type)}."
                )


def fits(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column of type ``there`` can fill a field of type ``wanted`` without loss."""
    if pa.types.is_duration(wanted) or pa.types.is_floating(wanted):
        return bool(pa.types.is_floating(there) or pa.types.is_integer(there))
    if pa.types.is_nested(wanted):
        return bool(there.id == wanted.id) and _casts(there, wanted)
    if pa.types.is_timestamp(wanted) and pa.types.is_timestamp(there) and wanted.tz is None and there.tz is not None:
        return False  # the zone would be lost
    return any(kind(there) and kind(wanted) for kind in KINDS)


def _casts(there: pa.DataType, wanted: pa.DataType) -> bool:
    try:
        pa.nulls(0, there).cast(wanted)
    except pa.ArrowException:
        return False
    return True


def fitted(column: Any, wanted: pa.DataType) -> Any:
    """Cast a column that `fits` to a field's type; a time without a zone is in UTC, a number for a duration is in seconds."""
    if pa.types.is_duration(wanted):
        micros = pc.round(pc.multiply(column.cast(pa.float64()), 1e6))
        return micros.cast(pa.int64()).cast(wanted)
    if pa.types.is_timestamp(wanted) and column.type.tz is None:
        return column.cast(pa.timestamp("us")).cast(wanted)
    return column.cast(wanted)


def _values(column: Any) -> list[Any]:
    """Return a column's values as Python values.

    Raises:
        ValueError: a value is infinite, or holds NaN or infinity, which JSON cannot represent; or is a time or a text that
            Python cannot.
    """
    for part in column.chunks if isinstance(column, pa.ChunkedArray) else (column,):
        refuse_beyond(part)
        if pa.types.is_string(part.type):
            part.validate(full=True)
    refuse_infinite(column)
    values: list[Any] = column.to_pylist(maps_as_pydicts="strict")
    return values


def _kept(wanted: pa.DataType) -> pa.DataType:
    return pa.float64() if pa.types.is_duration(wanted) else wanted


def _groups(file: pq.ParquetFile) -> list[int]:
    return [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
