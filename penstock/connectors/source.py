"""The interface of bound sources, and how they describe to Spark what to read. This module does not import Spark."""

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
"""How a source's rows hold events. "lines": JSON in ``payload``, some lines may be blank. "json": JSON in ``payload``, never
blank. "messages": JSON in ``payload``, and some fields apart from it in ``beside``. "framed": messages that `Frames` decodes,
with or without ``beside``. "texts": the only field's bytes in ``payload``. "rows": columns of fields, from files that a worker
reads (see `BoundSource.files`)."""


@dataclass(frozen=True)
class Reading:
    """How Spark reads a stream: the arguments of ``spark.readStream``, and the columns to select from it.

    Args:
        columns: named SQL expressions: the columns of the source's `RowKind`; ``born`` (microseconds since the epoch); for the
            order of delivery ``major`` and, if known, ``minor``; for events from another group ``root`` (see `Lineage`).
        schema: in Spark's DDL, if the format must be given one.
        divided: whether rows are files with a ``length``, whose spans (see `FileReader.spans`) are read by as many tasks as run
            at a time.
    """

    format: str
    columns: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None
    schema: str | None = None
    divided: bool = False


class SparkView(Protocol):
    """The facts about a Spark session that a source may use to decide how it is read."""

    parallelism: int
    """Spark's default parallelism: how many tasks run at a time."""


class Reckoning(NamedTuple):
    """Events counted at the source, independently of what the run counted."""

    committed: int | None
    """Events in committed micro-batches; None if the source can no longer count them."""
    queued: int
    """Events that the source holds, and no committed micro-batch does."""
    lag: Mapping[str, int] = MappingProxyType({})
    """The queued events by partition; empty if the source has no partitions."""


class Reread(NamedTuple):
    """Rows that are read a second time: of the source's `RowKind`, or a record batch with the events' columns.

    Args:
        born, major, minor: one int64 per row: its birth (microseconds since the epoch), and its place in the order of delivery.
    """

    rows: Any
    born: NDArray[np.int64]
    major: NDArray[np.int64]
    minor: NDArray[np.int64]


class Frames(Protocol):
    """Decodes messages by the schemas of a registry. It is pickled and sent to executors."""

    def prepare(self, messages: Iterable[bytes]) -> None:
        """Fetch what is needed to read these messages. An error here is the registry's and makes no dead letter."""

    def read(self, message: bytes, fit: Callable[[dict[str, Any] | bytes], Any]) -> Any:
        """Decode a message, and return the result of ``fit`` for its values."""


class BoundSource(ABC):
    """A declared source, bound to the place that its events come from."""

    source: Source[Any]
    uri: str
    rows: RowKind
    frames: Frames | None = None
    """Decodes the messages of a source whose rows are "framed"."""
    files: "FileReader | None" = None
    """Set if Spark only lists files, one row with a ``path`` for each: workers read their content with it."""

    @abstractmethod
    def reading(self, spark: SparkView, started_us: int) -> Reading:
        """Return what Spark is to read; ``started_us`` is the start of the run, in microseconds since the epoch."""

    def identity(self) -> str | None:
        """Return a text that differs if other data is put in the source's place; None if nothing tells them apart."""
        return None

    def beginning(self, started_us: int) -> Any:
        """Return where a new run begins to read, in JSON's types, to be recorded at its first start. None if Spark keeps it."""
        return None

    def begin_at(self, beginning: Any) -> None:  # noqa: B027 - most leave it to Spark
        """Take the recorded result of `beginning`; called before `reading`."""

    @abstractmethod
    def reckon(self, position: Position) -> Reckoning:
        """Return the source's own counts of the events that Spark has read, and has yet to read."""

    def recount(self, position: Position) -> int | None:
        """Count the events of committed micro-batches one by one, of those still there; None if `reckon` counts exactly.

        Called when `reckon` reports more committed events than the run has counted, as offsets may have gaps.
        """
        return None

    def again(self, after: Position, upto: Position) -> Iterator[Reread] | None:
        """Read the events between two positions again; None if the source cannot, or not reliably.

        Raises:
            SourceError: some of the events are gone.
        """
        return None

    def drained(self, position: Position) -> bool:
        """Whether no events wait, and none will come by themselves; may be cheaper than `reckon`."""
        return self.reckon(position).queued == 0

    def note_progress(self, run: str, positions: list[Position]) -> None:  # noqa: B027 - most have nothing to delete
        """Note how far a run has read, so that the source may delete events. Called from time to time.

        Args:
            run: a name of the run, unique among the source's readers.
            positions: of all queries of the run that read the source; events that one of them has yet to read must stay.
        """

    def vouch(self, position: Position) -> None:  # noqa: B027 - most cannot be misread
        """Check that Spark has read a position's batch correctly; called before the batch is committed.

        Raises:
            SourceError: Spark has not read the events that the source holds.
        """
