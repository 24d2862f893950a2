"""Deliveries: a micro-batch's events, or some of them, for one keyed element in one partition, in order."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.app.stream import Stream
from penstock.runtime.lineage import Ints, LineageColumns, in_order, joined
from penstock.runtime.wire import Block
from penstock.runtime.wiring import Wiring

_raws = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


@dataclass(frozen=True)
class BlockPart:
    """Decoded events of one block: all of them, or a selection."""

    stream: Stream[Any]
    events: list[Any]
    lineage: LineageColumns
    numbers: Ints
    """Numbers that order events caused by one source event; see `Block.numbers`."""
    encoded: memoryview
    """The whole block's events, as they were sent."""
    rows: list[int] | None
    """The positions of ``events`` in the block; None for the whole block."""
    each: float
    """The bytes of an event of the block and of its lineage, in the mean."""

    @classmethod
    def of(cls, block: Block, wiring: Wiring) -> "BlockPart":
        """Decode a block."""
        _, stream = wiring.deliveries[block.target]
        events = wiring.codec(stream.event_type).decode_block(block.events)
        each = (len(block.events) + len(block.lineage)) / max(1, len(events))
        return cls(stream, events, block.lineage_columns, block.numbers, block.events, None, each)

    def __len__(self) -> int:
        return len(self.events)

    @property
    def bytes(self) -> float:
        """About how many bytes the events have, encoded, with their lineages."""
        return self.each * len(self.events)

    def divided(self, mask: NDArray[np.bool_]) -> "tuple[BlockPart, BlockPart]":
        """Split into the events that a mask marks, and the others."""
        return self._take(mask), self._take(~mask)

    def _take(self, mask: NDArray[np.bool_]) -> "BlockPart":
        if mask.all():
            return self
        rows = np.flatnonzero(mask).tolist()
        places = rows if self.rows is None else [self.rows[row] for row in rows]
        events = [self.events[row] for row in rows]
        lineage, numbers = self.lineage.take(mask), self.numbers[mask]
        return replace(self, events=events, lineage=lineage, numbers=numbers, rows=places)

    def raws(self) -> list[msgspec.Raw]:
        """Return the events still encoded, as they were sent."""
        raws = _raws(self.encoded)
        return raws if self.rows is None else [raws[row] for row in self.rows]


class Delivery:
    """Events with their streams and lineages: parallel sequences in the order of delivery."""

    def __init__(self, wiring: Wiring, parts: list[BlockPart]) -> None:
        self._wiring, self._parts = wiring, parts
        self.streams: list[Stream[Any]] = [part.stream for part in parts for _ in part.events]
        self.events: list[Any] = [event for part in parts for event in part.events]
        self.lineage = joined([part.lineage for part in parts])
        order = in_order(self.lineage, [part.numbers for part in parts])
        self._order = None if order is None else order.tolist()
        if order is not None:
            self.lineage = self.lineage.take(order)
            self.streams, self.events = self._in_order(self.streams), self._in_order(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def row(self, row: int) -> tuple[Stream[Any], Any]:
        """Return the stream of an event, and the event."""
        return self.streams[row], self.events[row]

    def singly(self) -> "Iterator[Delivery]":
        """Yield each event as a delivery of its own."""
        places = self._in_order([(part, row) for part in self._parts for row in range(len(part))])
        for part, row in places:
            yield Delivery(self._wiring, [part.divided(np.arange(len(part)) == row)[0]])

    def again(self, row: int) -> Any:
        """Return an event as it arrived, also if a hook has changed the lists and dicts in the delivered one."""
        codec = self._wiring.codec(self.streams[row].event_type)
        return self.events[row] if codec.flat else codec.decode_msgpack(self._encoded[row])

    @cached_property
    def _encoded(self) -> list[msgspec.Raw]:
        return self._in_order([raw for part in self._parts for raw in part.raws()])

    def _in_order(self, things: list[Any]) -> list[Any]:
        return things if self._order is None else [things[row] for row in self._order]
