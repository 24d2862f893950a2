"""What every bound source can do, and how it tells Spark what to read. Knows no Spark."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.app.stream import Source
from penstock.connectors.checkpoint import Position

if TYPE_CHECKING:
    from penstock.connectors.files.reader import FileReader

RowKind = Literal["lines", "json", "messages", "framed", "texts", "rows"]
"""How a source's rows hold events: lines of JSON in ``payload``, blank ones among them; JSON without
blank ones; the same with some fields apart, in ``beside``; messages that `Frames` read, with or without such; the bytes of the
only field in ``payload``; or rows of fields, of files that a worker reads (see `BoundSource.files`)."""


@dataclass(frozen=True)
class Reading:
    """What Spark is told of a stream to read: the arguments of ``spark.readStream``, and what is selected of it.

    Parameters
    ----------
    columns: SQL expressions with names: what `RowKind` says, ``born`` (microseconds), ``major`` and, where the
        source knows it, ``minor``: the order of delivery; of events from another group ``root`` (see `Lineage`).
    schema: in Spark's DDL, where the format wants to be told.
    """

    format: str
    columns: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    schema: str | None = None


class SparkView(Protocol):
    """What a source may ask the engine before it says what to read."""

    parallelism: int


class Reckoning(NamedTuple):
    """Events counted at the source, independently of what the run counted."""

    committed: int | None
    """Handed to micro-batches that have been committed; None, where that can no longer be counted at the source."""
    queued: int
    """Accepted by the source, and not in a committed micro-batch."""
    lag: Mapping[str, int] = MappingProxyType({})
    """Events that are queued, by the source's partitions, where it has some."""


class Reread(NamedTuple):
    """Rows that were read before: as `RowKind` says, or a record batch of the events' columns.

    Parameters
    ----------
    born, major, minor: int64, one of each a row: the birth, and the place in the order of delivery.
    """

    rows: Any
    born: NDArray[np.int64]
    major: NDArray[np.int64]
    minor: NDArray[np.int64]


class Frames(Protocol):
    """Reads messages by the schemas that a registry has. It travels to executors."""

    def prepare(self, messages: Iterable[bytes]) -> None:
        """Called with messages before they are read; what fails here is no message's fault."""

    def read(self, message: bytes, fit: Callable[[dict[str, Any] | bytes], Any]) -> Any:
        """What ``fit`` makes of a message's values."""


class BoundSource(ABC):
    """A declared source and where its events come from."""

    source: Source[Any]
    uri: str
    rows: RowKind
    frames: Frames | None = None
    """Of rows that are framed."""
    files: "FileReader | None" = None
    """Reads the files that Spark's rows name, in ``path``, where Spark is to read no more of them than that."""

    @abstractmethod
    def reading(self, spark: SparkView, started_us: int) -> Reading:
        """What Spark is to read; the run began at a time in microseconds."""

    def identity(self) -> str | None:
        """What tells the thing at the source's place from any other that may come to lie there; None, if nothing does."""
        return None

    def beginning(self, started_us: int) -> Any:
        """Where a new run is to begin, in JSON's types: kept from its first start on; None, where Spark keeps it."""
        return None

    def begin_at(self, beginning: Any) -> None:  # noqa: B027 - most leave it to Spark
        """Told where the run has begun, before `reading`."""

    @abstractmethod
    def reckon(self, position: Position) -> Reckoning:
        """What the source itself says has been, and is still to be, handed to Spark."""

    def recount(self, position: Position) -> int | None:
        """Count, event by event, what has been handed to committed micro-batches and is still there; None where `reckon` does.

        Asked where `reckon` says more than the run has counted.
        """
        return None

    def again(self, after: Position, upto: Position) -> Iterator[Reread] | None:
        """What was read between two positions, once more; None where that cannot be had, or not for sure.

        Raises
        ------
        SourceError: some of it is gone.
        """
        return None

    def drained(self, position: Position) -> bool:
        """Whether nothing waits, and nothing more will come by itself; may be cheaper than `reckon`."""
        return self.reckon(position).queued == 0

    def note_progress(self, run: str, positions: list[Position]) -> None:  # noqa: B027 - most have nothing to let go of
        """Called from time to time, so that a source can let go of what a run has read for good.

        Parameters
        ----------
        positions: of all queries that read the source (one or more); what one of them has yet to read must stay.
        """

    def vouch(self, position: Position) -> None:  # noqa: B027 - most cannot be misread
        """Called before a position's batch is committed.

        Raises
        ------
        SourceError: Spark has not read what the source holds.
        """
