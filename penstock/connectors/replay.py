"""The replay source: a Parquet file's rows as events, in the order and at the pace of a column of times."""

import time
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.app.stream import Source
from penstock.connectors.admission import ADMISSION
from penstock.connectors.declaration import NUMBER, Option, Options, SourceConnector, SourceContext
from penstock.connectors.schedule import RecordedSchedule, speed_up
from penstock.connectors.sequence import Sequence, SequenceSource, Slice
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError, SourceError
from penstock.runtime.codec import Codec
from penstock.storage.place import absolute


class ReplayedSequence(Sequence):
    """A file's rows as events, each due at the time in a column, counted from the first time and sped up."""

    def __init__(self, source: Source[Any], path: Path, column: str, speed: float) -> None:
        if not path.exists():
            raise SourceError(f"Source {source.name}: {path} does not exist; check the path.")
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"Source {source.name}: {path} cannot be read as Parquet: {error}.") from error
        codec = Codec(source.event_type)
        missing = [name for name in (column, *codec.schema.names) if name not in table.schema.names]
        if missing:
            raise SourceError(f"Source {source.name}: {path} has no column {', '.join(missing)}.")
        if pa.types.is_timestamp(table.schema.field(column).type):
            seconds = pc.cast(pc.cast(table[column], pa.timestamp("us"), safe=False), pa.int64()).to_numpy() / 1e6
        else:
            seconds = table[column].to_numpy().astype(np.float64)
        order = np.argsort(seconds, kind="stable")
        try:
            self._rows = table.select(codec.schema.names).take(pa.array(order)).cast(codec.schema)
        except (pa.ArrowException, ValueError) as error:
            raise SourceError(f"Source {source.name}: {path} does not fit {source.event_type.__name__}: {error}.") from error
        self._schedule = RecordedSchedule(speed_up(seconds[order], speed))
        self._identity = f"{path.stat().st_size} bytes, {crc32(path.read_bytes()):08x}"
        self._codec = codec

    def identity(self) -> str:
        return self._identity

    def end(self, started: float) -> int:
        return self._schedule.due(time.time() - started)

    def last(self) -> int | None:
        return self._schedule.count

    def read(self, start: int, end: int, started: float) -> Slice:
        payloads: list[bytes] = []
        for batch in self._rows.slice(start, end - start).to_batches():
            payloads += self._codec.to_json(batch)
        return Slice(payloads, ((started + self._schedule.times(start, end)) * 1e6).astype(np.int64))


def _bind(source: Source[Any], uri: Uri, options: Options, context: SourceContext) -> SequenceSource:
    if "time" not in options:
        raise ConfigurationError(f"{uri}: name the column that holds the event's time, as replay:FILE?time=when.")
    path = absolute(uri.place)
    sequence = ReplayedSequence(source, path, options["time"], options.get("speed", 1.0))
    whole = Uri(uri.scheme, str(path), uri.options)
    return SequenceSource(source, sequence, whole, options, context, name=str(uri))


REPLAY = SourceConnector(
    "replay",
    "FILE",
    "the rows of a Parquet file, in the order of a column of times and at its pace",
    (
        Option("time", "the column of times: timestamps, or seconds"),
        Option("speed", "how many times as fast", NUMBER),
        *ADMISSION,
    ),
    reach="shared disk",
    bind=_bind,
)
