"""What every bound source can do."""

from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession

from penstock.app.stream import Source
from penstock.engine.decode import RowKind


class BoundSource(Protocol):
    """A declared source and where its events come from."""

    source: Source[Any]
    rows: RowKind
    uri: str

    def frame(self, spark: SparkSession, started_us: int) -> DataFrame:
        """The streaming DataFrame of its rows, with a column ``born`` (microseconds), a column
        ``major`` and where the source knows it a column ``minor``: the order of delivery."""

    def reckon(self, checkpoint: Path, number: int, batch: int | None) -> "Reckoning":
        """What the source itself says has been, and is still to be, handed to Spark.

        Parameters
        ----------
        checkpoint: of the query that reads it, in which it is source ``number``.
        batch: the last committed one, or None.
        """

    def waiting(self, checkpoint: Path, number: int, batch: int | None) -> bool:
        """Whether anything is queued; cheaper than `reckon`."""

    def finished(self) -> bool:
        """Whether no more events can come."""


class Reckoning(NamedTuple):
    """Events counted at the source, independently of what the run counted."""

    committed: int
    """Handed to micro-batches that have been committed."""
    queued: int
    """Accepted by the source, and not in a committed micro-batch."""
