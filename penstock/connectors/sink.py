"""What every bound sink can do. Knows no Spark."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.errors import RunLockedError, SinkError
from penstock.kinds.coding import json_encoder
from penstock.runtime.output import SinkFiles, StagedFile
from penstock.storage import durable
from penstock.storage.place import path_of

_encode = json_encoder().encode


class Refused(NamedTuple):
    """A result that a sink refuses as it is delivered, and what it says."""

    event: Any
    error: str


class Refusals:
    """The dead letters of what one sink refuses.

    Parameters
    ----------
    directory: of the run's dead letters. number: tells the sink from the application's others.
    sink, stream: as the letters call them.
    """

    def __init__(self, directory: Path, number: int, sink: str, stream: str) -> None:
        self._directory, self._number, self._sink, self._stream = directory, number, sink, stream

    def write(self, group: str, batch: int, refused: Sequence[Refused]) -> None:
        """Write those of a delivery, before it is final: of one that is repeated they are the same again."""
        path = self._directory / f"{batch:08d}-{group}-refused-{self._number:05d}.jsonl"
        if refused:
            about = {"element": self._sink, "stream": self._stream}
            letters = (_encode({**about, "event": event, "error": error, "line": None}) for event, error in refused)
            durable.write(path, b"".join(letter + b"\n" for letter in letters))
        else:
            path.unlink(missing_ok=True)


class BoundSink(ABC):
    """A sink and where its events go: from files that the workers stage, once their micro-batch is committed.

    Parameters
    ----------
    files: where, and in which form, events are staged for it.
    uri: where it is, without secrets.
    place: what no two sinks may share; empty where they may.
    """

    files: SinkFiles
    uri: str
    place: str = ""
    keeps_last: bool = False
    """Whether a row takes the place of the one before it of the same key."""
    refusals: Refusals | None = None
    """Where the dead letters go of results that the sink refuses as they are delivered; set by who runs it."""

    def inspect(self, run: str, discarded: Collection[str]) -> None:  # noqa: B027 - many refuse nothing that they find
        """Refuse what `claim` would refuse, and change nothing: called before a run, or an earlier one's output, is touched.

        Raises
        ------
        SinkError: it belongs to another run, or holds what cannot be told from the output of a discarded one.
        """

    @abstractmethod
    def claim(self, run: str, discarded: Collection[str]) -> None:
        """Make the place this run's, and refuse one that is another run's.

        Parameters
        ----------
        discarded: the runs that this one was told to discard, whose output is removed, and nothing besides.

        Raises
        ------
        SinkError: it cannot be written, belongs to another run, or holds rows of which nobody knows whether a discarded run has
            written them.
        """

    @abstractmethod
    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        """Make a committed batch's files visible, once: after a crash it is called again for the last batch.

        Raises
        ------
        SinkError: it cannot be written; the batch stays committed, and is delivered when the run resumes.
        RunLockedError: the place has become another run's since it was claimed.
        """

    def reached(self, group: str) -> int | None:
        """The last batch of a group that the sink holds: -1 if there is none, None if it cannot tell."""
        return None

    def recall(self, run: str) -> None:  # noqa: B027 - most read what is in their place, whoever asks
        """Called before `read` by who only reads, in place of `claim`; changes nothing."""

    @abstractmethod
    def read(self) -> list[Any]:
        """All events that have left at the sink and are still there, in the order in which they did."""


def present(files: Sequence[StagedFile]) -> list[Path]:
    """The staged files that are still there: an earlier try may have delivered some."""
    return [path for file in files if (path := path_of(file.staged)).exists()]


def other_run(files: SinkFiles, place: object, kind: str) -> str:
    """The sentence for a place that belongs to another run."""
    return (
        f"Sink {files.name}: {place} holds what is not of this run; empty it, or choose another with --sink "
        f"{files.name}={kind}."
    )


def fenced(files: SinkFiles, place: object) -> RunLockedError:
    """What a driver is told whose place another run, or another driver, has claimed since."""
    return RunLockedError(
        f"Sink {files.name}: {place} belongs to another run now: another driver has discarded this one and goes on in its "
        "place, so this one delivers nothing more."
    )


def foreign(files: SinkFiles, place: str, why: str) -> SinkError:
    """What ``--fresh`` is told of a table whose rows are not all the discarded run's."""
    return SinkError(
        f"Sink {files.name}: {place} {why}, and --fresh would remove the rows of the run that it discards, which cannot be "
        "told from others: nothing was touched. Add fresh=keep to the sink's URI to leave all rows there, or fresh=empty to "
        "remove all; or choose another table."
    )
