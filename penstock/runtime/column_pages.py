"""Pages whose instances lie in columns: one Arrow record batch each, read and written whole."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.app.states import array_kind
from penstock.kinds.annotations import optional
from penstock.kinds.event import Event, field_types
from penstock.kinds.kind import Kind
from penstock.runtime.pages import Directory, PageStore, page_numbers, pages_for

PER_PAGE = 1024
"""Instances on the average. A page is copied and not decoded, so it may hold more than one whose instances are objects."""

Array = NDArray[Any]

IDENTITY, HASH, TOUCHED, DUE = "_identity", "_hash", "_touched", "_due"
OWN = {IDENTITY: pa.binary(), HASH: pa.int64(), TOUCHED: pa.timestamp("us"), DUE: pa.timestamp("us")}
"""What a page keeps of an instance besides its fields: its encoded key and the hash of that, when it last got an event, and
when its timer fires; null for never."""


@dataclass(frozen=True)
class Field:
    """A field of the state, as an array holds it."""

    name: str
    kind: Kind
    optional: bool
    default: Any

    @property
    def arrow(self) -> pa.DataType:
        """Its type on a page: times are of UTC, as in arrays."""
        return self.kind.arrow() if self.numpy == np.object_ else pa.from_numpy_dtype(self.numpy)

    @property
    def numpy(self) -> np.dtype[Any]:
        """Its type as an array."""
        array: np.dtype[Any] = np.dtype(self.kind.array)
        return array

    def made(self, number: int) -> Array:
        """The field of so many new instances."""
        return np.full(number, self.default, self.numpy)


def fields_of(state: type[Event]) -> list[Field]:
    """The fields of an instance, as arrays hold them."""
    kinds = field_types(state)
    found = []
    for field in msgspec.structs.fields(state):
        kind = array_kind(kinds[field.name])
        assert kind is not None  # which has been checked
        default = field.default
        if isinstance(default, datetime):
            default = default.astimezone(UTC).replace(tzinfo=None) if default.tzinfo else default
        found.append(Field(field.name, kind, optional(kinds[field.name]), default))
    return found


@dataclass
class Instances:
    """Instances in columns: their encoded keys, and arrays by the names of `OWN` and of the fields."""

    identities: pa.Array
    arrays: dict[str, Array]

    def __len__(self) -> int:
        return len(self.identities)

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Forget the others."""
        self.identities = self.identities.filter(pa.array(mask))
        self.arrays = {name: array[mask] for name, array in self.arrays.items()}

    def add(self, other: "Instances") -> None:
        """Append others."""
        self.identities = pa.concat_arrays([self.identities, other.identities])
        self.arrays = {name: np.concatenate([array, other.arrays[name]]) for name, array in self.arrays.items()}


class PageForm:
    """How instances lie on a page: an Arrow record batch, with its schema.

    Parameters
    ----------
    fields: of an instance's state.
    """

    def __init__(self, fields: Iterable[Field]) -> None:
        self.fields = {field.name: field for field in fields}
        self.schema = pa.schema(OWN | {field.name: field.arrow for field in self.fields.values()})
        times = pa.types.is_temporal
        self._numbers = pa.schema([field.with_type(pa.int64()) if times(field.type) else field for field in self.schema])

    def opened(self, content: bytes) -> pa.Table:
        """The instances of a page, in the columns of today: a field that is new has its default, one that is wider its new
        type.
        """
        table = pa.ipc.open_stream(content).read_all()
        if table.schema.equals(self.schema):
            return table
        columns = [
            table[field.name].cast(field.type, safe=False)  # as Python makes floats of integers
            if field.name in table.schema.names
            else pa.array(self.fields[field.name].made(len(table)), field.type)
            for field in self.schema
        ]
        return pa.table(columns, schema=self.schema)

    def written(self, batch: pa.RecordBatch) -> bytes:
        """A page of instances."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as stream:
            stream.write_batch(batch)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def divided(self, content: bytes) -> tuple[list[bytes], list[bytes]]:
        """The instances of a page one by one: their encoded keys, and themselves."""
        table = self.opened(content).cast(self._numbers)
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        return table[IDENTITY].to_pylist(), list(map(msgspec.msgpack.encode, rows))

    def joined(self, entries: Iterable[bytes]) -> tuple[list[float], bytes]:
        """When the timers of single instances are due, in seconds since the epoch, and the page of these instances."""
        columns = zip(*map(msgspec.msgpack.decode, entries), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self._numbers, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._numbers)
        return [due / 1e6 for due in batch[DUE].drop_null().to_pylist()], self.written(batch.cast(self.schema))


class ColumnPages(Directory):
    """The pages of one element in one partition.

    Parameters
    ----------
    fields: of an instance's state.
    """

    def __init__(self, element: str, store: PageStore, fields: Iterable[Field]) -> None:
        super().__init__(element, store)
        self._form = PageForm(fields)
        self._sizes: dict[int, int] = {}
        """What the pages that were read had in bytes."""

    def read(self, numbers: Iterable[int]) -> Instances:
        """The instances of some pages."""
        tables = [self._form.schema.empty_table()]
        for number in sorted(numbers):
            stored = self._store.get(self._element, number)
            self._sizes[number] = 0 if stored is None else len(stored)
            if stored is not None:
                tables.append(self._form.opened(stored))
        table = pa.concat_tables(tables)
        arrays = {
            name: _array(table[name], self._form.fields.get(name)) for name in self._form.schema.names if name != IDENTITY
        }
        return Instances(pa.concat_arrays(table[IDENTITY].chunks), arrays)

    def write(self, instances: Instances) -> None:
        """Write the pages that were read, with these instances and no others; divide pages until they are small enough."""
        header = self.header
        wanted = max(header.pages, pages_for(header.instances, header.bytes, PER_PAGE))
        made = range(header.pages, wanted)
        divided = {new - (1 << (new.bit_length() - 1)) for new in made} - set(made) - self._sizes.keys()
        if divided:
            instances.add(self.read(divided))
        header.pages = wanted
        self._sizes |= dict.fromkeys(made, 0)
        numbers = page_numbers(instances.arrays[HASH], wanted)
        order = np.argsort(numbers, kind="stable")
        batch = _batch(instances, self._form.schema).take(pa.array(order))
        dues = instances.arrays[DUE][order]
        pages = np.array(sorted(self._sizes), np.int64)
        starts, ends = (np.searchsorted(numbers[order], pages, side) for side in ("left", "right"))
        for number, start, end in zip(pages.tolist(), starts.tolist(), ends.tolist(), strict=True):
            content = self._form.written(batch.slice(start, end - start))
            self._store.put(self._element, number, content)
            header.bytes = max(0, header.bytes + len(content) - self._sizes[number])
            due = dues[start:end]
            due = due[~np.isnat(due)]
            self.note_due(number, int(due.min().astype(np.int64)) / 1e6 if len(due) else None, exact=True)
        self.write_header()
        self._sizes.clear()


def _batch(instances: Instances, schema: pa.Schema) -> pa.RecordBatch:
    arrays: Mapping[str, Any] = {IDENTITY: instances.identities, **instances.arrays}
    columns = [pa.array(arrays[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _array(column: pa.ChunkedArray, field: Field | None) -> Array:
    """A column as an array that can be written to."""
    array: Array = column.to_numpy()
    return array.astype(field.numpy if field is not None else array.dtype, copy=not array.flags.writeable)


def seconds_us(time: float) -> Any:
    """A time in seconds since the epoch, as arrays have it."""
    return np.datetime64(round(time * 1e6), "us")
