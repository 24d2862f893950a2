"""The ledger of a group: one line per committed micro-batch, and the moment at which it commits.

A batch's output lies staged until its line, which lists the staged files, is on disk; then the
files are delivered to their sinks. A crash before the line leaves nothing visible; after it, they are
delivered again when the run resumes, and Spark's replay of the batch is recognised and dropped.
So all sinks of a group commit a batch together, and once.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from penstock.connectors.sink import BoundSink
from penstock.errors import SinkError
from penstock.runtime.histogram import Histogram
from penstock.runtime.output import STAGING, SinkFiles, StagedFile
from penstock.runtime.tally import Counts, Tally


class BatchRecord(Counts, kw_only=True):
    """What is kept of a committed micro-batch; times are in microseconds since the epoch."""

    batch: int
    committed_us: int
    files: list[StagedFile] = []
    latency_ms: Histogram = msgspec.field(default_factory=Histogram)
    dead_lettered: int = 0
    """Source events that, or a descendant of which, became a dead letter."""

    @classmethod
    def of(cls, batch: int, committed_us: int, tallies: list[Tally]) -> "BatchRecord":
        """The record that the tallies of a batch's stages and partitions add up to."""
        record = cls(batch=batch, committed_us=committed_us)
        for tally in tallies:
            record.merge(tally)
            for births in tally.births:
                record.latency_ms.merge(births.latencies_ms(committed_us))
        record.dead_lettered = len({origin for tally in tallies for origin in tally.failed})
        return record


class Ledger:
    """The committed batches of one group.

    Parameters
    ----------
    path: the file, one JSON record a line; a torn last line, which no batch relied on, is dropped.
    group: whose batches these are.
    sinks: where the batches' files go.
    """

    def __init__(self, path: Path, group: str, sinks: Sequence[BoundSink]) -> None:
        self._path, self._group, self._sinks = path, group, sinks
        self._encode = msgspec.json.Encoder().encode
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self.last: int | None = None
        self._recover()
        self._file = path.open("ab")

    def records(self) -> Iterator[BatchRecord]:
        """All committed batches, in order."""
        decode = msgspec.json.Decoder(BatchRecord).decode
        with self._path.open("rb") as lines:
            for line in lines:
                yield decode(line)

    def commit(self, record: BatchRecord) -> bool:
        """Commit a batch; returns False, and discards its files, if it has been committed before."""
        if self.last is not None and record.batch <= self.last:
            for file in record.files:
                Path(file.staged).unlink(missing_ok=True)
            return False
        for file in record.files:
            if not Path(file.staged).exists():
                raise SinkError(
                    f"A worker wrote {file.staged}, which the driver cannot see: sinks must lie where driver and executors "
                    "see the same files."
                )
        self._file.write(self._encode(record) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.last = record.batch
        self._publish(record)
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _recover(self) -> None:
        whole = 0
        record = None
        with self._path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    whole += len(line)
                    record = line
        if whole < self._path.stat().st_size:
            os.truncate(self._path, whole)
        if record is not None:
            latest = msgspec.json.decode(record, type=BatchRecord)
            self.last = latest.batch
            self._publish(latest)

    def _publish(self, record: BatchRecord) -> None:
        for sink in self._sinks:
            files = [file for file in record.files if file.sink == sink.files.label]
            if files:
                sink.deliver(self._group, record.batch, files)


def clear_staging(sinks: Iterable[SinkFiles]) -> None:
    """Remove what crashed attempts have left, once every ledger has published what it had committed."""
    for sink in sinks:
        for leftover in (Path(sink.directory) / STAGING).glob("*"):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink(missing_ok=True)
