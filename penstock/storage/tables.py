"""Reading Parquet files on a local disk or in a store."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def rows_of(path: Path) -> int:
    """Return the number of rows of a file."""
    with path.open("rb") as file:
        return int(pq.read_metadata(file).num_rows)


def schema_of(path: Path) -> pa.Schema:
    """Return the Arrow schema of a file."""
    with path.open("rb") as file:
        return pq.read_schema(file)


def batches_in(path: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file as record batches, with those fields of ``schema`` that the file has.

    Columns are cast to the types of the schema, because Spark writes durations as numbers of microseconds.
    """
    with path.open("rb") as file:
        for rows in pq.ParquetFile(file).iter_batches(columns=schema.names):
            present = [field for field in schema if field.name in rows.schema.names]
            columns = [rows.column(field.name).cast(field.type) for field in present]
            yield pa.RecordBatch.from_arrays(columns, names=[field.name for field in present])
