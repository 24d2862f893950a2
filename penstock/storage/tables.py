"""Parquet files, wherever they lie."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def rows_of(path: Path) -> int:
    """How many rows a file has."""
    with path.open("rb") as file:
        return int(pq.read_metadata(file).num_rows)


def columns_of(path: Path) -> set[str]:
    """The columns that a file has."""
    with path.open("rb") as file:
        return set(pq.read_schema(file).names)


def batches_in(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a file, as record batches."""
    with path.open("rb") as file:
        yield from pq.ParquetFile(file).iter_batches(columns=columns)


def rows_in(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, as dicts."""
    with path.open("rb") as file:
        rows: list[dict[str, Any]] = pq.read_table(file).to_pylist(maps_as_pydicts="strict")
        return rows
