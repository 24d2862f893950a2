"""The ledger of a group: one line per committed micro-batch, and the moment at which it commits.

A batch's output lies staged until its line, which lists the staged files, is on disk; then the
files are delivered to their sinks. A crash before the line leaves nothing visible; after it, they are
delivered again when the run resumes, and Spark's replay of the batch is recognised and dropped.
So all sinks of a group commit a batch together, and once.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from penstock.connectors.sink import BoundSink, present
from penstock.engine.running.options import RETAIN
from penstock.errors import RunFailedError, SinkError
from penstock.runs.batches import BatchRecord, sum_of
from penstock.runtime.output import STAGING, SinkFiles, StagedFile
from penstock.storage import durable, journal
from penstock.storage.place import is_local, path_of


class Ledger:
    """The committed batches of one group.

    Parameters
    ----------
    path: of its journal, one JSON record a line.
    group: whose batches these are.
    sinks: where the batches' files go.
    first: what the first batch counts as at the sinks, after those of groups that this one continues.
    keep: how many batches are kept one by one; those before become one record, their sum.
    """

    def __init__(self, path: Path, group: str, sinks: Sequence[BoundSink], first: int = 0, keep: int = RETAIN) -> None:
        self.group, self._sinks, self.first = group, sinks, first
        self._encode = msgspec.json.Encoder().encode
        self.last: int | None = None
        self.delivered: dict[str, float] = {}
        """Seconds that the sinks took for the last batch, by their names."""
        self.reached: dict[str, int] = {}
        """The last batch with something for each output, as the sinks count, by the outputs' labels."""
        self._last_offsets = ""
        self._latest: BatchRecord | None = None
        self._before: dict[str, int] = {}
        self._journal = journal.opened(path, keep, self._summed)
        self._recover()

    @property
    def last_offsets(self) -> str:
        """The checksum of the last committed batch's offsets; empty, if there was none."""
        return self._last_offsets

    def records(self) -> Iterator[BatchRecord]:
        """All committed batches, in order."""
        decode = msgspec.json.Decoder(BatchRecord).decode
        return (decode(line) for line in self._journal.lines())

    def commit(self, record: BatchRecord) -> bool:
        """Commit a batch, which is then to be delivered; returns False, and discards its files, if it has been committed
        before.

        Raises
        ------
        RunLockedError: another driver has taken the run over.
        """
        if self.last is not None and record.batch <= self.last:
            if record.batch == self.last and record.offsets != (self._last_offsets or record.offsets):
                raise RunFailedError(
                    f"Spark's checkpoint of group {self.group} was rolled back: it repeats batch {record.batch} with other "
                    "events than the ledger has committed; put back the checkpoint, or start afresh with --fresh."
                )
            for file in record.files:
                path_of(file.staged).unlink(missing_ok=True)
            return False
        for file in record.files:
            staged = path_of(file.staged)
            if is_local(staged) and not staged.exists():
                raise SinkError(
                    f"A worker wrote {file.staged}, which the driver cannot see: sinks must lie where driver and executors "
                    "see the same files."
                )
        for directory in sorted({path_of(file.staged).parent for file in record.files}, key=str):
            durable.sync_names(directory)  # else a staged file may be gone after a power failure, and its line is not
        self._journal.append(self._encode(record))
        self._note(record)
        return True

    def deliver(self, record: BatchRecord) -> None:
        """Deliver what a batch that has just been committed has left staged.

        Raises
        ------
        SinkError: a sink does not take it; the next start delivers it.
        """
        self._publish(record)

    def _summed(self, lines: Iterable[bytes]) -> bytes:
        decode = msgspec.json.Decoder(BatchRecord).decode
        return self._encode(sum_of(decode(line) for line in lines))

    def close(self) -> None:
        """Commit no more."""
        self._journal.close()

    def deliver_last(self) -> None:
        """Deliver what the last committed batch has left staged; called once it is known that the sinks hold what came
        before.
        """
        if self._latest is not None:
            self._publish(self._latest, again=True)

    def owed(self, sink: BoundSink) -> int:
        """The last batch that a sink must hold, as it counts: the last one may still lie staged, whole."""
        label = sink.files.label
        files = [] if self._latest is None else [file for file in self._latest.files if file.sink == label]
        whole = files and len(present([_moved(file, sink.files) for file in files])) == len(files)
        return (self._before if whole else self.reached).get(label, -1)

    def _recover(self) -> None:
        for record in self.records():
            self._latest, self._before = record, dict(self.reached)
            self._note(record)

    def _note(self, record: BatchRecord) -> None:
        self.last, self._last_offsets = record.batch, record.offsets
        self.reached |= {label: self.first + batch for label, batch in record.delivered.items()}

    def _publish(self, record: BatchRecord, *, again: bool = False) -> None:
        self.delivered = {}
        for sink in self._sinks:
            begun = time.monotonic()
            files = [file for file in record.files if file.sink == sink.files.label]
            if again:  # the run's directory may have been moved since
                files = [_where_it_is(file, sink.files) for file in files]
            if files:
                sink.deliver(self.group, self.first + record.batch, files)
                self.delivered[sink.files.name] = round(time.monotonic() - begun, 4)


def _moved(file: StagedFile, sink: SinkFiles) -> StagedFile:
    """A staged file of an earlier start, by its place below its sink's directory, where it is that now."""
    here = path_of(sink.directory) / STAGING / path_of(file.staged).name
    return structs.replace(file, staged=str(here))


def _where_it_is(file: StagedFile, sink: SinkFiles) -> StagedFile:
    """A staged file of an earlier start, by its place below its sink's directory.

    Raises
    ------
    SinkError: it is still to be delivered, and the sink takes events in another form now.
    """
    moved = _moved(file, sink)
    here = path_of(moved.staged)
    elsewhere = not here.exists() and path_of(file.staged).exists()
    if elsewhere or (here.exists() and here.suffix != f".{sink.kind}"):
        raise SinkError(
            f"Sink {sink.name} was of another kind, or in another place, when the last micro-batch was committed, which is "
            "still to be delivered: start once with the old one, then with this."
        )
    return moved


def clear_staging(sinks: Iterable[SinkFiles]) -> None:
    """Remove what crashed attempts have left, once every ledger has published what it had committed."""
    for sink in sinks:
        for leftover in durable.matching(path_of(sink.directory) / STAGING, "*"):
            if leftover.is_dir():
                durable.remove(leftover)
            else:
                leftover.unlink(missing_ok=True)
