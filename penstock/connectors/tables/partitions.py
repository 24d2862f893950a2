"""Refuses rows whose values cannot name a partition: Delta and Iceberg tables put these values into names of directories."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from penstock.connectors.sink import Refused

LONGEST_NAME = 255
"""The most bytes in the name of a directory, on common file systems."""


Judge = Callable[[Any], str | None]
"""Says of a value, which is not null, why no partition can be named by it; None where one can."""


def too_long(name: str, text_of: Callable[[Any], str]) -> Judge:
    """Return a judge of names of directories that are made of a partition's name and the text of a value."""

    def judge(value: Any) -> str | None:
        is_too_long = len(quote(name)) + 1 + len(quote(text_of(value), safe="")) > LONGEST_NAME
        return "is too long for the name of a directory" if is_too_long else None

    return judge


def without_refused(rows: pa.Table, judges: Iterable[tuple[str, Judge]], uri: str) -> tuple[pa.Table, list[Refused]]:
    """Return the rows whose partition can be named after their values, and the other rows as refused.

    Args:
        judges: columns by whose values rows are partitioned, and what judges these values.
    """
    reasons: dict[int, str] = {}
    for name, judge in judges:
        for row, value in enumerate(rows[name].to_pylist()) if name in rows.column_names else ():
            if value is not None and (reason := judge(value)) is not None:
                reasons.setdefault(row, f"its partition is by {name}, which {reason}")
    return taken_apart(rows, reasons, uri)


def taken_apart(rows: pa.Table, reasons: Mapping[int, str], uri: str) -> tuple[pa.Table, list[Refused]]:
    """Split rows into accepted and refused ones; ``reasons`` has the index of each refused row, and why it is refused."""
    if not reasons:
        return rows, []
    events = rows.take(sorted(reasons)).to_pylist(maps_as_pydicts="strict")
    refused = [Refused(event, f"{uri} refuses it: {reasons[row]}") for event, row in zip(events, sorted(reasons), strict=True)]
    accepted = pa.array([row for row in range(len(rows)) if row not in reasons], pa.int64())
    return rows.take(accepted), refused
