"""What tables cannot keep; some of these rules are applied by workers to record batches before they are staged."""

from collections.abc import Sequence

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


def refuse_optional_key(sink: Sink, schema: pa.Schema) -> None:
    """Refuse to upsert by what may be missing.

    Raises
    ------
    ConfigurationError: names the field.
    """
    nullable = [field.name for field in schema if field.name in sink.key and field.nullable]
    if nullable:
        raise ConfigurationError(f"Sink {sink.name} is upserted by {nullable[0]}, which must not be optional.")


def refuse_nested_key(sink: Sink, schema: pa.Schema) -> None:
    """Refuse to merge a table of a lake by lists, dicts or events, which its formats do not compare.

    Raises
    ------
    ConfigurationError: names the field.
    """
    refuse_optional_key(sink, schema)
    nested = [field.name for field in schema if field.name in sink.key and pa.types.is_nested(field.type)]
    if nested:
        raise ConfigurationError(
            f"Sink {sink.name} is upserted by {nested[0]}, a list, a dict or an event, by which no row of such a table is "
            "found; choose a key of single values."
        )


def refuse_unfit(sink: str, uri: str, wrong: Sequence[str]) -> None:
    """Refuse a table that could not take the events as they are.

    Parameters
    ----------
    wrong: what does not fit; nothing, where all does.

    Raises
    ------
    SinkError: says what is wrong.
    """
    if wrong:
        raise SinkError(
            f"Sink {sink}: {uri} does not fit the events ({'; '.join(wrong)}); alter the table, or choose another place."
        )


def refuse_nul(columns: pa.RecordBatch) -> None:
    """Refuse texts that hold the character NUL.

    Raises
    ------
    ValueError: there is one; names its column.
    """
    for field, column in zip(columns.schema, columns.columns, strict=True):
        if pa.types.is_string(field.type):
            found = pc.any(pc.match_substring(column, "\0")).as_py()
        else:
            held = scalars_in(column.to_pylist(maps_as_pydicts="strict")) if pa.types.is_nested(field.type) else ()
            found = any(isinstance(scalar, str) and "\0" in scalar for scalar in held)
        if found:
            raise ValueError(f"Field {field.name} holds the character NUL, which PostgreSQL does not keep")
    _refuse_unwritable(columns)


def refuse_nan(columns: pa.RecordBatch) -> None:
    """Refuse numbers that are none, in columns that are never null: SQLite keeps them as NULL.

    Raises
    ------
    ValueError: there is one; names its column.
    """
    for field, column in zip(columns.schema, columns.columns, strict=True):
        if pa.types.is_floating(field.type) and not field.nullable and pc.any(pc.is_nan(column)).as_py():
            raise ValueError(f"Field {field.name} is NaN, which SQLite does not keep; declare it float | None")
    _refuse_unwritable(columns)


def _refuse_unwritable(columns: pa.RecordBatch) -> None:
    """Refuse numbers that JSON does not have within lists, dicts and events, which databases keep as JSON."""
    for field, column in zip(columns.schema, columns.columns, strict=True):
        if pa.types.is_nested(field.type) and not is_writable(column.to_pylist(maps_as_pydicts="strict")):
            raise ValueError(f"Field {field.name} holds NaN or infinity, which JSON does not have")
