"""Spark's view of a sequence, from which Penstock itself admits events to micro-batches."""

import time
from collections.abc import Iterator, MutableMapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from penstock.connectors.sequence import FORMAT, READ_AT_ONCE, Followed

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
except ImportError:  # Spark 4.0 and 4.1 have no limits, and ask for none
    ReadAllAvailable = ReadLimit = ReadMaxRows = type(None)  # type: ignore[misc, assignment]

ROWS = pa.schema([("payload", pa.binary()), ("born", pa.int64()), ("minor", pa.int64())])


class FollowDataSource(DataSource):
    """Registered with Spark under a name of our own."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return FORMAT

    def schema(self) -> str:
        """Payload, birth, and the number of the event."""
        return "payload binary, born bigint, minor bigint"

    def streamReader(self, schema: Any) -> "FollowReader":
        """The reader."""
        followed = msgspec.json.decode(self.options["followed"], type=Followed)
        return FollowReader(followed, int(self.options["parts"]), msgspec.json.decode(self.options["beginning"]))


class Range(InputPartition):
    """Events of a sequence for one task."""

    def __init__(self, start: int, end: int, started: float, mark: Any) -> None:
        super().__init__((start, end, started))
        self.start, self.end, self.started, self.mark = start, end, started, mark


class FollowReader(DataSourceStreamReader):
    """Admits events and reads them in contiguous ranges, so that order is kept.

    Spark 4.0 and 4.1 do not say from where on a micro-batch is to go, so it is remembered: they ask for the offset of one after
    the other, and when a query starts again for the partitions of what it has planned last.
    """

    def __init__(self, followed: Followed, parts: int, beginning: dict[str, Any]) -> None:
        self._followed, self._parts, self._beginning = followed, parts, beginning
        self._admission = followed.open().admission
        self._admission.last = time.monotonic()
        self._at = beginning
        self._end: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where the run has begun: the start of the sequence, and of its clock."""
        return self._beginning

    def getDefaultReadLimit(self) -> ReadLimit:
        """Some limit, so that the admission is asked; `ReadAllAvailable` goes past it."""
        return ReadMaxRows(self._admission.max_rows)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """How far the next micro-batch goes."""
        self._at = self._next(self._at if start is None else start, limit)
        return self._at

    def _next(self, start: dict[str, Any], limit: ReadLimit | None) -> dict[str, Any]:
        source = self._followed.open()
        source.sequence.turn_to(_mark(start))
        waiting = source.waiting(start["started"], start["end"])
        self._end = {**start, "end": start["end"] + waiting}
        everything = limit is not None and isinstance(limit, ReadAllAvailable)
        admitted = waiting if everything else self._admission.admit(waiting, time.monotonic())
        if not admitted:
            return start
        end = start["end"] + admitted
        return _marked({**start, "end": end}, "mark", source.sequence.bookmark(end))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the sequence when a micro-batch was last asked for, so that a progress says what it has left."""
        return self._end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Contiguous ranges of nearly one size."""
        self._at = end
        if start["started"] != end["started"]:  # the first batch again: Spark has asked anew where it starts
            start = {**end, "end": end["first"], "mark": end.get("first_mark")}
        edges = np.linspace(start["end"], end["end"], self._parts + 1).astype(int).tolist()
        return [Range(low, high, end["started"], _mark(start)) for low, high in pairwise(edges) if low < high]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One range, as Arrow record batches."""
        assert isinstance(partition, Range)
        sequence = self._followed.open().sequence
        sequence.turn_to(partition.mark)
        for low in range(partition.start, partition.end, READ_AT_ONCE):
            high = min(low + READ_AT_ONCE, partition.end)
            events = sequence.read(low, high, partition.started)
            numbers = np.arange(low, high, dtype=np.int64)
            columns = [pa.array(events.payloads, pa.binary()), pa.array(events.born, pa.int64()), pa.array(numbers)]
            yield pa.RecordBatch.from_arrays(columns, schema=ROWS)


def _marked(offset: dict[str, Any], name: str, mark: Any) -> dict[str, Any]:
    """An offset with a bookmark, if the sequence has one."""
    return offset if mark is None else {**offset, name: mark}


def _mark(offset: dict[str, Any]) -> Any:
    """Where an offset's events are found: its own bookmark, or that of the run's start."""
    return offset.get("mark", offset.get("first_mark"))
