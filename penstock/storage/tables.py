"""Parquet files, wherever they lie."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def rows_of(path: Path) -> int:
    """How many rows a file has."""
    with path.open("rb") as file:
        return int(pq.read_metadata(file).num_rows)


def schema_of(path: Path) -> pa.Schema:
    """The columns that a file has."""
    with path.open("rb") as file:
        return pq.read_schema(file)


def int96_of(path: Path) -> set[str]:
    """The columns of times in the form that Hive and older Sparks write, which Arrow shows as nanoseconds."""
    with path.open("rb") as file:
        columns = pq.ParquetFile(file).schema
    kinds = (columns.column(number) for number in range(len(columns)))
    return {column.path.partition(".")[0] for column in kinds if column.physical_type == "INT96"}


def batches_in(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file, as record batches of those fields of a schema that it has.

    Spark writes a length of time as a number of microseconds, so columns are made of the fields' types.
    """
    with path.open("rb") as file:
        for rows in pq.ParquetFile(file).iter_batches(columns=schema.names):
            present = [field for field in schema if field.name in rows.schema.names]
            columns = [rows.column(field.name).cast(field.type) for field in present]
            yield pa.RecordBatch.from_arrays(columns, names=[field.name for field in present])
