"""The first stage on Spark, which decodes a source's rows to events. Python workers import this, so it imports little."""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from penstock.engine.query.clock import now_us
from penstock.runtime.entrance import Entrance
from penstock.runtime.lineage import SOURCE_SHIFT, LineageColumns
from penstock.runtime.log import listen
from penstock.runtime.output import BORN, ROOT, ColumnsOutput, FileOutput
from penstock.runtime.stage import Stage
from penstock.runtime.wiring import WiringReference

if TYPE_CHECKING:
    from penstock.connectors.source import BoundSource, Frames, RowKind

TASK_SHIFT = 33
"""The lineage's ``minor`` has, from high to low bits, the number of the source, of the task, and of the row in the task; where
files are divided, the number of the source, and that of the row by `penstock.engine.query.parts`.
"""


def decoder(
    reference: WiringReference, number: int, bound: "BoundSource", output: Callable[..., FileOutput] = FileOutput
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` that turns a source's rows into tallies and rows for the first hop.

    Args:
        number: of the source in the wiring.
        output: makes the place where rows for sinks are staged.
    """
    rows = _Rows(bound, number)

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        wiring = reference.resolve()
        listen(reference.log_level)
        stage = Stage(wiring, 0, partition, output(wiring.sinks, f"0-{partition:05d}"))
        entrance = Entrance(stage, wiring.topology.sources[number])
        now, any_rows, task_rows = now_us(), False, copy(rows)
        for batch in batches:
            any_rows |= batch.num_rows > 0
            for _ in task_rows.enter(entrance, batch, partition, now):
                if len(stage.outbox):
                    yield stage.outbox.take()
        if any_rows:
            stage.outbox.tell_time(now, wiring.partitions if wiring.hops else 0)
            yield stage.finish()

    return decode


def typed(
    reference: WiringReference, number: int, bound: "BoundSource"
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` that turns a source's rows into its events in columns, for query elements."""
    rows = _Rows(bound, number)

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wiring = reference.resolve()
        listen(reference.log_level)
        output = ColumnsOutput()
        entrance = Entrance(Stage(wiring, 0, 0, output), wiring.topology.sources[number])
        for batch in batches:
            # Spark may run this before the micro-batch is handed to us; the lineages of these events go nowhere.
            for _ in rows.enter(entrance, batch, 0, now=0):
                yield from output.take()

    return decode


class _Rows:
    """Passes a source's rows to a stage. Spark sends it to executors, where each task numbers rows with a copy of its own.

    Args:
        number: the source's index among the group's sources.
    """

    def __init__(self, bound: "BoundSource", number: int) -> None:
        self._kind, self._frames, self._files, self._number = bound.rows, bound.frames, bound.files, number
        self._salt = crc32(bound.source.name.encode())
        """By which the sources of one group differ from those of another, whose rows may have the same places."""
        self._done = 0

    def enter(self, entrance: Entrance, batch: pa.RecordBatch, partition: int, now: int) -> Iterator[None]:
        """Pass a batch of Spark's rows, or the parts of the files that they name, to the entrance; yields after each part.

        Args:
            now: the micro-batch's processing time.
        """
        salt = now ^ self._salt if entrance.grouped else 0
        if self._files is None:
            lineage = self._lineage(batch, partition, salt)
            if "root" in batch.schema.names:
                entrance.note_taken(lineage)
            _enter(entrance, batch, self._kind, self._frames, lineage)
            yield
            return
        for row in batch.to_pylist():
            if "first" in row:
                partition, self._done = 0, row["first"]
            for part in self._files.parts(row["path"], row.get("begin", 0), row.get("end")):
                rows = len(part)
                born, major = (np.full(rows, row[name], np.int64) for name in ("born", "major"))
                root = None
                if isinstance(part, pa.RecordBatch) and BORN in part.schema.names:  # from another group
                    born, root = part.column(BORN).to_numpy(), _roots(part)
                    part = part.select(entrance.schema.names)
                lineage = LineageColumns.read(born, major, self._minor(rows, partition), salt, root)
                if root is not None:
                    entrance.note_taken(lineage)
                entrance.take(part, self._kind, lineage)
                yield

    def _minor(self, rows: int, partition: int) -> NDArray[np.int64]:
        first = (self._number << SOURCE_SHIFT) | (partition << TASK_SHIFT) | self._done
        self._done += rows
        return np.arange(first, first + rows, dtype=np.int64)

    def _lineage(self, batch: pa.RecordBatch, partition: int, salt: int) -> LineageColumns:
        rows = batch.num_rows
        if "minor" in batch.schema.names:
            minor = batch.column("minor").to_numpy() | (self._number << SOURCE_SHIFT)
        else:
            minor = self._minor(rows, partition)
        born, major = batch.column("born").to_numpy(), batch.column("major").to_numpy()
        root = batch.column("root").to_numpy() if "root" in batch.schema.names else None
        return LineageColumns.read(born, major, minor, salt, root)


def _roots(part: pa.RecordBatch) -> NDArray[np.int64]:
    """Return the roots that a file of another group tells; 0 where it tells none, as those of query elements."""
    return part.column(ROOT).to_numpy() if ROOT in part.schema.names else np.zeros(len(part), np.int64)


def _enter(
    entrance: Entrance, batch: pa.RecordBatch, kind: "RowKind", frames: "Frames | None", lineage: LineageColumns
) -> None:
    if kind in ("messages", "framed"):
        rows = batch.select([name for name in ("payload", "beside") if name in batch.schema.names]).to_pylist()
    else:
        rows = batch.column("payload").to_pylist()
    if frames is not None:
        frames.prepare(row["payload"] for row in rows)
    entrance.take(rows, kind, lineage, None if frames is None else frames.read)
