"""The interface of bound sinks. This module does not import Spark."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import RunLockedError, SinkError
from penstock.kinds.coding import json_encoder
from penstock.runtime.output import SinkFiles, StagedFile
from penstock.storage import durable
from penstock.storage.place import path_of
from penstock.storage.tables import schema_of

_encode = json_encoder().encode


class Refused(NamedTuple):
    """A result that a sink refuses at delivery, and its reason."""

    event: Any
    error: str


class Refusals:
    """Writes dead letters for the results that a sink refuses.

    Args:
        directory: of the run's dead letters.
        number: of the sink among the application's.
        sink, stream: their names in the letters.
    """

    def __init__(self, directory: Path, number: int, sink: str, stream: str) -> None:
        self._directory, self._number, self._sink, self._stream = directory, number, sink, stream

    def write(self, group: str, batch: int, refused: Sequence[Refused]) -> None:
        """Write the dead letters of a delivery before it is final; a repeated delivery writes them again."""
        path = self._directory / f"{batch:08d}-{group}-refused-{self._number:05d}.jsonl"
        if refused:
            about = {"element": self._sink, "stream": self._stream}
            letters = (_encode({**about, "event": event, "error": error, "line": None}) for event, error in refused)
            durable.write(path, b"".join(letter + b"\n" for letter in letters))
        else:
            path.unlink(missing_ok=True)


class BoundSink(ABC):
    """A sink, bound to the place of its events. Workers stage them in files, which it delivers once their batch is committed.

    Args:
        files: the directory and the format in which events are staged for the sink.
        uri: of the place, without secrets.
        place: a name of the place, which no two sinks of an application may share; empty if they may.
    """

    files: SinkFiles
    uri: str
    place: str = ""
    keeps_last: bool = False
    """Whether the sink keeps only the last row of each key."""
    refusals: Refusals | None = None
    """Takes the results that the sink refuses at delivery; set by the engine."""

    def inspect(self, run: str, discarded: Collection[str]) -> None:  # noqa: B027 - many have nothing to refuse
        """Check that `claim` would succeed, and change nothing; called before a run, or an earlier one's output, is touched.

        Raises:
            SinkError: the place belongs to another run, or holds rows that cannot be told from a discarded run's output.
        """

    @property
    def nan_is_null(self) -> bool:
        """Whether the place keeps NaN, of a field that may be None, as null; JSON does."""
        return self.files.kind == "jsonl" and self.files.frame is None

    @property
    def spot(self) -> str:
        """The place by one name, however it is spelled, by which two sinks that share it are found."""
        return self.place

    @abstractmethod
    def claim(self, run: str, discarded: Collection[str]) -> None:
        """Make the place this run's.

        Args:
            discarded: earlier runs that this one replaces (``--fresh``). Their output is removed, and nothing else.

        Raises:
            SinkError: the place cannot be written, belongs to another run, or holds rows that a discarded run may or may not
                have written.
        """

    @abstractmethod
    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        """Make a committed batch's events visible exactly once. After a crash it is called again for the last batch.

        Raises:
            SinkError: the place cannot be written; the batch stays committed, and is delivered when the run resumes.
            RunLockedError: another run has claimed the place since.
        """

    def reached(self, group: str) -> int | None:
        """Return the number of the last batch that the sink holds of a group: -1 if none, None if it cannot tell."""
        return None

    def recall(self, run: str) -> None:  # noqa: B027 - most need no run's name to read
        """Take the name of the run whose output `read` returns, where nothing was claimed, as in an audit. Changes nothing."""

    def write_refused(self, group: str, batch: int, refused: Sequence[Refused]) -> None:
        """Write the results of a batch that the sink refuses as dead letters.

        Raises:
            SinkError: there are some, and the sink is bound without a place for them.
        """
        if self.refusals is not None:
            self.refusals.write(group, batch, refused)
        elif refused:
            raise SinkError(f"Sink {self.files.name}: {refused[0].error}.")

    @abstractmethod
    def read(self) -> list[Any]:
        """Return all events that were delivered and are still there, in the order of delivery."""


def present(files: Sequence[StagedFile]) -> list[Path]:
    """Return the paths of the staged files that are still there; an earlier attempt may have delivered some."""
    return [path for file in files if (path := path_of(file.staged)).exists()]


def present_rows(sink: SinkFiles, files: Sequence[StagedFile], fields: Sequence[str]) -> list[Path]:
    """Return the paths of staged files of a table that are still there.

    Raises:
        SinkError: they were staged by an earlier start, whose events had other fields.
    """
    paths = present(files)
    for path in paths:
        staged = schema_of(path).names
        if sorted(staged) != sorted(fields):
            raise SinkError(
                f"Sink {sink.name}: the events had the fields {', '.join(staged)} when the last micro-batch was committed, "
                f"which is still to be delivered, and now have {', '.join(fields)}: start once with the application as it was, "
                "then with this."
            )
    return paths


def other_run(files: SinkFiles, place: object, kind: str) -> str:
    """Return the error text for a place that belongs to another run, or holds data of none."""
    return (
        f"Sink {files.name}: {place} holds data that is not of this run; empty it, or choose another with --sink "
        f"{files.name}={kind}."
    )


def fenced(files: SinkFiles, place: object) -> RunLockedError:
    """Return the error for a driver whose place another run or driver has claimed since."""
    return RunLockedError(
        f"Sink {files.name}: {place} belongs to another run now: another driver has discarded this one and goes on in its "
        "place, so this one delivers nothing more."
    )


def foreign(files: SinkFiles, place: str, why: str) -> SinkError:
    """Return the error of ``--fresh`` for a table in which others than the discarded run have rows; ``why`` is the reason."""
    return SinkError(
        f"Sink {files.name}: {place} {why}, and --fresh would remove the rows of the run that it discards, which cannot be "
        "told from others: nothing was touched. Add fresh=keep to the sink's URI to leave all rows there, or fresh=empty to "
        "remove all; or choose another table."
    )
