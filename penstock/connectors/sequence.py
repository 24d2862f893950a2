"""Sequences: events numbered from some point on, that Penstock itself admits to micro-batches.

The embedded log, the generator and a replayed file are sequences. A package of somebody's own that can
number its events need write no more than a `Sequence`; `SequenceSource` makes it a source.
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
"""Events of a sequence."""

FORMAT = "penstock"
"""What Spark calls the data source that follows a sequence."""


class Slice(NamedTuple):
    """Events of a sequence: JSON payloads, and when each was meant to be sent (microseconds)."""

    payloads: list[bytes]
    born: Any


class Sequence(ABC):
    """Events numbered from 0, or from the oldest kept; driver and executors open it alike."""

    @abstractmethod
    def end(self, started: float) -> int:
        """One more than the last event there is by now; the run began at ``started`` seconds."""

    @abstractmethod
    def read(self, start: int, end: int, started: float) -> Slice:
        """Some of the events, the same whenever it is asked for them."""

    def start(self) -> int:
        """The number of the first event that can still be read."""
        return 0

    def bookmark(self, number: int) -> Any:
        """What an offset keeps beside a number, in JSON's types, so that the events from there on are found again.

        None, where the number says it all, as it does unless what came before an event may go.
        """
        return None

    def turn_to(self, bookmark: Any) -> None:  # noqa: B027 - most need no bookmarks
        """Told what `bookmark` has said, before events from its number on are asked for."""

    def identity(self) -> str | None:
        """What tells this sequence from any other in its place; None, if nothing does."""
        return None

    def last(self) -> int | None:
        """Where the sequence ends for good; None, where it grows only as others append to it."""
        return None

    def note_reader(self, name: str, before: int) -> None:  # noqa: B027 - most have nothing to let go of
        """Note that a reader has done with the events below a number, so that they may be let go of."""


class Followed(msgspec.Struct, frozen=True):
    """What names a sequence to a process that has not opened it."""

    application: AppReference
    source: str
    uri: str | None
    """None where the application gives a connector itself."""
    identity: str | None
    """Of the sequence that the run began with."""

    def open(self) -> "SequenceSource":
        """The source over it, opened once a process."""
        return _open(self)


@lru_cache(maxsize=16)
def _open(followed: Followed) -> "SequenceSource":
    from penstock.connectors.registry import bind_source

    sources = followed.application.load().topology().sources
    source = next(source for source in sources if source.name == followed.source)
    bound = bind_source(source, followed.uri, SourceContext(followed.application))
    assert isinstance(bound, SequenceSource)
    if bound.identity() != followed.identity:
        raise SourceError(f"{bound.uri} is not, in this process, what the driver has found there; stop, and start again.")
    return bound


class SequenceSource(BoundSource):
    """A source over a sequence, which lets events in by the admission that its URI sets.

    An event is born when its sequence says that it was meant to be sent.

    Parameters
    ----------
    uri: None, where the application gives the connector itself and ``name`` says where it reads.
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
        at = self._offset(position)
        if at is not None:
            self.sequence.turn_to(at.get("mark", at.get("first_mark")))
        self._started = self._started or time.time()
        return Reckoning(done - first, self.waiting(self._started, done))

    def again(self, after: Position, upto: Position) -> Iterator[Reread]:
        begin = self._done(after)[1]
        at = self._offset(after)
        end = self._done(upto)[1]
        if at is not None:
            self.sequence.turn_to(at.get("mark", at.get("first_mark")))
        for low in range(begin, end, READ_AT_ONCE):
            high = min(low + READ_AT_ONCE, end)
            events = self.sequence.read(low, high, self._started or 0.0)
            if len(events.payloads) != high - low:
                raise SourceError(f"{self.uri} has not all of the events {low} to {high} any more.")
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
        """How many events there are beyond those done.

        Raises
        ------
        SourceError: fewer than those done, so it is another sequence.
        """
        end, last = self.sequence.end(started), self.sequence.last()
        whole = end if last is None else last  # what ends by itself may go by the clock, which may be set back
        if whole < done:
            raise SourceError(
                f"{self.uri} ends at event {whole}, but {done} have been read from it: it is not the one that this run began "
                "with; put that back, or start afresh with --fresh."
            )
        return max(end - done, 0)

    def _offset(self, position: Position) -> Any:
        return self._beginning if position.offset is None else position.offset

    def _done(self, position: Position) -> tuple[int, int]:
        """Where the run began, and where what it has committed ends."""
        at = self._offset(position)
        if at is None:
            start = self.sequence.start()
            return start, start
        self._started = at["started"]
        return int(at["first"]), int(at["end"])


def with_ends(progress: Mapping[str, Any], order: Iterable[str], sources: Mapping[str, BoundSource]) -> dict[str, Any]:
    """A progress of a Spark that asks no source in Python where it ends, and says that nothing waits: with the ends of
    sequences.

    Parameters
    ----------
    order: the names of the query's sources, as it reads them.
    """
    told = []
    for name, source in zip_longest(order, progress.get("sources") or ()):
        bound, end = sources.get(name or ""), (source or {}).get("endOffset")
        if isinstance(bound, SequenceSource) and end is not None:
            at = json.loads(end) if isinstance(end, str) else end
            with suppress(PenstockError):  # what cannot be asked now stops the run in its own place
                bound.sequence.turn_to(at.get("mark", at.get("first_mark")))
                source = {**source, "latestOffset": {**at, "end": at["end"] + bound.waiting(at["started"], at["end"])}}
        told.append(source)
    return {**progress, "sources": [source for source in told if source is not None]}
