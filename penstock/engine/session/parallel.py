"""Calling a function for many arguments in parallel, on Spark's executors."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from penstock.engine.session.spark import start_session

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def spark_map(
    function: Callable[[Argument], Result], arguments: Sequence[Argument], master: str, name: str = "penstock"
) -> Iterator[Result]:
    """Yield ``function(argument)`` for every argument, in order, computed on the executors of a Spark master.

    The executors need Penstock in their Python environment.

    Raises:
        ClusterError: the master cannot be reached.
    """
    with tempfile.TemporaryDirectory() as scratch, (Path(scratch) / "spark.log").open("wb") as log:
        spark = start_session(name, master, log, {})
        try:
            context = spark.sparkContext
            slices = max(1, min(len(arguments), 8 * context.defaultParallelism))
            yield from context.parallelize(arguments, slices).map(function).toLocalIterator(prefetchPartitions=True)
        finally:
            spark.stop()
