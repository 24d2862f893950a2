"""Instances on their way from the pages of one layout to those of another. Runs in Spark's workers."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa

from penstock.runtime.column_pages import PageForm, fields_of
from penstock.runtime.instance import decode_shallow
from penstock.runtime.pages import HEADER, page_numbers
from penstock.runtime.wiring import WiringReference

Homes = Mapping[str, WiringReference]
"""For each element the wiring of the group in which it will be."""

Divisions = Mapping[tuple[str, int], int]
"""Into how many pages the instances of an element in a partition are divided."""

_PLACE = {"element": pa.string(), "bucket": pa.int32()}


def _schema(columns: Mapping[str, pa.DataType], *, may_lack: Collection[str] = ()) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=name in may_lack) for name, kind in {**_PLACE, **columns}.items()])


ENTRIES = _schema({"page": pa.int32(), "identity": pa.binary(), "content": pa.binary()})
SUMS = _schema({"instances": pa.int64(), "bytes": pa.int64(), "checksum": pa.int64()})
"""The checksums of entries add up, so they tell whether all are there, in whatever order."""
PAGES = _schema({"page": pa.int32(), "content": pa.binary(), "due": pa.float64(), "instances": pa.int64()}, may_lack=["due"])

_decode_page = msgspec.msgpack.Decoder(dict[bytes, msgspec.Raw]).decode
_encode = msgspec.msgpack.Encoder().encode

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True)
class Sums:
    """What `mapInArrow` is to call on pages: how many instances of each element go to each partition, and their checksum."""

    homes: Homes

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Pages in, `SUMS` out."""
        for element, identities, contents in _opened(batches, self.homes):
            buckets = self.homes[element].resolve().keys[element].buckets_of(identities)
            sizes = np.array([len(one) + len(other) for one, other in zip(identities, contents, strict=True)])
            checks = np.array([crc32(other, crc32(one)) for one, other in zip(identities, contents, strict=True)])
            there = np.unique(buckets)
            within = [buckets == bucket for bucket in there]
            columns = (
                [element] * len(there),
                there,
                [int(mask.sum()) for mask in within],
                [int(sizes[mask].sum()) for mask in within],
                [int(checks[mask].sum()) for mask in within],
            )
            yield _batch(columns, SUMS)


@dataclass(frozen=True)
class Spread:
    """What `mapInArrow` is to call on pages: each instance with the partition and the page to which it goes."""

    homes: Homes
    divisions: Divisions

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Pages in, `ENTRIES` out."""
        for element, identities, contents in _opened(batches, self.homes):
            key = self.homes[element].resolve().keys[element]
            buckets = key.buckets_of(identities)
            pages = np.array([self.divisions[element, bucket] for bucket in buckets.tolist()], np.int64)
            numbers = page_numbers(key.hashes(identities), pages)
            yield _batch(([element] * len(identities), buckets, numbers, identities, contents), ENTRIES)


def pack(homes: Homes, table: pa.Table) -> pa.Table:
    """The instances of one page, `ENTRIES`, as a row of `PAGES`."""
    element, *place = (table[name][0].as_py() for name in ("element", "bucket", "page"))
    identities, contents = table["identity"].to_pylist(), table["content"].to_pylist()
    form = _form(element, homes)
    if form is None:
        dues = [due for content in contents if (due := decode_shallow(content).next_due) is not None]
        page = _encode(dict(zip(identities, map(msgspec.Raw, contents), strict=True)))
    else:
        dues, page = form.joined(contents)
    row = (element, *place, page, min(dues, default=None), len(identities))
    return pa.Table.from_batches([_batch([[value] for value in row], PAGES)])


def _opened(batches: Batches, homes: Homes) -> Iterator[tuple[str, list[bytes], list[bytes]]]:
    """The instances of each page: element, encoded keys, and encoded instances."""
    for batch in batches:
        for element, page, content in zip(
            *(batch.column(name).to_pylist() for name in ("element", "page", "content")), strict=True
        ):
            if page == HEADER:
                continue
            form = _form(element, homes)
            if form is None:
                entries = _decode_page(content)
                identities, contents = list(entries), [bytes(entry) for entry in entries.values()]
            else:
                identities, contents = form.divided(content)
            if identities:
                yield element, identities, contents


def _form(element: str, homes: Homes) -> PageForm | None:
    """The form of an element's pages, where its instances lie in columns."""
    state = homes[element].resolve().topology.element(element).state
    return None if state is None else PageForm(fields_of(state))


def _batch(columns: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
