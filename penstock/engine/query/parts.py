"""Parts of files: a stage on Spark divides the files of a micro-batch, so that all tasks read them between them."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from penstock.errors import SourceError
from penstock.runtime.lineage import SOURCE_SHIFT

if TYPE_CHECKING:
    from penstock.connectors.files.reader import FileReader

PARTS = pa.schema([("path", pa.string())] + [(name, pa.int64()) for name in ("born", "major", "begin", "end", "first")])
"""The columns of a part: its file, the births and the ``major`` of its events, the span of the file, and ``first``, the number
of its first row.
"""
TASK_SHIFT, PART_SHIFT = 40, 29
"""The number of a row has, from high to low bits, the number of the task that has divided the file, of the part among those of
this task, and of the row in the part. So it does not depend on which task reads the part, nor when.
"""


def divider(files: "FileReader") -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` that turns rows of files into rows of their parts."""

    def divide(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task, done = context.partitionId() if context else 0, 0
        for batch in batches:
            parts = []
            for row in batch.to_pylist():
                for begin, end in files.spans(row["path"], row.pop("length")):
                    parts.append({**row, "begin": begin, "end": end, "first": _number(task, done)})
                    done += 1
            yield pa.RecordBatch.from_pylist(parts, schema=PARTS)

    return divide


def _number(task: int, part: int) -> int:
    """Return the number of the first row in a part.

    Raises:
        SourceError: there are more files in the micro-batch than can be numbered.
    """
    if task >> (SOURCE_SHIFT - TASK_SHIFT) or part >> (TASK_SHIFT - PART_SHIFT):
        raise SourceError("There are too many files for one micro-batch: take fewer at a time, as ?max_files=1000.")
    return (task << TASK_SHIFT) | (part << PART_SHIFT)
