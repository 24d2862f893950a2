"""The ledger of a group: one line per micro-batch. Writing that line commits the micro-batch.

A batch's output is staged until its line, which lists the staged files, is on disk; then the files are delivered to sinks.
After a crash before the line, nothing is visible. After a crash behind it, the files are delivered again when the run resumes,
and Spark's replay of the batch is recognised and dropped. So all sinks of a group commit a batch together, and once.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from penstock.connectors.sink import BoundSink, present
from penstock.engine.running.options import RETAIN
from penstock.errors import RunFailedError, SinkError
from penstock.runs.batches import BatchRecord, records_in, sum_of
from penstock.runtime.output import STAGING, SinkFiles, StagedFile
from penstock.storage import durable, journal
from penstock.storage.place import is_local, path_of


class Ledger:
    """The committed batches of one group.

    Args:
        path: its journal, with one JSON record a line.
        group: the group's name.
        sinks: the sinks to which the batches' files are delivered.
        first: the number of the first batch at the sinks, which follows those of the groups that this one continues.
        keep: how many of the newest batches have a record each; older ones are replaced by one record, their sum.
    """

    def __init__(self, path: Path, group: str, sinks: Sequence[BoundSink], first: int = 0, keep: int = RETAIN) -> None:
        self.group, self._sinks, self.first = group, sinks, first
        self._encode = msgspec.json.Encoder().encode
        self.last: int | None = None
        self.delivered: dict[str, float] = {}
        """By name of a sink, the seconds that it took for the last batch."""
        self.reached: dict[str, int] = {}
        """By label of an output, the last batch that wrote to it, in the sinks' numbering."""
        self.last_offsets = ""
        """The checksum of the last committed batch's offsets; empty if there is none."""
        self._latest: BatchRecord | None = None
        self._is_owed = False
        """Whether the last batch was committed by this process, and its delivery has not succeeded."""
        self._before: dict[str, int] = {}
        self._path, self._journal = path, journal.opened(path, keep, self._summed)
        for record in self.records():
            self._note(record)

    def records(self) -> Iterator[BatchRecord]:
        """Return the records of all committed batches, in order.

        Raises:
            IncompatibleStateError: a line is damaged.
        """
        return records_in(self._path)

    def commit(self, record: BatchRecord) -> bool:
        """Commit a batch; the caller delivers it then. Returns False, and discards its files, if it was committed before.

        Raises:
            RunLockedError: another driver has taken the run over.
            RunFailedError: the checkpoint was rolled back.
            SinkError: the driver does not see a staged file, or the delivery of the batch before has failed.
        """
        if self.last is not None and record.batch <= self.last:
            if record.batch == self.last and record.offsets != (self.last_offsets or record.offsets):
                raise RunFailedError(
                    f"Spark's checkpoint of group {self.group} was rolled back: it repeats batch {record.batch} with other "
                    "events than the ledger has committed; put back the checkpoint, or start afresh with --fresh."
                )
            for file in record.files:
                path_of(file.staged).unlink(missing_ok=True)
            return False
        if self._is_owed:
            raise SinkError(
                f"Batch {self.last} of group {self.group} was committed and could not be delivered, so no other is committed: "
                "start the run again, which delivers it first."
            )
        for file in record.files:
            staged = path_of(file.staged)
            if is_local(staged) and not staged.exists():
                raise SinkError(
                    f"A worker wrote {file.staged}, which the driver cannot see: sinks must lie where driver and executors "
                    "see the same files."
                )
        for directory in sorted({path_of(file.staged).parent for file in record.files}, key=str):
            durable.sync_names(directory)  # otherwise a power failure may leave the line, but not a staged file
        self._journal.append(self._encode(record))
        self._note(record)
        self._is_owed = bool(record.files)
        return True

    def _summed(self, lines: Iterable[bytes]) -> bytes:
        decode = msgspec.json.Decoder(BatchRecord).decode
        return self._encode(sum_of(decode(line) for line in lines))

    def close(self) -> None:
        """Close the journal; nothing may be committed any more."""
        self._journal.close()

    def deliver(self, record: BatchRecord, *, again: bool = False) -> None:
        """Deliver the staged files of a batch that was just committed, or, ``again``, what is left of them after a restart.

        Raises:
            SinkError: a sink refuses them; the next start delivers them.
        """
        self.delivered = {}
        for sink in self._sinks:
            begun = time.monotonic()
            files = [file for file in record.files if file.sink == sink.files.label]
            if again:  # the run's directory may have been moved meanwhile
                files = [_where_it_is(file, sink.files) for file in files]
            if files:
                sink.deliver(self.group, self.first + record.batch, files)
                self.delivered[sink.files.name] = round(time.monotonic() - begun, 4)
        self._is_owed = False

    def deliver_owed(self) -> None:
        """Deliver the last batch if that has failed, when Spark repeats it."""
        if self._is_owed:
            self.deliver_last()

    def deliver_last(self) -> None:
        """Deliver staged files of the last committed batch that are left; called after checking that the sinks hold all batches
        before.
        """
        if self._latest is not None:
            self.deliver(self._latest, again=True)

    def owes(self, label: str) -> bool:
        """Whether files of the last micro-batch for an output are still to be delivered."""
        sinks = {sink.files.label: sink.files for sink in self._sinks}
        return bool(label in sinks and present([_moved(file, sinks[label]) for file in self._latest_files(label)]))

    def owed(self, sink: BoundSink) -> int:
        """Return the last batch, in a sink's numbering, that it must hold: not one whose files are all still staged."""
        label = sink.files.label
        files = self._latest_files(label)
        all_staged = files and len(present([_moved(file, sink.files) for file in files])) == len(files)
        return (self._before if all_staged else self.reached).get(label, -1)

    def _latest_files(self, label: str) -> list[StagedFile]:
        """Return the files of the last micro-batch for an output."""
        return [] if self._latest is None else [file for file in self._latest.files if file.sink == label]

    def _note(self, record: BatchRecord) -> None:
        self._latest, self._before = record, dict(self.reached)
        self.last, self.last_offsets = record.batch, record.offsets
        self.reached |= {label: self.first + batch for label, batch in record.delivered.items()}


