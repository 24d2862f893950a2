"""The wire: the columns in which events travel from stage to stage through the engine's shuffle."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any
from zlib import crc32

import msgspec
import pyarrow as pa

from penstock.app.event import Event, field_types
from penstock.runtime.lineage import LAST, NONE, Lineage

WIRE = pa.schema(
    [
        pa.field("target", pa.int32(), nullable=False),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("born", pa.int64(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("major", pa.int64(), nullable=False),
        pa.field("minor", pa.int64(), nullable=False),
        pa.field("sub", pa.int32(), nullable=False),
    ]
)
"""``target`` numbers the keyed element that a row is for, ``bucket`` the partition; the rest is
lineage. ``sub`` orders the emissions of one partition among themselves."""

TALLY = -1
"""The target of a row that carries a `Tally` to the driver."""

CLOCK = -2
"""The target of a row that tells every partition, in ``born``, the micro-batch's processing time."""


class KeyReader:
    """Reads an event's key, and from it the instance's identity and partition."""

    def __init__(self, fields: tuple[str, ...], event_type: type[Event], partitions: int) -> None:
        kinds = field_types(event_type)
        kind = kinds[fields[0]] if len(fields) == 1 else tuple[tuple(kinds[field] for field in fields)]  # type: ignore[misc]
        self.value = attrgetter(*fields)
        self.partitions = partitions
        self._encode = msgspec.msgpack.Encoder().encode
        self.decode = msgspec.msgpack.Decoder(kind).decode

    def identity(self, event: Any) -> bytes:
        """The encoded key: equal for equal keys, and for them alone."""
        return self._encode(self.value(event))

    def bucket(self, event: Any) -> int:
        """The partition in which the instance for an event lives.

        Whole numbers go round-robin, for there are often few of them and they often follow each
        other; any other key goes by its hash.
        """
        value = self.value(event)
        if type(value) is int:
            return value % self.partitions
        return (_spread(self._encode(value)) >> 40) % self.partitions

    def hash(self, identity: bytes, /) -> int:
        """32 bits that spread the instances of a partition over its pages."""
        return (_spread(identity) >> 8) & 0xFFFFFFFF


def _spread(identity: bytes) -> int:
    """64 bits, the same in every process; multiplied, because the bits of a checksum depend on each other."""
    return (crc32(identity) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF


class Outbox:
    """Rows on their way to later stages."""

    def __init__(self) -> None:
        self._columns: tuple[list[Any], ...] = tuple([] for _ in WIRE.names)
        self._sub = 0

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, target: int, bucket: int, payload: bytes, lineage: Lineage) -> None:
        """Send an event to a keyed element."""
        for column, value in zip(self._columns, (target, bucket, payload, *lineage, self._sub), strict=True):
            column.append(value)
        self._sub += 1

    def extend(self, target: int, buckets: list[int], payloads: list[bytes], lineages: list[Lineage]) -> None:
        """Send many events to one keyed element."""
        rows = len(payloads)
        if not rows:
            return
        columns: tuple[Sequence[Any], ...] = ([target] * rows, buckets, payloads, *zip(*lineages, strict=True))
        for column, values in zip(self._columns, columns, strict=False):
            column.extend(values)
        self._columns[-1].extend(range(self._sub, self._sub + rows))
        self._sub += rows

    def add_tally(self, bucket: int, payload: bytes) -> None:
        """Send a tally to the driver."""
        self.add(TALLY, bucket, payload, Lineage(NONE, NONE, LAST, 0))

    def take(self) -> pa.RecordBatch:
        """All rows so far, which are then no longer here."""
        batch = pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(self._columns, WIRE, strict=True)], schema=WIRE
        )
        for column in self._columns:
            column.clear()
        return batch
