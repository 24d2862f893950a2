"""What every bound sink can do. Knows no Spark."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import RunLockedError, SinkError
from penstock.runtime.output import SinkFiles, StagedFile
from penstock.storage.place import path_of


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
        f"Sink {files.name}: {place} belongs to another run now: another driver has discarded this one and goes on in its place, so this "
        "one delivers nothing more."
    )


def foreign(files: SinkFiles, place: str, why: str) -> SinkError:
    """What ``--fresh`` is told of a table whose rows are not all the discarded run's."""
    return SinkError(
        f"Sink {files.name}: {place} {why}, and --fresh would remove the rows of the run that it discards, which cannot be told from "
        "others: nothing was touched. Add fresh=keep to the sink's URI to leave all rows there, or fresh=empty to remove all; or choose "
        "another table."
    )
