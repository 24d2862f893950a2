"""Refuses rows whose values cannot name a partition: Delta and Iceberg tables put these values into names of directories."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

import pyarrow as pa

from penstock.connectors.sink import Refused

LONGEST_NAME = 255
"""The most bytes in the name of a directory, on common file systems."""


def without_refused(
    rows: pa.Table, partitions: Sequence[str], uri: str, *, is_local: bool, empty_is_null: bool
) -> tuple[pa.Table, list[Refused]]:
    """Return the rows whose partition can be named after their values, and the other rows as refused.

    Args:
        partitions: the columns whose values determine a row's partition.
        is_local: whether partitions are directories on a disk.
        empty_is_null: whether the format reads an empty text as null.
    """
    texts = [name for name in partitions if name in rows.column_names and pa.types.is_string(rows.schema.field(name).type)]
    reasons: dict[int, str] = {}
    for name in texts:
        for row, value in enumerate(rows[name].to_pylist()):
            if value == "" and empty_is_null:
                reasons.setdefault(row, f"its partition is by {name}, which is empty, and would be read as null")
            elif value is not None and is_local and len(quote(name)) + 1 + len(quote(value, safe="")) > LONGEST_NAME:
                reasons.setdefault(row, f"its partition is by {name}, which is too long for the name of a directory")
    return taken_apart(rows, reasons, uri)


def taken_apart(rows: pa.Table, reasons: Mapping[int, str], uri: str) -> tuple[pa.Table, list[Refused]]:
    """Split rows into accepted and refused ones; ``reasons`` has the index of each refused row, and why it is refused."""
    if not reasons:
        return rows, []
    events = rows.take(sorted(reasons)).to_pylist(maps_as_pydicts="strict")
    refused = [Refused(event, f"{uri} refuses it: {reasons[row]}") for event, row in zip(events, sorted(reasons), strict=True)]
    accepted = pa.array([row for row in range(len(rows)) if row not in reasons], pa.int64())
    return rows.take(accepted), refused
