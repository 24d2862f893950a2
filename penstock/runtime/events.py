"""Batches of events of one stream on their way through a stage."""

from typing import Any

import pyarrow as pa

from penstock.app.stream import Stream
from penstock.kinds.coding import json_encoder
from penstock.kinds.fields import refuse_unwritable
from penstock.runtime.lineage import LineageColumns
from penstock.runtime.wiring import Wiring

_encode = json_encoder().encode


class EventBatch:
    """Events of one stream with their lineages; converted between objects and columns on demand."""

    def __init__(
        self,
        stream: Stream[Any],
        lineage: LineageColumns,
        *,
        events: list[Any] | None = None,
        columns: pa.RecordBatch | None = None,
    ) -> None:
        self.stream = stream
        self.lineage = lineage
        self._events, self._columns = events, columns
        self._lines: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.lineage.born)

    def events(self, wiring: Wiring) -> list[Any]:
        """Return the events as objects."""
        if self._events is None:
            self._events = wiring.codec(self.stream.event_type).from_columns(self._columns)
        return self._events

    def own_copy(self, wiring: Wiring) -> list[Any]:
        """Return the events for one element alone: copies, so that changes to lists and dicts in them stay private."""
        codec, events = wiring.codec(self.stream.event_type), self.events(wiring)
        return events if codec.flat else codec.decode_block(codec.encode_msgpack(events))

    def columns(self, wiring: Wiring, *, staged: bool = False) -> pa.RecordBatch:
        """Return the events as a record batch.

        Args:
            staged: whether columns have the types of `Codec.staged` instead of `Codec.schema`.
        """
        codec = wiring.codec(self.stream.event_type)
        if staged and self._columns is None and not codec.staged.equals(codec.schema):
            return codec.to_columns(self._events or [], staged=True)
        if self._columns is None:
            self._columns = codec.to_columns(self._events or [])
        return self._columns.cast(codec.staged) if staged else self._columns

    def lines(self, wiring: Wiring) -> list[bytes]:
        """Return the events as lines of JSON, which are encoded once for all sinks."""
        if self._lines is None:
            events = self.events(wiring)
            self._lines = list(map(_encode, events))
            floats = wiring.codec(self.stream.event_type).floats
            for event, line in zip(events, self._lines, strict=True) if floats else ():
                if b"null" in line:
                    refuse_unwritable(event, floats)
        return self._lines
