"""The functions by which Spark's workers move instances from the pages of one layout to those of another."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa

from penstock.runtime.column_pages import PageForm, fields_of
from penstock.runtime.compressed import restored
from penstock.runtime.instance import decode_shallow
from penstock.runtime.pages import HEADER, page_numbers
from penstock.runtime.wiring import WiringReference

Homes = Mapping[str, WiringReference]
"""By element, the wiring of its group in the new layout."""

Divisions = Mapping[tuple[str, int], int]
"""By element and partition, the number of pages for its instances."""

_PLACE = {"element": pa.string(), "bucket": pa.int32()}


def _schema(columns: Mapping[str, pa.DataType], *, may_lack: Collection[str] = ()) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=name in may_lack) for name, kind in {**_PLACE, **columns}.items()])


ENTRIES = _schema({"page": pa.int32(), "identity": pa.binary(), "content": pa.binary()})
SUMS = _schema({"instances": pa.int64(), "bytes": pa.int64(), "checksum": pa.int64()})
"""The columns of sums. Checksums of entries add up, so they show whether all entries are there, in any order."""
PAGES = _schema({"page": pa.int32(), "content": pa.binary(), "due": pa.float64(), "instances": pa.int64()}, may_lack=["due"])

_decode_page = msgspec.msgpack.Decoder(dict[bytes, msgspec.Raw]).decode
_encode = msgspec.msgpack.Encoder().encode

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class PageCounts:
    """A function for `mapInArrow`: count the instances on pages by element and new partition, with their checksum."""

    homes: Homes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Turn pages into rows of `SUMS`."""
        for element, identities, contents in _opened(batches, self.homes):
            buckets = self.homes[element].resolve().keys[element].buckets_of(identities)
            sizes = np.array([len(identity) + len(content) for identity, content in zip(identities, contents, strict=True)])
            checks = np.array([crc32(content, crc32(identity)) for identity, content in zip(identities, contents, strict=True)])
            buckets_here = np.unique(buckets)
            masks = [buckets == bucket for bucket in buckets_here]
            columns = (
                [element] * len(buckets_here),
                buckets_here,
                [int(mask.sum()) for mask in masks],
                [int(sizes[mask].sum()) for mask in masks],
                [int(checks[mask].sum()) for mask in masks],
            )
            yield _batch(columns, SUMS)


@dataclass(frozen=True)
class Spread:
    """A function for `mapInArrow`: give each instance on pages its new partition and page."""

    homes: Homes
    divisions: Divisions

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Turn pages into rows of `ENTRIES`."""
        for element, identities, contents in _opened(batches, self.homes):
            key = self.homes[element].resolve().keys[element]
            buckets = key.buckets_of(identities)
            pages = np.array([self.divisions[element, bucket] for bucket in buckets.tolist()], np.int64)
            numbers = page_numbers(key.hashes(identities), pages)
            yield _batch(([element] * len(identities), buckets, numbers, identities, contents), ENTRIES)


def pack(homes: Homes, table: pa.Table) -> pa.Table:
    """Join the instances of one page, given as rows of `ENTRIES`, to a row of `PAGES`."""
    element, *place = (table[name][0].as_py() for name in ("element", "bucket", "page"))
    identities, contents = table["identity"].to_pylist(), table["content"].to_pylist()
    form = _form(element, homes)
    if form is None:
        dues = [due for content in contents if (due := decode_shallow(content).next_due) is not None]
        page = _encode(dict(zip(identities, map(msgspec.Raw, contents), strict=True)))
    else:
        dues, page = form.joined(contents, homes[element].resolve().keys[element].hashes(identities))
    row = (element, *place, page, min(dues, default=None), len(identities))
    return pa.Table.from_batches([_batch([[value] for value in row], PAGES)])


def _opened(batches: Batches, homes: Homes) -> Iterator[tuple[str, list[bytes], list[bytes]]]:
    """Yield the instances of each page: the element, the encoded keys, and the encoded instances."""
    for batch in batches:
        for element, page, stored in zip(
            *(batch.column(name).to_pylist() for name in ("element", "page", "content")), strict=True
        ):
            if page == HEADER:
                continue
            content = restored(stored)
            form = _form(element, homes)
            if form is None:
                entries = _decode_page(content)
                identities, contents = list(entries), [bytes(entry) for entry in entries.values()]
            else:
                identities, contents = form.divided(content)
            if identities:
                yield element, identities, contents


def _form(element: str, homes: Homes) -> PageForm | None:
    """Return the form of an element's pages if its instances are stored in columns; None if each is stored by itself."""
    state = homes[element].resolve().topology.element(element).state
    return None if state is None else PageForm(fields_of(state))


def _batch(columns: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
