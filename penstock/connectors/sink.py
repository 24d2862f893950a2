"""What every bound sink can do. Knows no Spark."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

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

    @abstractmethod
    def claim(self, run: str, discarded: Collection[str]) -> None:
        """Make the place this run's, and refuse one that is another run's.

        Parameters
        ----------
        discarded: the runs that this one was told to discard, whose output is removed.

        Raises
        ------
        SinkError: it cannot be written, or belongs to another run.
        """

    @abstractmethod
    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        """Make a committed batch's files visible, once: after a crash it is called again for the last batch.

        Raises
        ------
        SinkError: it cannot be written; the batch stays committed, and is delivered when the run resumes.
        """

    def reached(self, group: str) -> int | None:
        """The last batch of a group that the sink holds; None if there is none, or it cannot tell."""
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
