"""The wire: in which form events travel from stage to stage through the engine's shuffle.

Events travel in blocks, one row for all that one partition has for one partition of a hop. What an
engine does with a row costs more than handling an event, so rows are few.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.lineage import NONE, Ints, LineageColumns

WIRE = pa.schema(
    [
        pa.field("hop", pa.int32(), nullable=False),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("block", pa.binary(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
    ]
)
"""``hop`` is the one whose containers a block is for, ``bucket`` the partition; ``time`` is the
greatest event time that a source's stage has seen, in microseconds, which the watermark follows."""

TALLY = -1
"""The ``hop`` of a row that carries a `Tally` to the driver."""

CLOCK = -2
"""The ``hop`` of a row that tells every partition the micro-batch's processing time."""

EVENTS_PER_BLOCK = 8192
"""At most: a hop decodes whole blocks, and may hold one of each partition that has sent it some."""


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Events on their way to one keyed element, in one partition."""

    target: int
    """The edge into the element, as `Wiring.deliveries` numbers them."""
    first: int
    """Numbers the emissions of the partition that sent them, for the order among those of one event."""
    events: memoryview
    """MessagePack, a list; for an element of the batch dialect Arrow, a record batch without its schema."""
    lineage: memoryview
    """int64, four rows: see `LineageColumns`."""

    @property
    def lineage_columns(self) -> LineageColumns:
        """The events' lineages."""
        return LineageColumns(*np.frombuffer(self.lineage, np.int64).reshape(4, -1))

    @property
    def numbers(self) -> Ints:
        """The events' numbers among the emissions of one event."""
        return self.first + np.arange(len(self.lineage_columns.born))


class PackedBlock(NamedTuple):
    """An encoded block, the partition that it goes to, and how many events it holds."""

    bucket: int
    content: bytes
    events: int


class Outbox:
    """Blocks on their way to later stages."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, bytes, int]] = []
        self._sent = 0
        self.bytes = 0
        """Of the blocks that are here."""
        self._encode = msgspec.msgpack.Encoder().encode

    def __len__(self) -> int:
        return len(self._rows)

    def pack(
        self, target: int, buckets: NDArray[np.int64], lineage: LineageColumns, encode: Callable[[NDArray[np.int64]], bytes]
    ) -> list[PackedBlock]:
        """Encode events for a keyed element, each for the partition where its instance lives; sends nothing yet.

        Parameters
        ----------
        encode: the events of some rows.
        """
        order = np.argsort(buckets, kind="stable")
        ends = np.flatnonzero(np.diff(buckets[order])) + 1
        packed: list[PackedBlock] = []
        first = self._sent
        for rows in np.split(order, ends) if len(order) else ():
            for part in np.split(rows, range(EVENTS_PER_BLOCK, len(rows), EVENTS_PER_BLOCK)):
                columns = np.stack([column[part] for column in lineage])
                block = Block(target, first, memoryview(encode(part)), memoryview(columns.tobytes()))
                packed.append(PackedBlock(int(buckets[part[0]]), self._encode(block), len(part)))
                first += len(part)
        return packed

    def send(self, hop: int, blocks: Iterable[PackedBlock]) -> None:
        """Put blocks on the way to a hop."""
        for block in blocks:
            self._rows.append((hop, block.bucket, block.content, NONE))
            self._sent += block.events
            self.bytes += len(block.content)

    def add(self, kind: int, bucket: int, content: bytes, time: int = NONE) -> None:
        """Send a tally or the clock."""
        self._rows.append((kind, bucket, content, time))

    def tell_time(self, now_us: int, partitions: int) -> None:
        """Tell every partition of the hops to come the micro-batch's processing time."""
        for bucket in range(partitions):
            self.add(CLOCK, bucket, now_us.to_bytes(8, "little"))

    def take(self) -> pa.RecordBatch:
        """All rows so far, which are then no longer here."""
        columns = list(zip(*self._rows, strict=True)) or [()] * len(WIRE)
        self._rows, self.bytes = [], 0
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, WIRE, strict=True)], schema=WIRE
        )
