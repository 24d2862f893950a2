"""Sequences of events that grow: a stream of the embedded log, a generator's, a replayed file's."""

import time
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.adapter.log import EventLog
from penstock.app.loader import AppReference
from penstock.app.stream import Source
from penstock.app.uri import Uri
from penstock.engine.sources.schedule import RecordedSchedule, Schedule, schedule_of, speed_up
from penstock.errors import ConfigurationError, SourceError
from penstock.runtime.codec import Codec


class Slice(NamedTuple):
    """Events of a sequence: JSON payloads, and when each was meant to be sent (microseconds)."""

    payloads: list[bytes]
    born: Any


class Sequenced(Protocol):
    """Events numbered from 0 (or from the oldest kept)."""

    def start(self) -> int:
        """The number of the first event that can still be read."""

    def end(self, started: float) -> int:
        """One more than the last event there is by now; the sequence began at ``started`` seconds."""

    def last(self) -> int | None:
        """Where the sequence ends for good, or None."""

    def read(self, start: int, end: int, started: float) -> Slice:
        """Some of the events."""


class LogSequence:
    """A stream of the embedded log."""

    def __init__(self, directory: str, stream: str) -> None:
        self._log = EventLog(directory, create=False).stream(stream)

    def start(self) -> int:
        return self._log.bounds()[0]

    def end(self, started: float) -> int:
        return self._log.bounds()[1]

    def last(self) -> int | None:
        return None

    def note_reader(self, name: str, before: int) -> None:
        """See `StreamLog.note_reader`."""
        self._log.note_reader(name, before)

    def read(self, start: int, end: int, started: float) -> Slice:
        records = self._log.read(start, end)
        return Slice([record.payload for record in records], [record.born for record in records])


class GeneratedSequence:
    """Events made by the source's ``sample`` on an open-loop schedule."""

    def __init__(self, source: Source[Any], schedule: Schedule | RecordedSchedule) -> None:
        if source.sample is None:
            raise SourceError(
                f"Source {source.name} has no sample to generate events with: declare app.source(..., sample=function of n)."
            )
        self._sample, self._schedule = source.sample, schedule
        self._encode = Codec(source.event_type).encode_json

    def start(self) -> int:
        return 0

    def end(self, started: float) -> int:
        return self._schedule.due(time.time() - started)

    def last(self) -> int | None:
        return self._schedule.count

    def read(self, start: int, end: int, started: float) -> Slice:
        payloads = [self._encode(self._sample(number)) for number in range(start, end)]
        return Slice(payloads, ((started + self._schedule.times(start, end)) * 1e6).astype(np.int64))


class ReplayedSequence:
    """The rows of a Parquet file in the order of a time column, at the pace of that column."""

    def __init__(self, source: Source[Any], uri: Uri) -> None:
        column = uri.options.get("time")
        if column is None:
            raise ConfigurationError(f"{uri}: name the column that holds the event's time, as replay:FILE?time=when.")
        try:
            table = pq.read_table(uri.place)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"Source {source.name}: {uri.place} cannot be read as Parquet: {error}.") from error
        codec = Codec(source.event_type)
        missing = [name for name in (column, *codec.schema.names) if name not in table.schema.names]
        if missing:
            raise SourceError(f"Source {source.name}: {uri.place} has no column {', '.join(missing)}.")
        if pa.types.is_timestamp(table.schema.field(column).type):
            micros = pc.cast(pc.cast(table[column], pa.timestamp("us"), safe=False), pa.int64()).to_numpy() / 1e6
        else:
            micros = table[column].to_numpy().astype(np.float64)
        order = np.argsort(micros, kind="stable")
        try:
            self._rows = table.select(codec.schema.names).take(pa.array(order)).cast(codec.schema)
        except (pa.ArrowException, ValueError) as error:
            raise SourceError(
                f"Source {source.name}: {uri.place} does not fit {source.event_type.__name__}: {error}."
            ) from error
        self._schedule = RecordedSchedule(speed_up(micros[order], uri))
        self._codec = codec

    def start(self) -> int:
        return 0

    def end(self, started: float) -> int:
        return self._schedule.due(time.time() - started)

    def last(self) -> int | None:
        return self._schedule.count

    def read(self, start: int, end: int, started: float) -> Slice:
        events: list[Any] = []
        for batch in self._rows.slice(start, end - start).to_batches():
            events.extend(self._codec.from_columns(batch))
        payloads = list(map(self._codec.encode_json, events))
        return Slice(payloads, ((started + self._schedule.times(start, end)) * 1e6).astype(np.int64))


class Followed(msgspec.Struct, frozen=True):
    """What names a sequence to a process that has not opened it."""

    application: AppReference
    source: str
    scheme: str
    place: str
    options: tuple[tuple[str, str], ...]

    def open(self) -> Sequenced:
        """The sequence, opened once a process."""
        return _open(self)

    def open_for(self, source: Source[Any]) -> Sequenced:
        """The sequence for a source that has been declared in this process."""
        if self.scheme == "log":
            return LogSequence(self.place, self.source)
        if self.scheme == "replay":
            return ReplayedSequence(source, self.uri())
        return GeneratedSequence(source, schedule_of(self.uri()))

    def uri(self) -> Uri:
        """The URI that it was made from."""
        return Uri(self.scheme, self.place, dict(self.options))


@lru_cache(maxsize=16)
def _open(followed: Followed) -> Sequenced:
    sources = followed.application.load().topology().sources
    return followed.open_for(next(source for source in sources if source.name == followed.source))
