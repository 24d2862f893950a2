"""What a micro-batch delivers to one keyed element in one partition, in order."""

from functools import cached_property
from typing import Any

import msgspec

from penstock.app.stream import Stream
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.wiring import Wiring

_raws = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


class Delivery:
    """Events with the streams by which they came and their lineages, all of one length.

    Parameters
    ----------
    blocks: the events as they travelled; none where all are of scalars, which no hook can change.
    order: where each event stands in the blocks; None where that is its own place.
    """

    def __init__(
        self,
        wiring: Wiring,
        streams: list[Stream[Any]],
        events: list[Any],
        lineage: LineageColumns,
        blocks: list[memoryview],
        order: list[int] | None,
    ) -> None:
        self.streams, self.events, self.lineage = streams, events, lineage
        self._wiring, self._blocks, self._order = wiring, blocks, order

    def __len__(self) -> int:
        return len(self.events)

    def row(self, row: int) -> tuple[Stream[Any], Any]:
        """An event, and the stream by which it came."""
        return self.streams[row], self.events[row]

    def again(self, row: int) -> Any:
        """An event as it came, whatever a hook has done to the lists and dicts in the one that it was handed."""
        codec = self._wiring.codec(self.streams[row].event_type)
        return self.events[row] if codec.flat else codec.decode_msgpack(self._encoded[row])

    @cached_property
    def _encoded(self) -> list[msgspec.Raw]:
        raws = [raw for block in self._blocks for raw in _raws(block)]
        return raws if self._order is None else [raws[row] for row in self._order]
