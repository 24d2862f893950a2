"""Sequences: sources whose events are numbered, and which Penstock itself admits to micro-batches.

The embedded log, the generator and a replayed file are sequences. For another source that can number its
events, a class derived from `Sequence` is enough; `SequenceSource` makes it a bound source.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import zip_longest
from typing import Any, NamedTuple

import msgspec
import numpy as np

from penstock.app.loader import AppReference
from penstock.app.stream import Source
from penstock.connectors.admission import Admission
from penstock.connectors.checkpoint import Position
from penstock.connectors.declaration import Options, SourceContext
from penstock.connectors.source import BoundSource, Reading, Reckoning, Reread, RowKind, SparkView
from penstock.connectors.uri import Uri
from penstock.errors import PenstockError, SourceError

READ_AT_ONCE = 20_000
"""The most events of a sequence that are read in one call."""

FORMAT = "penstock"
"""The name of the Spark data source that reads sequences."""


class Slice(NamedTuple):
    """Events of a sequence: JSON payloads, and the intended send time of each (microseconds since the epoch)."""

    payloads: list[bytes]
    born: Any


class Sequence(ABC):
    """Events numbered from 0, or from the oldest that is kept. Driver and executors each open it, and find the same events."""

    @abstractmethod
    def end(self, started: float) -> int:
        """Return one more than the number of the last event now; the run began at ``started`` (seconds since the epoch)."""

    @abstractmethod
    def read(self, start: int, end: int, started: float) -> Slice:
        """Return the events numbered from ``start`` to ``end - 1``; a number always stands for one and the same event."""

    def start(self) -> int:
        """Return the number of the first event that can still be read."""
        return 0

    def bookmark(self, number: int) -> Any:
        """Return what an offset must hold besides a number, in JSON's types, so that the events from there on are found again.

        None if the number is enough, which holds unless earlier events may be removed.
        """
        return None

    def turn_to(self, bookmark: Any) -> None:  # noqa: B027 - most need no bookmarks
        """Take an earlier result of `bookmark`, before events from its number on are read."""

    def identity(self) -> str | None:
        """Return a text that differs if another sequence is put in this one's place; None if nothing tells them apart."""
        return None

    def last(self) -> int | None:
        """Return the number of events at which the sequence ends for good; None if it grows as others append to it."""
        return None

    def note_reader(self, name: str, before: int) -> None:  # noqa: B027 - most have nothing to delete
        """Note that a reader no longer needs the events below a number, so that they may be deleted."""


class Followed(msgspec.Struct, frozen=True):
    """Describes a sequence to a process that has yet to open it."""

    application: AppReference
    source: str
    uri: str | None
    """None if the application passes a connector object in place of a URI."""
    identity: str | None
    """The `Sequence.identity` that the driver has found."""

    def open(self) -> "SequenceSource":
        """Return the source over the sequence, which is opened once per process."""
        return _open(self)


@lru_cache(maxsize=16)
def _open(followed: Followed) -> "SequenceSource":
    from penstock.connectors.registry import bind_source

    sources = followed.application.load().topology().sources
    source = next(source for source in sources if source.name == followed.source)
    bound = bind_source(source, followed.uri, SourceContext(followed.application))
    assert isinstance(bound, SequenceSource)
    if bound.identity() != followed.identity:
        raise SourceError(
            f"{bound.uri} holds other data for this worker than for the driver; stop the run, and start it again."
        )
    return bound


