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
from penstock.connectors.files.reader import FileReader
from penstock.connectors.schedule import RecordedSchedule, seconds_of, speed_up
from penstock.connectors.sequence import Sequence, SequenceSource, Slice
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError, SourceError
from penstock.kinds.arrow import fitted, refuse_infinite
from penstock.runtime.codec import Codec
from penstock.storage.place import absolute


class ReplayedSequence(Sequence):
    """A file's rows as events, each due at the time in a column, counted from the first time and sped up."""

    def __init__(self, source: Source[Any], path: Path, column: str, speed: float) -> None:
        if not path.is_file():
            raise SourceError(f"Source {source.name}: {path} {'is no file' if path.exists() else 'does not exist'}; name one.")
        try:
            table = pq.read_table(path)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"Source {source.name}: {path} cannot be read as Parquet: {error}.") from error
        codec, kind = Codec(source.event_type), source.event_type.__name__
        if column not in table.schema.names:
            raise SourceError(f"Source {source.name}: {path} has no column {column}.")
        reason = FileReader(source.name, kind, "parquet", codec.schema, None).misfit(table.schema)
        if reason is not None:
            raise SourceError(f"Source {source.name}: {path} does not fit {kind}: {reason}.")
        try:
            seconds = seconds_of(table[column].combine_chunks())
        except ValueError as error:
            raise SourceError(f"Source {source.name}: column {column} of {path} {error}.") from error
        order = pc.sort_indices(table[column].combine_chunks())  # by the column itself, which may be finer than its seconds
        rows = table.take(order).combine_chunks()
        try:
            columns = [
                fitted(rows[field.name].combine_chunks(), field.type)
                if field.name in rows.column_names
                else pa.nulls(len(rows), field.type)
                for field in codec.schema
            ]
            self._rows = pa.Table.from_arrays(columns, schema=codec.schema)
            self._rows.validate(full=True)
        except (pa.ArrowException, ValueError) as error:
            raise SourceError(f"Source {source.name}: {path} does not fit {kind}: {error}.") from error
        for field in codec.schema:
            if not field.nullable and self._rows[field.name].null_count:
                raise SourceError(
                    f"Source {source.name}: column {field.name} of {path} has nulls, and {kind} does not make it optional."
                )
            try:
                refuse_infinite(self._rows[field.name])
            except ValueError as error:
                raise SourceError(
                    f"Source {source.name}: column {field.name} of {path} cannot be an event: {error}."
                ) from error
        self._schedule = RecordedSchedule(speed_up(seconds[order.to_numpy()], speed))
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
