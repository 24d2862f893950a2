"""Deliveries: a micro-batch's events, or some of them, for one keyed element in one partition, in order."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.app.stream import Stream
from penstock.runtime.codec import Codec
from penstock.runtime.lineage import Ints, LineageColumns, in_order, joined
from penstock.runtime.together.columns import Columns, taken
from penstock.runtime.together.columns import joined as joined_columns
from penstock.runtime.wire import Block
from penstock.runtime.wiring import Wiring

_raws = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class BlockEvents:
    """The events of one block, which are decoded when they are first needed."""

    def __init__(self, block: Block, wiring: Wiring) -> None:
        self._block = block
        _, self.stream = wiring.deliveries[block.target]
        self._decode = wiring.codec(self.stream.event_type).decode_block
        self.has_columns = bool(block.columns)

    @cached_property
    def events(self) -> list[Any]:
        """The events."""
        events: list[Any] = self._decode(self._block.events)
        return events

    @cached_property
    def raws(self) -> list[msgspec.Raw]:
        """The events still encoded, as they were sent."""
        return _raws(self._block.events)

    @cached_property
    def columns(self) -> Columns:
        """What came beside the events."""
        return {name: column.read() for name, column in self._block.columns.items()}


@dataclass(frozen=True)
class BlockPart:
    """Events of one block: all of them, or a selection."""

    block: BlockEvents
    lineage: LineageColumns
    numbers: Ints
    """Numbers that order events caused by one source event; see `Block.numbers`."""
    rows: Ints | None
    """The positions of the events in the block; None for the whole block."""
    each: float
    """The bytes of an event of the block, of its lineage and of what came beside it, in the mean."""

    @classmethod
    def of(cls, block: Block, wiring: Wiring) -> "BlockPart":
        """Return the whole block."""
        lineage = block.lineage_columns
        size = len(block.events) + len(block.lineage) + sum(column.bytes for column in block.columns.values())
        each = size / max(1, len(lineage.born))
        return cls(BlockEvents(block, wiring), lineage, block.numbers, None, each)

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def stream(self) -> Stream[Any]:
        """The stream that the events are of."""
        return self.block.stream

    @property
    def bytes(self) -> float:
        """About how many bytes the events have, encoded, with their lineages and columns."""
        return self.each * len(self)

    def events(self) -> list[Any]:
        """Return the events."""
        return self._selected(self.block.events)

    def columns(self) -> Columns:
        """Return what came beside the events."""
        columns = self.block.columns
        return columns if self.rows is None else {name: taken(column, self.rows) for name, column in columns.items()}

    def divided(self, mask: NDArray[np.bool_]) -> "tuple[BlockPart, BlockPart]":
        """Split into the events that a mask marks, and the others."""
        return self._take(mask), self._take(~mask)

    def _take(self, mask: NDArray[np.bool_]) -> "BlockPart":
        if mask.all():
            return self
        rows = np.flatnonzero(mask) if self.rows is None else self.rows[mask]
        return replace(self, lineage=self.lineage.take(mask), numbers=self.numbers[mask], rows=rows)

    def raw(self, row: int) -> msgspec.Raw:
        """Return an event still encoded, as it was sent."""
        return self.block.raws[row if self.rows is None else int(self.rows[row])]

    def _selected(self, of_block: list[Any]) -> list[Any]:
        return of_block if self.rows is None else [of_block[row] for row in self.rows.tolist()]


class Delivery:
    """Events with their streams and lineages: parallel sequences in the order of delivery."""

    def __init__(self, wiring: Wiring, parts: list[BlockPart]) -> None:
        self._wiring, self._parts = wiring, parts
        self.lineage = joined([part.lineage for part in parts])
        self._order = in_order(self.lineage, [part.numbers for part in parts])
        if self._order is not None:
            self.lineage = self.lineage.take(self._order)

    def __len__(self) -> int:
        return len(self.lineage.born)

    @cached_property
    def events(self) -> list[Any]:
        """The events, which are decoded when they are first needed."""
        return self._in_order([event for part in self._parts for event in part.events()])

    @cached_property
    def streams(self) -> list[Stream[Any]]:
        """The stream of each event."""
        return self._in_order([part.stream for part in self._parts for _ in range(len(part))])

    @cached_property
    def columns(self) -> Columns:
        """What came beside all of the events, in columns."""
        parts = [part.columns() for part in self._parts]
        if not parts:
            return {}
        columns = {name: joined_columns([part[name] for part in parts]) for name in set.intersection(*map(set, parts))}
        return columns if self._order is None else {name: taken(column, self._order) for name, column in columns.items()}

    def row(self, row: int) -> tuple[Stream[Any], Any]:
        """Return the stream of an event, and the event."""
        return self.streams[row], self._event(row)

    def some(self, rows: Sequence[int]) -> Sequence[Any] | Mapping[int, Any]:
        """Return what has the events of some rows. Where these are few, the other events are not decoded."""
        return self.events if 4 * len(rows) > len(self) else {row: self._event(row) for row in rows}

    def singly(self) -> "Iterator[Delivery]":
        """Yield each event as a delivery of its own."""
        places = self._in_order([(part, row) for part in self._parts for row in range(len(part))])
        for part, row in places:
            yield Delivery(self._wiring, [part.divided(np.arange(len(part)) == row)[0]])

    def again(self, row: int) -> Any:
        """Return an event as it arrived, also if a hook has changed the lists and dicts in the delivered one."""
        return self._event(row) if self._codec(row).flat else self._decoded(row)

    def _event(self, row: int) -> Any:
        return self.events[row] if "events" in vars(self) else self._decoded(row)

    def _decoded(self, row: int) -> Any:
        """Decode one event, as it arrived."""
        place = row if self._order is None else int(self._order[row])
        number = bisect_right(self._ends, place)
        return self._codec(row).decode_msgpack(self._parts[number].raw(place - self._ends[number] + len(self._parts[number])))

    def _codec(self, row: int) -> Codec:
        return self._wiring.codec(self.streams[row].event_type)

    @cached_property
    def _ends(self) -> list[int]:
        """The number of events in each part and those before it."""
        return [*accumulate(map(len, self._parts))]

    def _in_order(self, things: list[Any]) -> list[Any]:
        return things if self._order is None else [things[row] for row in self._order.tolist()]
