"""Spark's view of a sequence, from which Penstock itself admits events to micro-batches."""

import time
from collections.abc import Iterator, MutableMapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from penstock.connectors.sequence import FORMAT, Followed

ROWS = pa.schema([("payload", pa.binary()), ("born", pa.int64()), ("minor", pa.int64())])

READ_AT_ONCE = 20_000


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
        return FollowReader(followed, int(self.options["parts"]))


class Range(InputPartition):
    """Events of a sequence for one task."""

    def __init__(self, start: int, end: int, started: float) -> None:
        super().__init__((start, end, started))
        self.start, self.end, self.started = start, end, started


class FollowReader(DataSourceStreamReader):
    """Admits events and reads them in contiguous ranges, so that order is kept."""

    def __init__(self, followed: Followed, parts: int) -> None:
        self._followed, self._parts = followed, parts
        self._admission = followed.open().admission
        self._admission.last = time.time()
        self._end: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """The start of the sequence, and of its clock."""
        start = self._followed.open().sequence.start()
        return {"first": start, "end": start, "started": time.time()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Some limit, so that the admission is asked; `ReadAllAvailable` goes past it."""
        return ReadMaxRows(self._admission.max_rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch goes."""
        waiting = self._followed.open().waiting(start["started"], start["end"])
        self._end = {**start, "end": start["end"] + waiting}
        admitted = waiting if isinstance(limit, ReadAllAvailable) else self._admission.admit(waiting, time.time())
        return {**start, "end": start["end"] + admitted}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the sequence when a micro-batch was last asked for, so that a progress says what it has left."""
        return self._end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Contiguous ranges of nearly one size."""
        edges = np.linspace(start["end"], end["end"], self._parts + 1).astype(int).tolist()
        return [Range(low, high, end["started"]) for low, high in pairwise(edges) if low < high]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One range, as Arrow record batches."""
        assert isinstance(partition, Range)
        sequence = self._followed.open().sequence
        for low in range(partition.start, partition.end, READ_AT_ONCE):
            high = min(low + READ_AT_ONCE, partition.end)
            events = sequence.read(low, high, partition.started)
            numbers = np.arange(low, high, dtype=np.int64)
            columns = [pa.array(events.payloads, pa.binary()), pa.array(events.born, pa.int64()), pa.array(numbers)]
            yield pa.RecordBatch.from_arrays(columns, schema=ROWS)
