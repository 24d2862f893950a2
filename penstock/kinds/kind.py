"""A kind: a row of the table of the scalar types that a field can have."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def text_column() -> "pa.DataType":
    """Return the Arrow type of texts."""
    import pyarrow as pa  # only here, so that commands that do not need it start quickly

    return pa.string()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One type of scalar values, and how columns, state arrays, databases and schemas store them.

    Defaults are those of a text: a kind with no more than ``encode`` and ``decode`` is stored everywhere as its text.

    Args:
        name: its name in the documentation.
        python: the type of its values.
        samples: values that tests send through every store and format, including extreme ones.
        encode, decode: convert a value to its text, and back, if msgspec does not know the type; else None.
        naive: whether it is for times without a zone, which are annotated with ``Meta(tz=False)``.
        arrow: returns the type of its columns in record batches and Parquet.
        array: the NumPy type of its arrays in the state of the batch dialect; None if it cannot be state there.
        array_misses: whether such an array can hold None.
        identity: converts a value to the one form of all values equal to it; None if equal values have one form only.
        sqlite, postgresql: the type of its columns in these databases.
        staged: returns the type of its columns in files staged for a database, if that holds more values than `arrow`; else
            None.
        to_sqlite: converts a column's value to what SQLite stores; None if that is the value itself.
        avro: its type in an Avro schema.
        protobuf: its type in a ``.proto`` file.
        json_schema: the ``format`` of its texts in JSON Schema; empty for none.
        reads: the Python types of JSON values that can be read as it.
        spark: returns a column as JSON represents it, from ``pyspark.sql.functions`` and it; None if Spark's `to_json` does
            that.
        spark_text: returns the one text of all equal values, from ``pyspark.sql.functions`` and a column of texts that
            `to_json` wrote; None if these texts need no change.
    """

    name: str
    python: type
    samples: tuple[Any, ...]
    encode: Callable[[Any], str] | None = None
    decode: Callable[[str], Any] | None = None
    naive: bool = False
    arrow: Callable[[], "pa.DataType"] = text_column
    array: str | None = None
    array_misses: bool = False
    identity: Callable[[Any], Any] | None = None
    staged: Callable[[], "pa.DataType"] | None = None
    sqlite: str = "text"
    postgresql: str = "text"
    to_sqlite: Callable[[Any], Any] | None = None
    avro: Any = "string"
    protobuf: str = "string"
    json_schema: str = ""
    reads: tuple[type, ...] = (str,)
    spark: Callable[[Any, Any], Any] | None = None
    spark_text: Callable[[Any, Any], Any] | None = None

    @property
    def is_text(self) -> bool:
        """Whether columns hold its values as texts, though they are not of type `str`."""
        return self.arrow is text_column and self.python is not str
