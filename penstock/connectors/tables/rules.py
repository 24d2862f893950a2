"""What tables cannot keep; some of these rules are applied by workers to record batches before they are staged."""

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock.app.stream import Sink
from penstock.connectors.declaration import Option, one_of
from penstock.errors import ConfigurationError, SinkError

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
    for name, column in zip(columns.schema.names, columns.columns, strict=True):
        if pa.types.is_string(column.type):
            found = pc.any(pc.match_substring(column, "\0")).as_py()
        else:
            found = pa.types.is_nested(column.type) and b"\\u0000" in msgspec.json.encode(
                column.to_pylist(), enc_hook=str
            )
        if found:
            raise ValueError(f"Field {name} holds the character NUL, which PostgreSQL does not keep")


def refuse_nan(columns: pa.RecordBatch) -> None:
    """Refuse numbers that are none, in columns that are never null: SQLite keeps them as NULL.

    Raises
    ------
    ValueError: there is one; names its column.
    """
    for field, column in zip(columns.schema, columns.columns, strict=True):
        if pa.types.is_floating(field.type) and not field.nullable and pc.any(pc.is_nan(column)).as_py():
            raise ValueError(f"Field {field.name} is NaN, which SQLite does not keep; declare it float | None")
