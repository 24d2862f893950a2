"""The first stage on Spark: rows of a source become events. Spark's Python workers import this and `hop`, so little else."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from penstock.runtime.entrance import Entrance
from penstock.runtime.lineage import NONE, SOURCE_SHIFT, LineageColumns
from penstock.runtime.output import ColumnsOutput, FileOutput
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
    rows, frames = bound.rows, bound.frames

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        partition = context.partitionId() if context else 0
        wiring = reference.resolve()
        stage = Stage(wiring, 0, partition, output(wiring.sinks, f"0-{partition:05d}"))
        entrance = Entrance(stage, wiring.topology.sources[number])
        done, now = 0, None
        for batch in batches:
            first = (number << SOURCE_SHIFT) | (partition << TASK_SHIFT) | done
            done += batch.num_rows
            if now is None and batch.num_rows:
                now = batch.column("now")[0].as_py()
            _enter(entrance, batch, rows, frames, _lineage(batch, first, number))
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
    rows, frames = bound.rows, bound.frames

    def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wiring = reference.resolve()
        output = ColumnsOutput()
        entrance = Entrance(Stage(wiring, 0, 0, output), wiring.topology.sources[number])
        for batch in batches:
            _enter(entrance, batch, rows, frames, _lineage(batch, 0, number))
            yield from output.take()

    return decode


def _enter(
    entrance: Entrance, batch: pa.RecordBatch, rows: "RowKind", frames: "Frames | None", lineage: LineageColumns
) -> None:
    if rows in ("lines", "json"):
        entrance.json(batch.column("payload").to_pylist(), lineage, lines=rows == "lines")
    elif rows == "messages":
        entrance.messages(batch.select(["payload", "beside"]).to_pylist(), lineage)
    elif frames is not None:
        present = [name for name in ("payload", "beside") if name in batch.schema.names]
        messages = batch.select(present).to_pylist()
        frames.prepare(message["payload"] for message in messages)
        entrance.framed(messages, lineage, frames.read)
    elif rows == "texts":
        entrance.texts(batch.column("payload").to_pylist(), lineage)
    elif rows == "fields":
        names = [name for name in batch.schema.names if name not in ("born", "major", "now")]
        entrance.text_fields(batch.select(names).to_pylist(), lineage)
    else:
        schema = entrance.schema
        columns = [batch.column(field.name).cast(field.type) for field in schema]
        entrance.columns(pa.RecordBatch.from_arrays(columns, schema=schema), lineage)


def _lineage(batch: pa.RecordBatch, first: int, number: int) -> LineageColumns:
    rows = batch.num_rows
    if "minor" in batch.schema.names:
        minor = batch.column("minor").to_numpy() | (number << SOURCE_SHIFT)
    else:
        minor = np.arange(first, first + rows, dtype=np.int64)
    born, major = batch.column("born").to_numpy(), batch.column("major").to_numpy()
    return LineageColumns(born, np.full(rows, NONE, np.int64), major, minor)