def _moved(file: StagedFile, sink: SinkFiles) -> StagedFile:
    """Return a staged file of an earlier start with its path below the sink's present directory, whether it is there or not."""
    present_path = path_of(sink.directory) / STAGING / path_of(file.staged).name
    return structs.replace(file, staged=str(present_path))


def _where_it_is(file: StagedFile, sink: SinkFiles) -> StagedFile:
    """Return a staged file of an earlier start with its path below the sink's present directory.

    Raises:
        SinkError: the file is elsewhere, or in another format than the sink now has.
    """
    moved = _moved(file, sink)
    present_path = path_of(moved.staged)
    elsewhere = not present_path.exists() and path_of(file.staged).exists()
    if elsewhere or (present_path.exists() and present_path.suffix != f".{sink.kind}"):
        raise SinkError(
            f"Sink {sink.name} was of another kind, or in another place, when the last micro-batch was committed, which is "
            "still to be delivered: start once with the old one, then with this."
        )
    return moved


def staged_below(directories: Iterable[Path]) -> list[Path]:
    """Return what is staged below sinks' directories. Of what is listed before the ledgers are opened, which fences other
    drivers, nothing is of a driver that takes the run over later.
    """
    return [path for directory in directories for path in durable.matching(directory / STAGING, "*")]


def clear_staging(leftovers: Iterable[Path]) -> None:
    """Remove what crashed attempts have left (see `staged_below`). Call it after every ledger has delivered its last batch."""
    for leftover in leftovers:
        if leftover.is_dir():
            durable.remove(leftover)
        else:
            leftover.unlink(missing_ok=True)
