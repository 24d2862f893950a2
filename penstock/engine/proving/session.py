"""A plain Spark session for a user's query: without Penstock's settings, but with few partitions and no web page."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.engine.session.java import java_home
from penstock.engine.session.spark import output_to
from penstock.engine.session.versions import installed
from penstock.errors import ConfigurationError

SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", "spark.sql.streaming.metricsEnabled": "false"}


@contextmanager
def plain_session(packages: str | None, conf: Mapping[str, str], log: Path) -> Iterator[SparkSession]:
    """A session in this process, stopped at the end of the block.

    Args:
        packages: Maven coordinates, separated by commas.
        log: the file for Spark's output.

    Raises:
        ConfigurationError: Spark does not start, for example because it does not find a package.
    """
    installed()
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for its workers, which would otherwise run any python3
    builder = SparkSession.builder.master("local[2]").appName("penstock prove")
    for name, value in {**SETTINGS, **({"spark.jars.packages": packages} if packages else {}), **conf}.items():
        builder = builder.config(name, value)
    try:
        with log.open("ab") as file, output_to(file):
            spark = builder.getOrCreate()
            spark.sparkContext.setLogLevel("OFF")
    except PySparkRuntimeError as error:
        raise ConfigurationError(
            f"Spark {installed().version} does not start: {_reason_in(log) or error}. Check --packages and --conf."
        ) from error
    try:
        yield spark
    finally:
        spark.stop()


def _reason_in(log: Path) -> str:
    """Return what Java's last exception in a log says; empty if there is none."""
    said = re.findall(r'^Exception in thread "main" [\w.$]+: (.*)', log.read_text(errors="replace"), re.MULTILINE)
    return said[-1].strip("[]. ") if said else ""
