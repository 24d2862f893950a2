"""Sources that penstock itself admits events from: a Spark `DataSource` follows a sequence through a gate."""

import time
from collections.abc import Iterator, MutableMapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from penstock.app.duration import seconds
from penstock.app.loader import AppReference
from penstock.app.stream import Source
from penstock.app.uri import Uri
from penstock.engine.checkpoint import committed_offsets
from penstock.engine.decode import RowKind
from penstock.engine.sources.base import Reckoning
from penstock.engine.sources.gate import Gate, bounds_of
from penstock.engine.sources.sequence import Followed, LogSequence, Sequenced
from penstock.errors import SourceError

ROWS = pa.schema([("payload", pa.binary()), ("born", pa.int64()), ("minor", pa.int64())])


class FollowedSource:
    """A source over a sequence, read through the gate that its URI sets."""

    rows: RowKind = "json"

    def __init__(self, source: Source[Any], uri: Uri, application: AppReference) -> None:
        self.source = source
        self.uri = str(uri)
        place = uri.place if uri.scheme == "generator" else str(Path(uri.place).expanduser().absolute())
        self._followed = Followed(application, source.name, uri.scheme, place, tuple(uri.options.items()))
        self._gate = gate_of(uri)
        if uri.scheme == "replay" and not Path(place).exists():
            raise SourceError(f"Source {source.name}: {place} does not exist; check the path.")
        self._sequence: Sequenced = self._followed.open_for(source)
        self._started: float | None = None

    def frame(self, spark: SparkSession, started_us: int) -> DataFrame:
        """See `BoundSource`. An event is born when its schedule, or its producer, says it was sent."""
        spark.dataSource.register(FollowDataSource)
        reader = spark.readStream.format(FollowDataSource.name())
        parts = max(1, spark.sparkContext.defaultParallelism)
        frame = reader.options(followed=msgspec.json.encode(self._followed).decode(), parts=parts).load()
        return frame.select("payload", "born", F.lit(0).cast("bigint").alias("major"), "minor")

    def reckon(self, checkpoint: Path, number: int, batch: int | None) -> Reckoning:
        """See `BoundSource`; counts by the sequence's own numbers."""
        first, done = self._done(checkpoint, number, batch)
        self._started = self._started or time.time()
        return Reckoning(done - first, _waiting(self.uri, self._sequence.end(self._started), done))

    def _done(self, checkpoint: Path, number: int, batch: int | None) -> tuple[int, int]:
        """Where the run began, and where what it has committed ends."""
        offsets = [] if batch is None else committed_offsets(checkpoint, batch)
        if not offsets or offsets[number] is None:
            start = self._sequence.start()
            return start, start
        at = offsets[number]
        self._started = at["started"]
        return int(at["first"]), int(at["end"])

    def waiting(self, checkpoint: Path, number: int, batch: int | None) -> bool:
        """See `BoundSource`."""
        return self.reckon(checkpoint, number, batch).queued > 0

    def note_reader(self, name: str, checkpoint: Path, number: int, batch: int | None) -> None:
        """Tell the log, if it is one, how far a run is, so that it can let go of what every reader has passed."""
        if isinstance(self._sequence, LogSequence):
            self._sequence.note_reader(name, self._done(checkpoint, number, batch)[1])

    def finished(self) -> bool:
        """Whether the schedule has run out; a log may always grow."""
        last = self._sequence.last()
        return last is not None and self._started is not None and self._sequence.end(self._started) >= last


def _waiting(uri: str, end: int, done: int) -> int:
    """How many events there are beyond those done."""
    if end < done:
        raise SourceError(
            f"{uri} ends at event {end}, but {done} have been read from it: it is not the one that this run began with; put "
            "that back, or start afresh with --fresh."
        )
    return end - done


def gate_of(uri: Uri) -> Gate:
    """The gate that a URI's options set.

    Raises
    ------
    ConfigurationError: a bound is not positive, or the minimum is above the maximum.
    """
    smallest, largest = bounds_of(uri)
    delay = seconds(uri.options["max_delay"]) if "max_delay" in uri.options else 900.0
    return Gate(smallest, delay, largest, time.time())


class FollowDataSource(DataSource):
    """Spark's view of a followed sequence."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "penstock"

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
    """Admits events through the gate and reads them in contiguous ranges, so that order is kept."""

    def __init__(self, followed: Followed, parts: int) -> None:
        self._followed, self._parts = followed, parts
        self._gate = gate_of(followed.uri())

    def initialOffset(self) -> dict[str, Any]:
        """The start of the sequence, and of its clock."""
        start = self._followed.open().start()
        return {"first": start, "end": start, "started": time.time()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Some limit, so that the gate is asked; `ReadAllAvailable` goes past it."""
        return ReadMaxRows(self._gate.max_rows)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch goes."""
        waiting = _waiting(str(self._followed.uri()), self._followed.open().end(start["started"]), start["end"])
        admitted = waiting if isinstance(limit, ReadAllAvailable) else self._gate.admit(waiting, time.time())
        return {**start, "end": start["end"] + admitted}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the sequence is not known without its start; the run reports the backlog itself."""
        return None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Contiguous ranges of nearly one size."""
        edges = np.linspace(start["end"], end["end"], self._parts + 1).astype(int).tolist()
        return [Range(low, high, end["started"]) for low, high in pairwise(edges) if low < high]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """One range, as Arrow record batches."""
        assert isinstance(partition, Range)
        sequence = self._followed.open()
        for low in range(partition.start, partition.end, 20_000):
            high = min(low + 20_000, partition.end)
            events = sequence.read(low, high, partition.started)
            numbers = np.arange(low, high, dtype=np.int64)
            columns = [pa.array(events.payloads, pa.binary()), pa.array(events.born, pa.int64()), pa.array(numbers)]
            yield pa.RecordBatch.from_arrays(columns, schema=ROWS)


__all__ = ["FollowedSource"]
