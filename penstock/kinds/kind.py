"""What a field can hold: a row of the table of kinds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def text_column() -> "pa.DataType":
    """The Arrow type of texts."""
    import pyarrow as pa  # only here, for the commands that need none of it are quick to start

    return pa.string()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of scalar value, and how each place that keeps values keeps these.

    Whatever is not said is as it is of a text: a kind of which only a text is known names ``encode`` and ``decode``, and is
    kept everywhere as that text.

    Parameters
    ----------
    name: as documentation calls it.
    python: the type of its values.
    samples: values that its tests carry through every door, those at its limits among them.
    encode, decode: of a type that msgspec does not know, the text of a value, and the value of a text; None for the others.
    naive: whether it is for times without a zone, whose annotation says ``Meta(tz=False)``.
    arrow: the type of its columns, in record batches and Parquet.
    array: the NumPy type of arrays of it, in the state of the batch dialect; None where no array holds it.
    array_misses: whether such an array has a value for None.
    identity: of a type of which values are equal that are written differently, what writes all equal ones in one way.
    sqlite, postgresql: the type of its columns there.
    staged: the type of its columns in what waits to be loaded into a database, where another one than `arrow` holds more
        values.
    to_sqlite: what SQLite is given for a value; None for the value as a column has it.
    avro: its type in an Avro schema.
    protobuf: its type in a ``.proto`` file.
    json_schema: the ``format`` by which JSON Schema tells its texts; empty for none.
    reads: which types of JSON's values are read as it.
    spark: what makes of Spark's functions and a column the same as JSON has it; None where Spark's own writer does.
    spark_text: what makes of Spark's functions and such a text of JSON's the one text that all equal values have.
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
        """Whether columns keep it as a text, though it is none."""
        return self.arrow is text_column and self.python is not str
