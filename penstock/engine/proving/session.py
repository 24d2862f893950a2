"""A plain Spark session for a user's query: without Penstock's settings, but with few partitions and no web page."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.engine.session.java import java_home
from penstock.engine.session.versions import installed

SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", "spark.sql.streaming.metricsEnabled": "false"}


@contextmanager
def plain_session(packages: str | None, conf: Mapping[str, str], log: Path) -> Iterator[SparkSession]:
    """A session in this process, stopped at the end of the block.

    Parameters
    ----------
    packages: Maven coordinates, separated by commas. log: the file for Spark's output.
    """
    installed()
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for its workers, which would otherwise run any python3
    builder = SparkSession.builder.master("local[2]").appName("penstock prove")
    for name, value in {**SETTINGS, **({"spark.jars.packages": packages} if packages else {}), **conf}.items():
        builder = builder.config(name, value)
    with _printing_into(log):
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _printing_into(log: Path) -> Iterator[None]:
    """Within the block, this process prints to a file. Processes started in the block do so for good."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved_descriptors = os.dup(1), os.dup(2)
    with log.open("ab") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        for number, saved in zip((1, 2), saved_descriptors, strict=True):
            os.dup2(saved, number)
            os.close(saved)
