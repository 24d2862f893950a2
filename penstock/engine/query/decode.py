"""The first stage on Spark: rows of a source become events. Spark's Python workers import this and `hop`, so little else."""

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark import TaskContext

from penstock.runtime.entrance import Entrance
from penstock.runtime.lineage import NONE, SOURCE_SHIFT, LineageColumns
from penstock.runtime.log import listen
from penstock.runtime.output import BORN, ColumnsOutput, FileOutput
from penstock.runtime.stage import Stage
from penstock.runtime.wiring import WiringReference

if TYPE_CHECKING:
    from penstock.connectors.source import BoundSource, Frames, RowKind

TASK_SHIFT = 33
"""Below the source's number, ``minor`` is the task's number and the row's within it."""


def decoder(
    reference: WiringReference, number: int, bound: "BoundSource", output: Callable[..., FileOutput] = FileOutput
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` is to call: the rows of a source in, tallies and what goes to the first hop out.

    Parameters
    ----------
    output: where rows for sinks go.
    """
    rows = _Rows(bound, number)

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        wiring = reference.resolve()
        listen(reference.log_level)
        stage = Stage(wiring, 0, partition, output(wiring.sinks, f"0-{partition:05d}"))
        entrance = Entrance(stage, wiring.topology.sources[number])
        now, coming = None, copy(rows)
        for batch in batches:
            if now is None and batch.num_rows:
                now = batch.column("now")[0].as_py()
            for _ in coming.enter(entrance, batch, partition):
                if len(stage.outbox):
                    yield stage.outbox.take()
        if now is not None:
            stage.outbox.tell_time(now, wiring.partitions if wiring.hops else 0)
            yield stage.finish()

    return decode


def typed(
    reference: WiringReference, number: int, bound: "BoundSource"
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What `mapInArrow` is to call for a query element: the rows of a source in, its events out, in columns."""
    rows = _Rows(bound, number)

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wiring = reference.resolve()
        listen(reference.log_level)
        output = ColumnsOutput()
        entrance = Entrance(Stage(wiring, 0, 0, output), wiring.topology.sources[number])
        for batch in batches:
            for _ in rows.enter(entrance, batch, 0):
                yield from output.take()

    return decode


class _Rows:
    """The rows of a source on their way in. It travels to executors, where each task counts them in a copy of its own.

    Parameters
    ----------
    number: of the source among those of the group.
    """

    def __init__(self, bound: "BoundSource", number: int) -> None:
        self._kind, self._frames, self._files, self._number = bound.rows, bound.frames, bound.files, number
        self._done = 0

    def enter(self, entrance: Entrance, batch: pa.RecordBatch, partition: int) -> Iterator[None]:
        """Let the events of Spark's rows in, a part at a time."""
        if self._files is None:
            _enter(entrance, batch, self._kind, self._frames, self._lineage(batch, partition))
            yield
            return
        for row in batch.select(["path", "born", "major"]).to_pylist():
            for part in self._files.parts(row["path"]):
                rows = len(part)
                born, major = (np.full(rows, row[name], np.int64) for name in ("born", "major"))
                if isinstance(part, pa.RecordBatch) and BORN in part.schema.names:
                    born, part = part.column(BORN).to_numpy(), part.select(entrance.schema.names)
                lineage = LineageColumns(born, np.full(rows, NONE, np.int64), major, self._minor(rows, partition))
                entrance.take(part, self._kind, lineage)
                yield

    def _minor(self, rows: int, partition: int) -> NDArray[np.int64]:
        first = (self._number << SOURCE_SHIFT) | (partition << TASK_SHIFT) | self._done
        self._done += rows
        return np.arange(first, first + rows, dtype=np.int64)

    def _lineage(self, batch: pa.RecordBatch, partition: int) -> LineageColumns:
        rows = batch.num_rows
        if "minor" in batch.schema.names:
            minor = batch.column("minor").to_numpy() | (self._number << SOURCE_SHIFT)
        else:
            minor = self._minor(rows, partition)
        born, major = batch.column("born").to_numpy(), batch.column("major").to_numpy()
        return LineageColumns(born, np.full(rows, NONE, np.int64), major, minor)


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
