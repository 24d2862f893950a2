"""Staged output: files of a sink that are complete but invisible until their batch is committed."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO, Literal
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.runtime.lineage import Ints
from penstock.runtime.tally import StagedFile

STAGING = ".staging"
DEAD_LETTERS = "dead-letters"
BORN = "_born"
"""The column in which a file between two groups keeps each event's birth."""

FileKind = Literal["jsonl", "parquet"]


class SinkFiles(msgspec.Struct, frozen=True):
    """Where and in which form the files of a sink lie."""

    name: str
    kind: FileKind
    directory: str
    hop: bool = False
    """Whether another group reads it, and so needs each event's birth."""
    refuses_nul: bool = False
    """Whether it cannot keep texts that hold the character NUL."""


class Staging:
    """Writes the output of one stage in one partition to staged files, one for each sink."""

    def __init__(self, sinks: Iterable[SinkFiles], label: str) -> None:
        self._sinks = {sink.name: sink for sink in sinks}
        self._label = label
        self._open: dict[str, _OpenFile] = {}

    def files(self, sink: str) -> SinkFiles:
        """Where and in which form a sink takes its events."""
        return self._sinks[sink]

    def write_lines(self, sink: str, lines: list[bytes]) -> None:
        """Append lines to a sink of kind ``jsonl``."""
        if lines:
            file = self._file(sink)
            file.rows += len(lines)
            file.handle.write(b"\n".join(lines))
            file.handle.write(b"\n")

    def write_columns(self, sink: str, batch: pa.RecordBatch, born: Ints) -> None:
        """Append rows to a sink of kind ``parquet``."""
        if batch.num_rows:
            if self._sinks[sink].hop:
                batch = batch.append_column(BORN, pa.array(born))
            file = self._file(sink)
            file.rows += batch.num_rows
            if file.parquet is None:
                file.parquet = pq.ParquetWriter(file.handle, batch.schema)
            file.parquet.write_batch(batch)

    def close(self) -> list[StagedFile]:
        """Make all files durable and say where they are."""
        return [file.close() for file in self._open.values()]

    def _file(self, name: str) -> "_OpenFile":
        if name not in self._open:
            self._open[name] = _OpenFile(self._sinks[name], self._label)
        return self._open[name]


class _OpenFile:
    def __init__(self, sink: SinkFiles, label: str) -> None:
        suffix = "jsonl" if sink.kind == "jsonl" else "parquet"
        staging = Path(sink.directory) / STAGING
        staging.mkdir(parents=True, exist_ok=True)
        self.sink = sink.name
        self.path = staging / f"{label}-{uuid4().hex}.{suffix}"
        self.final = f"{label}.{suffix}"
        self.handle: BinaryIO = open(self.path, "wb", buffering=1 << 20)  # noqa: SIM115 - closed by close()
        self.parquet: Any = None
        self.rows = 0

    def close(self) -> StagedFile:
        if self.parquet is not None:
            self.parquet.close()
        self.handle.flush()
        os.fsync(self.handle.fileno())
        self.handle.close()
        return StagedFile(self.sink, str(self.path), self.final, self.rows, self.path.stat().st_size)
