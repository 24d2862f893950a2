"""A Spark data source in Python that reads a sequence. Penstock decides how many events each micro-batch admits."""

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
    """The data source, registered with Spark under the name `FORMAT`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Return the schema: an event's payload, its birth, and its number in the sequence."""
        return "payload binary, born bigint, minor bigint"

    def streamReader(self, schema: Any) -> "FollowReader":
        """Return the reader of the stream that the options describe."""
        followed = msgspec.json.decode(self.options["followed"], type=Followed)
        return FollowReader(followed, int(self.options["parts"]), msgspec.json.decode(self.options["beginning"]))


class Range(InputPartition):
    """A contiguous range of a sequence's events, for one task."""

    def __init__(self, start: int, end: int, started: float, mark: Any) -> None:
        super().__init__((start, end, started))
        self.start, self.end, self.started, self.mark = start, end, started, mark


class FollowReader(DataSourceStreamReader):
    """Admits events to micro-batches, and reads them in contiguous ranges, so that order is kept.

    Spark 4.0 and 4.1 do not pass the start offset of the next micro-batch, so it is remembered here: they ask for the end
    offsets one after the other and, when a query is restarted, first for the partitions of the last planned micro-batch.
    """

    def __init__(self, followed: Followed, parts: int, beginning: dict[str, Any]) -> None:
        self._followed, self._parts, self._beginning = followed, parts, beginning
        self._admission = followed.open().admission
        self._admission.last = time.monotonic()
        self._at = beginning
        self._end: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which the run began, which holds the start of its clock, too."""
        return self._beginning

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit, so that Spark lets the admission decide; with `ReadAllAvailable`, everything is admitted."""
        return ReadMaxRows(self._admission.max_rows)

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the end offset of the next micro-batch."""
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
        """Return the end of the sequence at the last `latestOffset`, so that progress reports show how many events wait."""
        return self._end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide a micro-batch into contiguous ranges of nearly equal size."""
        self._at = end
        if start["started"] != end["started"]:  # Spark repeats the first batch, and got a new initial offset
            start = {**end, "end": end["first"], "mark": end.get("first_mark")}
        edges = np.linspace(start["end"], end["end"], self._parts + 1).astype(int).tolist()
        return [Range(low, high, end["started"], _mark(start)) for low, high in pairwise(edges) if low < high]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of a range as Arrow record batches."""
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
    """Return an offset with a bookmark added, if the sequence has one."""
    return offset if mark is None else {**offset, name: mark}


def _mark(offset: dict[str, Any]) -> Any:
    """Return the bookmark from which to read an offset's events: its own, or the one of the run's start."""
    return offset.get("mark", offset.get("first_mark"))
