"""Differences between versions of Spark, each as a named capability. Other modules ask for these, and compare no versions."""

import os
import re
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import ConfigurationError

OLDEST, NEWEST = (4, 0), (4, 3)
"""The minor versions between which Penstock is tested, each at its newest patch."""
WANTED = "pyspark>=4.0.5,<4.4"


@dataclass(frozen=True)
class Spark:
    """A version of Spark, and its capabilities.

    >>> Spark("4.3.0").admits, Spark("4.1.4").admits
    (True, False)
    """

    version: str

    @property
    def minor(self) -> tuple[int, int]:
        """The major and minor version, such as (4, 3)."""
        match = re.match(r"(\d+)\.(\d+)", self.version)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @property
    def admits(self) -> bool:
        """Whether it passes a limit to a source in Python, and asks for the source's latest offset. Otherwise the source limits
        itself.
        """
        return self.minor >= (4, 2)

    @property
    def real_time(self) -> bool:
        """Whether it has a real-time mode that can be started from Python."""
        return self.minor >= (4, 2)

    @property
    def real_time_state(self) -> bool:
        """Whether queries with state can run in real-time mode."""
        return self.minor >= (4, 3)

    @property
    def checkpoint_manager(self) -> str:
        """The class that creates checkpoint files by the methods of a file system."""
        package = "org.apache.spark.sql.execution.streaming"
        return f"{package}{'.checkpointing' if self.minor >= (4, 1) else ''}.FileSystemBasedCheckpointFileManager"

    @property
    def triggers(self) -> str:
        """The class that triggers micro-batches, which is also the name of its logger."""
        package = "org.apache.spark.sql.execution.streaming"
        return f"{package}{'.runtime' if self.minor >= (4, 1) else ''}.ProcessingTimeExecutor"

    @property
    def state_server(self) -> str:
        """The class that serves state to stateful processors in Python, which is also the name of its logger."""
        package, language = ("org.apache.spark.sql.execution.python.streaming", "PySpark" if self.minor >= (4, 1) else "Pandas")
        return f"{package}.TransformWithStateIn{language}StateServer"


@cache
def installed() -> Spark:
    """Return the installed version of Spark.

    Raises:
        ConfigurationError: Penstock does not support this version.
    """
    import pyspark  # imported here, so that without PySpark the error names the extra to install

    spark = Spark(pyspark.__version__)
    if not OLDEST <= spark.minor <= NEWEST:
        raise ConfigurationError(
            f"Penstock needs Spark {_name(OLDEST)} to {_name(NEWEST)}, and this is {spark.version} in {_place()}: pip install "
            f"'{WANTED}' where "
            "it may be changed. `penstock observe`, `predict` and `tune` read what queries of any Spark since 2.1 record, "
            "without running on it."
        )
    return spark


def refuse_others(java: str) -> None:
    """Check that Spark's Java part has the same minor version as PySpark.

    Args:
        java: the version of the Java part.

    Raises:
        ConfigurationError: it has another version.
    """
    if Spark(java).minor != installed().minor:
        home = os.environ.get("SPARK_HOME")
        where, mend = (f"SPARK_HOME ({home})", "unset SPARK_HOME, or ") if home else ("the session that was given", "")
        fitting = _name(Spark(java).minor)
        raise ConfigurationError(
            f"PySpark is {installed().version} and Spark itself, of {where}, is {java}: {mend}pip install "
            f"'pyspark~={fitting}.0'."
        )


def refuse_other_home() -> None:
    """Check that the Spark in ``SPARK_HOME`` has PySpark's minor version, before anything is started.

    Raises:
        ConfigurationError: it has another version.
    """
    home = os.environ.get("SPARK_HOME")
    for jar in Path(home, "jars").glob("spark-core_*.jar") if home else ():
        refuse_others(jar.stem.removeprefix("spark-core_").partition("-")[2])


def _name(minor: tuple[int, int]) -> str:
    return f"{minor[0]}.{minor[1]}"


def _place() -> str:
    spec = find_spec("pyspark")
    return str(Path(spec.origin).parent) if spec is not None and spec.origin else sys.prefix
