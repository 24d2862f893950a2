"""The wire: the format in which events travel between stages, through the engine's shuffle.

Each row carries a block, with many events from one partition for one partition of a hop. A row costs the engine more than
handling an event, so rows are kept few.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.lineage import NONE, Ints, LineageColumns
from penstock.runtime.together.columns import Columns, SentColumn, taken

WIRE = pa.schema(
    [
        pa.field("hop", pa.int32(), nullable=False),
        pa.field("bucket", pa.int32(), nullable=False),
        pa.field("block", pa.binary(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
    ]
)
"""``hop`` and ``bucket`` are the hop and the partition that a block is for. ``time`` is the greatest event time that a source's
stage has seen, in microseconds since the epoch; the watermark follows it."""

TALLY = -1
"""The ``hop`` of a row that carries a `Tally` to the driver."""

CLOCK = -2
"""The ``hop`` of a row that tells every partition the micro-batch's processing time."""

EVENTS_PER_BLOCK = 8192
"""The most events in a block. Bounds memory: a hop decodes whole blocks, and may hold one from each sending partition."""


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Encoded events on their way to one keyed element, in one partition."""

    target: int
    """The edge into the element, as an index of `Wiring.deliveries`."""
    first: int
    """The first event's number among all that the sending partition sent; orders events caused by one source event."""
    events: memoryview
    """A list in MessagePack; for elements of the batch dialect, an Arrow record batch without its schema."""
    lineage: memoryview
    """The columns of `LineageColumns`, one after another, as int64."""
    rooted: bool = False
    """Whether the roots are among these columns; otherwise they follow from the others."""
    columns: dict[str, SentColumn] = {}
    """What the element reads of the events, in columns; empty where it needs the events."""

    @property
    def lineage_columns(self) -> LineageColumns:
        """The lineages of the events."""
        columns = np.frombuffer(self.lineage, np.int64).reshape(len(LineageColumns._fields) - (not self.rooted), -1)
        return LineageColumns(*columns) if self.rooted else LineageColumns.within_group(*columns)

    @property
    def numbers(self) -> Ints:
        """The numbers of the events, which order those that one source event caused."""
        return self.first + np.arange(len(self.lineage_columns.born))


class PackedBlock(NamedTuple):
    """An encoded block, the partition that it goes to, and how many events it holds."""

    bucket: int
    content: bytes
    events: int


class Outbox:
    """Blocks on their way to later stages.

    Args:
        grouped: whether the run has several groups, so that the roots of events are sent, too.
    """

    def __init__(self, grouped: bool = False) -> None:
        self._grouped = grouped
        self._rows: list[tuple[int, int, bytes, int]] = []
        self._sent = 0
        self.bytes = 0
        """The total size of the waiting blocks."""
        self._encode = msgspec.msgpack.Encoder().encode

    def __len__(self) -> int:
        return len(self._rows)

    def pack(
        self,
        target: int,
        buckets: NDArray[np.int64],
        lineage: LineageColumns,
        encode: Callable[[NDArray[np.int64]], bytes],
        beside: Columns | None = None,
    ) -> list[PackedBlock]:
        """Encode events for a keyed element into blocks by partition, without sending them yet.

        Args:
            buckets: for each event, the partition of its instance.
            encode: returns the encoded events of some rows.
            beside: what the element reads of the events, in columns.
        """
        order = np.argsort(buckets, kind="stable")
        ends = np.flatnonzero(np.diff(buckets[order])) + 1
        packed: list[PackedBlock] = []
        first = self._sent
        for rows in np.split(order, ends) if len(order) else ():
            for part in np.split(rows, range(EVENTS_PER_BLOCK, len(rows), EVENTS_PER_BLOCK)):
                origins = np.stack([column[part] for column in (lineage if self._grouped else lineage[:-1])])
                sent = {name: SentColumn.of(taken(column, part)) for name, column in (beside or {}).items()}
                block = Block(target, first, memoryview(encode(part)), memoryview(origins.tobytes()), self._grouped, sent)
                packed.append(PackedBlock(int(buckets[part[0]]), self._encode(block), len(part)))
                first += len(part)
        return packed

    def send(self, hop: int, blocks: Iterable[PackedBlock]) -> None:
        """Queue blocks for a hop."""
        for block in blocks:
            self._rows.append((hop, block.bucket, block.content, NONE))
            self._sent += block.events
            self.bytes += len(block.content)

    def add(self, kind: int, bucket: int, content: bytes, time: int = NONE) -> None:
        """Queue a row that carries a tally or the clock."""
        self._rows.append((kind, bucket, content, time))

    def tell_time(self, now_us: int, partitions: int) -> None:
        """Queue, for every partition of later hops, the processing time of the micro-batch in microseconds."""
        for bucket in range(partitions):
            self.add(CLOCK, bucket, now_us.to_bytes(8, "little"))

    def take(self) -> pa.RecordBatch:
        """Return, and remove, all queued rows as a record batch of `WIRE`."""
        hops, buckets, blocks, times = list(zip(*self._rows, strict=True)) or [()] * len(WIRE)
        self._rows, self.bytes = [], 0
        hop, bucket, block, time = WIRE.types
        columns = [pa.array(hops, hop), pa.array(buckets, bucket), _binary(blocks, block), pa.array(times, time)]
        return pa.RecordBatch.from_arrays(columns, schema=WIRE)


def _binary(values: Sequence[bytes], kind: pa.DataType) -> pa.Array:
    """Return a column of large values, which are copied once; ``pyarrow.array`` copies them each time that its buffer grows."""
    ends = np.cumsum([0, *map(len, values)])
    if ends[-1] > np.iinfo(np.int32).max:
        return pa.array(values, kind)
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(kind, len(values), buffers)
