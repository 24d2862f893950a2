"""Converts staged events to rows of Delta and Iceberg tables, which store durations as seconds."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ConfigurationError
from penstock.kinds.identity import text_spelling
from penstock.storage.tables import batches_in


def kept_schema(sink: str, table: str, schema: pa.Schema) -> pa.Schema:
    """Return the schema of a table for events of the given schema; ``table`` names the format in error messages.

    Raises:
        ConfigurationError: a list, dict or event within the events holds durations.
    """
    return pa.schema([_kept_field(sink, table, field) for field in schema])


def kept_rows(staged: Sequence[Path], events: pa.Schema, schema: pa.Schema) -> pa.RecordBatchReader:
    """Return a reader of staged events of the schema ``events``, converted to rows of the table's schema."""

    def batches() -> Iterator[pa.RecordBatch]:
        for path in staged:
            for rows in batches_in(path, events):
                columns = [_kept(rows.column(field.name), field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def last_of_each(rows: pa.Table, key: Mapping[str, Any]) -> pa.Table:
    """Return the last row of each key, in the given order. Equal values of a key are stored as one, -0.0 as 0.0.

    Args:
        key: the fields of the key, with their types.
    """
    for name, annotation in key.items():
        place, spell = rows.schema.get_field_index(name), text_spelling(annotation)
        column = rows[name]
        if spell is not None:
            column = pa.chunked_array([pa.array(map(spell, column.to_pylist()), column.type)])
        elif pa.types.is_floating(column.type):
            column = pc.add(column, 0.0)
        rows = rows.set_column(place, rows.schema.field(place), column)
    row = pa.array(range(len(rows)), pa.int64())
    last = pa.table({**{name: rows[name] for name in key}, "": row}).group_by(list(key)).aggregate([("", "max")])
    return rows.take(last["_max"].sort())


def _kept_field(sink: str, table: str, field: pa.Field) -> pa.Field:
    """Return the table's column for a field: a duration becomes a number."""
    if pa.types.is_duration(field.type):
        return pa.field(field.name, pa.float64(), field.nullable)
    if "duration" in str(field.type):
        raise ConfigurationError(
            f"Sink {sink}: {table} keeps no durations within lists, dicts or events, as {field.name} has them; make them "
            "numbers of seconds."
        )
    return field


def _kept(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_duration(column.type):
        return pc.divide(column.cast(pa.int64()).cast(kind), 1e6)
    return column.cast(kind)
