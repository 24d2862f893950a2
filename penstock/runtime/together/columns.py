"""Columns of the fields that an element reads. They are sent beside its events, which then need not be decoded."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.lineage import Ints

_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(list[Any] | None).decode
NOTHING = msgspec.Raw(_encode(None))
Kind = Literal["int", "float", "str", "bool", "bytes"]
"""Of the values in a column. Those of the first two are arrays of NumPy, all others are `Coded`."""

CODED: Mapping[str, pa.DataType] = {"str": pa.string(), "bool": pa.bool_(), "bytes": pa.binary()}
"""The Arrow types by which the distinct values of `Coded` are found."""


class Coded(NamedTuple):
    """A column by its distinct values, None among them: the value of a row is ``values[codes[row]]``."""

    values: list[Any]
    codes: Ints

    def take(self, rows: Any) -> "Coded":
        """Return the column of some rows; its values stay the same."""
        return Coded(self.values, self.codes[rows])

    def listed(self) -> list[Any]:
        """Return the value of each row."""
        values = self.values
        return [values[code] for code in self.codes.tolist()]


Column = NDArray[Any] | Coded


def column(kind: Kind, values: list[Any]) -> Column:
    """Return values as a column.

    Raises:
        Exception: they are not of the kind, or cannot be in a column, as a lone surrogate.
    """
    if kind == "int" or kind == "float":
        python, numpy = (int, np.int64) if kind == "int" else (float, np.float64)
        if not set(map(type, values)) <= {python}:
            raise TypeError(f"values of another type than {kind}")
        return np.array(values, numpy)
    encoded = pa.array(values, CODED[kind]).dictionary_encode(null_encoding="encode")
    return Coded(encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64))


def taken(column: Column, rows: Any) -> Column:
    """Return a column of some rows, given by indices or a mask."""
    return column.take(rows) if isinstance(column, Coded) else column[rows]


def joined(columns: Sequence[Column]) -> Column:
    """Concatenate columns of one kind."""
    if len(columns) == 1:
        return columns[0]
    if not isinstance(columns[0], Coded):
        return np.concatenate([part for part in columns if not isinstance(part, Coded)])
    known: dict[Any, int] = {}
    codes = []
    for part in columns:
        assert isinstance(part, Coded)
        numbers = np.array([known.setdefault(value, len(known)) for value in part.values], np.int64)
        codes.append(numbers[part.codes])
    return Coded(list(known), np.concatenate(codes))


class SentColumn(msgspec.Struct, frozen=True, array_like=True):
    """A column on its way: numbers of eight bytes; codes of four, and the values that they stand for."""

    numbers: memoryview
    floats: bool = False
    values: msgspec.Raw = NOTHING
    """A list; still encoded, as a block may wait to be read."""

    @property
    def bytes(self) -> int:
        """How many bytes it has."""
        return len(self.numbers) + len(self.values)

    @classmethod
    def of(cls, column: Column) -> Self:
        """Encode a column, without values that no row has."""
        if isinstance(column, Coded):
            present, codes = np.unique(column.codes, return_inverse=True)
            values = [column.values[code] for code in present.tolist()]
            return cls(memoryview(codes.astype(np.int32).tobytes()), values=msgspec.Raw(_encode(values)))
        return cls(memoryview(column.tobytes()), floats=column.dtype == np.float64)

    def read(self) -> Column:
        """Decode the column."""
        values = _decode(self.values)
        if values is not None:
            return Coded(values, np.frombuffer(self.numbers, np.int32).astype(np.int64))
        return np.frombuffer(self.numbers, np.float64 if self.floats else np.int64)


Columns = Mapping[str, Column]
"""Columns of many events, by the names of fields, or by `KEY` and `TIME`."""
KEY, TIME = "#key", "#time"
"""The column of the events' encoded keys, where these are no integers; and that of the times by which windows go, in
microseconds, where the lineage does not have them. No field can have such a name."""
