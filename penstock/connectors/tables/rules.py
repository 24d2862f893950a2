"""Refuses what tables cannot store. Workers apply some of these rules to record batches before they are staged."""

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from penstock.app.stream import Sink
from penstock.connectors.declaration import Option, one_of
from penstock.errors import ConfigurationError, SinkError
from penstock.kinds.fields import is_writable, scalars_in

FRESH = Option(
    "fresh",
    "what `--fresh` does where others may have written rows, too: `keep` all rows, or `empty` the table; else it is refused",
    one_of("keep", "empty"),
)

LONGEST_US = 2**33 * 1_000_000
"""The least duration, in microseconds, whose neighbours may be the same number of seconds in double precision."""


def refuse_optional_key(sink: Sink, schema: pa.Schema) -> None:
    """Refuse a sink whose key has an optional field.

    Raises:
        ConfigurationError: names the field.
    """
    nullable = [field.name for field in schema if field.name in sink.key and field.nullable]
    if nullable:
        raise ConfigurationError(f"Sink {sink.name} is upserted by {nullable[0]}, which must not be optional.")


def refuse_nested_key(sink: Sink, schema: pa.Schema) -> None:
    """Refuse a sink whose key has a list, a dict or an event, which Delta and Iceberg cannot compare, or an optional field.

    Raises:
        ConfigurationError: names the field.
    """
    refuse_optional_key(sink, schema)
    nested = [field.name for field in schema if field.name in sink.key and pa.types.is_nested(field.type)]
    if nested:
        raise ConfigurationError(
            f"Sink {sink.name} is upserted by {nested[0]}, a list, a dict or an event, which such a table cannot compare; "
            "choose a key of single values."
        )


def refuse_alike(sink: Sink, product: str, names: Sequence[str], folded: Callable[[str], str] = str.lower) -> None:
    """Refuse fields whose names differ in case alone, for a product that takes them for one column.

    Args:
        folded: returns what all names that the product takes for one have in common.

    Raises:
        ConfigurationError: names the fields.
    """
    lower = list(map(folded, names))
    alike = [name for name in names if lower.count(folded(name)) > 1]
    if alike:
        raise ConfigurationError(
            f"Sink {sink.name}: {product} takes {' and '.join(alike)} for one column; give the fields names that differ in "
            "more than case."
        )


def refuse_unfit(sink: str, uri: str, wrong: Sequence[str]) -> None:
    """Refuse an existing table that cannot store the events unchanged.

    Args:
        wrong: the reasons; empty if the table fits.

    Raises:
        SinkError: states the reasons.
    """
    if wrong:
        raise SinkError(
            f"Sink {sink}: {uri} does not fit the events ({'; '.join(wrong)}); alter the table, or choose another place."
        )


def refuse_nul(columns: pa.RecordBatch) -> None:
    """Refuse texts that hold the character NUL, and numbers in nested values that JSON cannot represent.

    Raises:
        ValueError: names the column.
    """
    for field, column in zip(columns.schema, columns.columns, strict=True):
        if pa.types.is_string(field.type):
            has_nul = pc.any(pc.match_substring(column, "\0")).as_py()
        else:
            scalars = scalars_in(column.to_pylist(maps_as_pydicts="strict")) if pa.types.is_nested(field.type) else ()
            has_nul = any(isinstance(scalar, str) and "\0" in scalar for scalar in scalars)
        if has_nul:
            raise ValueError(f"Field {field.name} holds the character NUL, which PostgreSQL does not keep")
    _refuse_unwritable(columns)


def refuse_nan(columns: pa.RecordBatch) -> None:
    """Refuse NaN in columns that are never null, as SQLite stores it as NULL, and numbers in nested values that JSON lacks.

    Raises:
        ValueError: names the column.
    """
    for field, column in zip(columns.schema, columns.columns, strict=True):
        if pa.types.is_floating(field.type) and not field.nullable and pc.any(pc.is_nan(column)).as_py():
            raise ValueError(f"Field {field.name} is NaN, which SQLite does not keep; declare it float | None")
    refuse_long(columns)
    _refuse_unwritable(columns)


def refuse_long(columns: pa.RecordBatch) -> None:
    """Refuse durations that a number of seconds, as SQLite, Delta and Iceberg store it, does not tell from their neighbours.

    Raises:
        ValueError: names the column.
    """
    for field, column in zip(columns.schema, columns.columns, strict=True):
        if pa.types.is_duration(field.type) and pc.any(pc.greater_equal(pc.abs(column.cast(pa.int64())), LONGEST_US)).as_py():
            raise ValueError(f"Field {field.name} is a duration of 272 years or more, of which no microsecond is kept")


def _refuse_unwritable(columns: pa.RecordBatch) -> None:
    """Refuse NaN and infinity within lists, dicts and events, which databases store as JSON."""
    for field, column in zip(columns.schema, columns.columns, strict=True):
        if pa.types.is_nested(field.type) and not is_writable(column.to_pylist(maps_as_pydicts="strict")):
            raise ValueError(f"Field {field.name} holds NaN or infinity, which JSON does not have")
