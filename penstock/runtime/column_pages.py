"""Pages of instances in columns: each page is one Arrow record batch, read and written whole."""

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
from penstock.kinds.moments import whole
from penstock.runtime.pages import Directory, PageStore, page_numbers, pages_for, split_pages

PER_PAGE = 1024
"""Average number of instances. Such a page is copied, not decoded, so it may hold more than a page of objects."""

Array = NDArray[Any]

IDENTITY, HASH, TOUCHED, DUE = "_identity", "_hash", "_touched", "_due"
OWN = {IDENTITY: pa.binary(), HASH: pa.int64(), TOUCHED: pa.timestamp("us"), DUE: pa.timestamp("us")}
"""The columns of a page besides the state's fields: the encoded key, the key's hash, when the instance last got an event, and
when its timer fires (null for never)."""


@dataclass(frozen=True)
class Field:
    """A field of the state, and its types on a page and in an array."""

    name: str
    kind: Kind
    optional: bool
    default: Any

    @property
    def arrow(self) -> pa.DataType:
        """The field's type on a page. Times are in UTC without a zone, as in arrays."""
        return self.kind.arrow() if self.numpy == np.object_ else pa.from_numpy_dtype(self.numpy)

    @property
    def numpy(self) -> np.dtype[Any]:
        """The field's type in an array."""
        array: np.dtype[Any] = np.dtype(self.kind.array)
        return array

    def made(self, number: int) -> Array:
        """Return the default values of the field for a number of new instances."""
        return np.full(number, self.default, self.numpy)


def fields_of(state: type[Event]) -> list[Field]:
    """Return the fields of a state class."""
    kinds = field_types(state)
    fields = []
    for field in msgspec.structs.fields(state):
        kind = array_kind(kinds[field.name])
        assert kind is not None  # checked when the application was built
        default = field.default
        if isinstance(default, datetime):
            default = default.astimezone(UTC).replace(tzinfo=None) if default.tzinfo else default
        fields.append(Field(field.name, kind, optional(kinds[field.name]), default))
    return fields


@dataclass
class Instances:
    """Instances in columns: their encoded keys, and arrays by name, for the columns `OWN` and the state's fields."""

    identities: pa.Array
    arrays: dict[str, Array]

    def __len__(self) -> int:
        return len(self.identities)

    def keep(self, mask: NDArray[np.bool_]) -> None:
        """Keep only the instances that the mask marks."""
        self.identities = self.identities.filter(pa.array(mask))
        self.arrays = {name: array[mask] for name, array in self.arrays.items()}

    def add(self, other: "Instances") -> None:
        """Append other instances."""
        self.identities = pa.concat_arrays([self.identities, other.identities])
        self.arrays = {name: np.concatenate([array, other.arrays[name]]) for name, array in self.arrays.items()}


class PageForm:
    """The format of a page: an Arrow stream of one record batch, with its schema.

    Args:
        fields: the fields of an instance's state.
    """

    def __init__(self, fields: Iterable[Field]) -> None:
        self.fields = {field.name: field for field in fields}
        self.schema = pa.schema(OWN | {field.name: field.arrow for field in self.fields.values()})
        times = pa.types.is_temporal
        self._numbers = pa.schema([field.with_type(pa.int64()) if times(field.type) else field for field in self.schema])

    def opened(self, content: Any) -> pa.Table:
        """Decode a page that any version of the state class has written. A new field gets its default; a widened field is
        cast to its new type.
        """
        table = pa.ipc.open_stream(content).read_all()
        if table.schema.equals(self.schema):
            return table
        columns = [
            table[field.name].cast(field.type, safe=False)  # large integers may be rounded as floats, as in Python
            if field.name in table.schema.names
            else pa.array(self.fields[field.name].made(len(table)), field.type)
            for field in self.schema
        ]
        return pa.table(columns, schema=self.schema)

    def written(self, batch: pa.RecordBatch) -> bytes:
        """Encode instances as a page."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as stream:
            stream.write_batch(batch)
        content: bytes = sink.getvalue().to_pybytes()
        return content

    def divided(self, content: Any) -> tuple[list[bytes], list[bytes]]:
        """Split a page into single instances: returns their encoded keys, and the instances in MessagePack.

        Their hashes, which may depend on the number of partitions, are left out.
        """
        table = self.opened(content).cast(self._numbers)
        columns = [[0] * len(table) if name == HASH else table[name].to_pylist() for name in table.schema.names]
        rows = zip(*columns, strict=True)
        return table[IDENTITY].to_pylist(), list(map(msgspec.msgpack.encode, rows))

    def joined(self, entries: Iterable[bytes], hashes: NDArray[np.int64]) -> tuple[list[float], bytes]:
        """Undo `divided`: returns the due times of the instances' timers, in seconds since the epoch, and their page.

        Args:
            hashes: of the instances' keys, in the layout that the page is for.
        """
        columns = zip(*map(msgspec.msgpack.decode, entries), strict=True)
        arrays = [
            pa.array(hashes if field.name == HASH else column, field.type)
            for column, field in zip(columns, self._numbers, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._numbers)
        return [due / 1e6 for due in batch[DUE].drop_null().to_pylist()], self.written(batch.cast(self.schema))


class ColumnPages(Directory):
    """Reads and writes the pages of one element in one partition.

    Args:
        fields: the fields of an instance's state.
    """

    def __init__(self, element: str, store: PageStore, fields: Iterable[Field]) -> None:
        super().__init__(element, store)
        self._form = PageForm(fields)
        self._sizes: dict[int, int] = {}
        """The sizes in bytes of the pages that were read, by number."""

    def read(self, numbers: Iterable[int]) -> Instances:
        """Read the instances of some pages."""
        tables = [self._form.schema.empty_table()]
        for number in sorted(numbers):
            content = self._read(number)
            self._sizes[number] = 0 if content is None else len(content)
            if content is not None:
                tables.append(self._form.opened(content))
        table = pa.concat_tables(tables)
        arrays = {
            name: _array(table[name], self._form.fields.get(name)) for name in self._form.schema.names if name != IDENTITY
        }
        return Instances(pa.concat_arrays(table[IDENTITY].chunks), arrays)

    def write(self, instances: Instances) -> None:
        """Write the given instances as the whole content of the pages read; split pages until they are small enough."""
        header = self.header
        wanted = max(header.pages, pages_for(header.instances, header.bytes, PER_PAGE))
        made = split_pages(header.pages, wanted)
        # Instances move to a new page from the page that it splits, so that one must be read, too.
        divided = set(made.values()) - made.keys() - self._sizes.keys()
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
            self._write(number, content)
            header.bytes = max(0, header.bytes + len(content) - self._sizes[number])
            due = dues[start:end]
            due = due[~np.isnat(due)]
            self.note_due(number, int(due.min().astype(np.int64)) / 1e6 if len(due) else None)
        self.write_header()
        self._sizes.clear()


def _batch(instances: Instances, schema: pa.Schema) -> pa.RecordBatch:
    arrays: Mapping[str, Any] = {IDENTITY: instances.identities, **instances.arrays}
    columns = [pa.array(arrays[field.name], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _array(column: pa.ChunkedArray, field: Field | None) -> Array:
    """Return a column as a writable array."""
    array: Array = column.to_numpy()
    return array.astype(field.numpy if field is not None else array.dtype, copy=not array.flags.writeable)


def seconds_us(time: float) -> Any:
    """Convert seconds since the epoch to a `numpy.datetime64` in microseconds, the type of times in arrays."""
    return np.datetime64(whole(time), "us")
