"""What every bound sink can do."""

from collections.abc import Sequence
from typing import Any, Protocol

from penstock.runtime.staging import SinkFiles
from penstock.runtime.tally import StagedFile


class BoundSink(Protocol):
    """A sink and where its events go: from files that are staged by the workers, once their micro-batch is committed."""

    files: SinkFiles
    uri: str

    def claim(self, run: str, previous: str | None) -> None:
        """Make the place this run's, and refuse one that is another run's.

        Parameters
        ----------
        previous: the run that this one was told to discard, whose output is removed.

        Raises
        ------
        SinkError: it cannot be written, or belongs to another run.
        """

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        """Make a committed batch's files visible, once: after a crash it is called again for the last batch.

        Raises
        ------
        SinkError: it cannot be written; the batch stays committed, and is delivered when the run resumes.
        """

    def read(self) -> list[Any]:
        """All events that have left at the sink and are still there, in the order in which they did."""


def other_run(files: SinkFiles, place: object, kind: str) -> str:
    """The sentence for a place that belongs to another run."""
    return (
        f"Sink {files.name}: {place} holds what is not of this run; empty it, or choose another with --sink "
        f"{files.name}={kind}."
    )
