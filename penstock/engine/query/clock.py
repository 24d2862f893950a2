"""The processing time of a micro-batch, for the tasks that run it.

It goes to them as a property of Spark's job. As a column it would be a constant in the code that Spark generates for a stage,
which would be another one in each micro-batch, and compiled anew.
"""

from pathlib import Path

from pyspark import SparkContext, TaskContext

from penstock.connectors.checkpoint import planned_ms

PROPERTY = "penstock.now"


def tell_now(context: SparkContext, checkpoint: Path, batch: int) -> None:
    """Tell the jobs that this thread starts from now on when their micro-batch was planned, which its repetitions find, too."""
    context.setLocalProperty(PROPERTY, str(planned_ms(checkpoint, batch) * 1000))


def now_us() -> int:
    """Return the micro-batch's processing time in a task, in microseconds since the epoch."""
    context = TaskContext.get()
    told = context.getLocalProperty(PROPERTY) if context else None
    assert told is not None
    return int(told)
