"""Warming up a new session: Spark's classes and Python workers are loaded in the background, while queries are planned."""

from collections.abc import Iterator
from contextlib import suppress
from threading import Thread

import pyarrow as pa
from pyspark.sql import SparkSession

ROWS = 2


def warm_up(spark: SparkSession) -> None:
    """Run a small job with Python workers and a shuffle in the background. Nothing depends on its success."""

    def run() -> None:
        with suppress(Exception):
            rows = spark.range(ROWS).repartition(ROWS).mapInArrow(_as_it_is, "id long")
            rows.collect()

    Thread(target=run, name="warm-up", daemon=True).start()


def _as_it_is(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