class SequenceSource(BoundSource):
    """A source over a sequence, which admits events as its URI's options say.

    An event is born at its intended send time, which the sequence gives.

    Args:
        uri: None if the application passes a connector object; then ``name`` describes the place.
    """

    rows: RowKind = "json"

    def __init__(
        self,
        source: Source[Any],
        sequence: Sequence,
        uri: Uri | None,
        options: Options,
        context: SourceContext,
        *,
        name: str = "",
    ) -> None:
        self.source, self.sequence = source, sequence
        self.uri = name or str(uri)
        self.admission = Admission.of(uri or Uri("", self.uri), options)
        self._text, self._application = None if uri is None else uri.text, context.application
        self._started: float | None = None
        self._beginning: Any = None

    def beginning(self, started_us: int) -> Any:
        start = self.sequence.start()
        mark = self.sequence.bookmark(start)
        offset = {"first": start, "end": start, "started": started_us / 1e6}
        return offset if mark is None else {**offset, "first_mark": mark}

    def begin_at(self, beginning: Any) -> None:
        self._beginning = beginning

    def reading(self, spark: SparkView, started_us: int) -> Reading:
        assert self._application is not None
        followed = Followed(self._application, self.source.name, self._text, self.identity())
        options = {
            "followed": msgspec.json.encode(followed).decode(),
            "parts": str(max(1, spark.parallelism)),
            "beginning": msgspec.json.encode(self._beginning or self.beginning(started_us)).decode(),
        }
        return Reading(FORMAT, ("payload", "born", "CAST(0 AS BIGINT) AS major", "minor"), options)

    def reckon(self, position: Position) -> Reckoning:
        first, done = self._done(position)
        offset = self._offset(position)
        if offset is not None:
            self.sequence.turn_to(offset.get("mark", offset.get("first_mark")))
        self._started = self._started or time.time()
        return Reckoning(done - first, self.waiting(self._started, done))

    def again(self, after: Position, upto: Position) -> Iterator[Reread]:
        begin = self._done(after)[1]
        offset = self._offset(after)
        end = self._done(upto)[1]
        if offset is not None:
            self.sequence.turn_to(offset.get("mark", offset.get("first_mark")))
        for low in range(begin, end, READ_AT_ONCE):
            high = min(low + READ_AT_ONCE, end)
            events = self.sequence.read(low, high, self._started or 0.0)
            if len(events.payloads) != high - low:
                raise SourceError(f"{self.uri} no longer has all of the events {low} to {high}.")
            yield Reread(
                events.payloads,
                np.asarray(events.born, np.int64),
                np.zeros(high - low, np.int64),
                np.arange(low, high, dtype=np.int64),
            )

    def identity(self) -> str | None:
        return self.sequence.identity()

    def drained(self, position: Position) -> bool:
        if self.reckon(position).queued:
            return False
        last = self.sequence.last()
        return last is None or self._done(position)[1] >= last

    def note_progress(self, run: str, positions: list[Position]) -> None:
        self.sequence.note_reader(run, min(self._done(position)[1] for position in positions))

    def waiting(self, started: float, done: int) -> int:
        """Return how many events there are beyond the first ``done``.

        Raises:
            SourceError: there are fewer than ``done``, so it is another sequence.
        """
        end, last = self.sequence.end(started), self.sequence.last()
        whole = end if last is None else last  # a sequence that ends by itself may grow by the clock, which may be set back
        if whole < done:
            raise SourceError(
                f"{self.uri} ends at event {whole}, but {done} have been read from it: it is not the one that this run began "
                "with; put that back, or start afresh with --fresh."
            )
        return max(end - done, 0)

    def _offset(self, position: Position) -> Any:
        return self._beginning if position.offset is None else position.offset

    def _done(self, position: Position) -> tuple[int, int]:
        """Return the number of the run's first event, and the number after that of its last committed event."""
        offset = self._offset(position)
        if offset is None:
            start = self.sequence.start()
            return start, start
        self._started = offset["started"]
        return int(offset["first"]), int(offset["end"])


def with_ends(progress: Mapping[str, Any], order: Iterable[str], sources: Mapping[str, BoundSource]) -> dict[str, Any]:
    """Return a progress report of Spark with the latest offsets of sequences, so that it shows how many events wait.

    It is for versions of Spark that do not ask Python sources for these offsets, and report that none wait.

    Args:
        order: the names of the query's sources, in the order in which it reads them.
    """
    reports = []
    for name, source in zip_longest(order, progress.get("sources") or ()):
        bound, end = sources.get(name or ""), (source or {}).get("endOffset")
        if isinstance(bound, SequenceSource) and end is not None:
            at = json.loads(end) if isinstance(end, str) else end
            with suppress(PenstockError):  # a sequence that cannot be read stops the run elsewhere, not here
                bound.sequence.turn_to(at.get("mark", at.get("first_mark")))
                source = {**source, "latestOffset": {**at, "end": at["end"] + bound.waiting(at["started"], at["end"])}}
        reports.append(source)
    return {**progress, "sources": [source for source in reports if source is not None]}
