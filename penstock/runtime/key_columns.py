"""Keys of events in columns: finds the instance of each row, and the partition of each instance."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.kinds.coding import convert
from penstock.kinds.event import field_types
from penstock.kinds.fields import for_columns, is_flat
from penstock.runtime.codec import Codec
from penstock.runtime.key import KeyReader, Places, first_rows
from penstock.runtime.lineage import Ints


class KeyColumns:
    """Reads the keys of record batches as a `KeyReader` reads those of events, once for each distinct key.

    Args:
        fields: the fields of the events that make up the key.
        codec: the codec of the events.
    """

    def __init__(self, reader: KeyReader, fields: Sequence[str], codec: Codec) -> None:
        self._reader, self._fields = reader, list(fields)
        kinds = field_types(codec.event_type)
        self._kinds = [None if is_flat(kinds[field]) else list[kinds[field]] for field in fields]  # type: ignore[valid-type]
        self.schema = pa.schema([codec.schema.field(field) for field in fields])
        """The Arrow schema of the keys."""
        self._whole = [kinds[field] for field in fields] == [int]
        self.respells = reader.respells
        """Whether columns may hold one key in several forms."""

    def buckets(self, columns: pa.RecordBatch) -> NDArray[np.int64]:
        """Return the partition of each event's instance."""
        if self._whole:
            return self._reader.buckets_of_integers(columns.column(self._fields[0]).to_numpy())
        first, at = self._distinct(columns)
        return self._reader.buckets_of_keys(self._keys(columns, first))[at]

    def places(self, columns: pa.RecordBatch) -> Places:
        """Find the instances of events."""
        first, at = self._distinct(columns)
        identities = self._reader.identities_of(self._keys(columns, first))
        known = dict(zip(reversed(identities), range(len(identities) - 1, -1, -1), strict=True))
        if len(known) == len(identities):
            return Places(identities, first, at)
        # Distinct values may still be one key: -0.0 and 0.0.
        group = np.array([known[identity] for identity in identities], np.int64)
        firsts, numbers = np.unique(group, return_inverse=True)
        return Places([identities[number] for number in firsts.tolist()], first[firsts], numbers[at])

    def keys(self, identities: Sequence[bytes]) -> pa.RecordBatch:
        """Decode the keys of instances into columns."""
        keys = list(map(self._reader.decode, identities))
        parts = [keys] if len(self._fields) == 1 else [[key[place] for key in keys] for place in range(len(self._fields))]
        columns = [pa.array(for_columns(part), field.type) for part, field in zip(parts, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _distinct(self, columns: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Find the distinct keys: returns the first row of each, and for each row the index of its key."""
        at, number = np.zeros(columns.num_rows, np.int64), 1
        for field in self._fields:
            at, number = _numbered(columns.column(field), at, number)
        return first_rows(at, number if columns.num_rows else 0), at

    def _keys(self, columns: pa.RecordBatch, rows: Ints) -> list[Any]:
        """Return the keys of rows, with the Python types of the events' fields."""
        taken = columns.select(self._fields).take(pa.array(rows))
        parts = [
            column.to_pylist() if kind is None else convert(column.to_pylist(), kind, strict=False)
            for column, kind in zip(taken.columns, self._kinds, strict=True)
        ]
        return parts[0] if len(parts) == 1 else list(zip(*parts, strict=True))


def _numbered(column: pa.Array, at: Ints, number: int) -> tuple[Ints, int]:
    """Refine a numbering of rows by one more column: returns each row's new number, and how many numbers there are."""
    encoded = column.dictionary_encode(null_encoding="encode")
    codes = encoded.indices.to_numpy().astype(np.int64)
    if number == 1:
        return codes, len(encoded.dictionary)
    both = pa.array(at * len(encoded.dictionary) + codes).dictionary_encode()
    return both.indices.to_numpy().astype(np.int64), len(both.dictionary)
