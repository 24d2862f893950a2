"""What the versions of Spark differ in, of what is used of them: each capability by its name. What else differs stands nowhere
else.
"""

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
    """A version of Spark, and what it can do.

    >>> Spark("4.3.0").admits, Spark("4.1.4").admits
    (True, False)
    """

    version: str

    @property
    def minor(self) -> tuple[int, int]:
        """As (4, 3)."""
        found = re.match(r"(\d+)\.(\d+)", self.version)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def admits(self) -> bool:
        """Whether it asks a source in Python for no more than a limit, and how far the source goes; else the source goes by
        itself.
        """
        return self.minor >= (4, 2)

    @property
    def real_time(self) -> bool:
        """Whether it has a real-time mode that Python can ask for."""
        return self.minor >= (4, 2)

    @property
    def real_time_state(self) -> bool:
        """Whether queries that keep state run in that."""
        return self.minor >= (4, 3)

    @property
    def checkpoint_manager(self) -> str:
        """The class that makes the files of a checkpoint by a file system."""
        package = "org.apache.spark.sql.execution.streaming"
        return f"{package}{'.checkpointing' if self.minor >= (4, 1) else ''}.FileSystemBasedCheckpointFileManager"

    @property
    def triggers(self) -> str:
        """The class that starts micro-batches, by which it logs."""
        package = "org.apache.spark.sql.execution.streaming"
        return f"{package}{'.runtime' if self.minor >= (4, 1) else ''}.ProcessingTimeExecutor"

    @property
    def state_server(self) -> str:
        """The class that serves the state of stateful processors in Python, by which it logs."""
        package, language = ("org.apache.spark.sql.execution.python.streaming", "PySpark" if self.minor >= (4, 1) else "Pandas")
        return f"{package}.TransformWithStateIn{language}StateServer"


@cache
def installed() -> Spark:
    """The Spark that is installed.

    Raises
    ------
    ConfigurationError: it is none that Penstock runs on.
    """
    import pyspark  # here, so that who has none is told of the extra that brings it

    found = Spark(pyspark.__version__)
    if not OLDEST <= found.minor <= NEWEST:
        raise ConfigurationError(
            f"Penstock needs Spark {_name(OLDEST)} to {_name(NEWEST)}, and this is {found.version} in {_place()}: pip install "
            f"'{WANTED}' where "
            "it may be changed. `penstock observe`, `predict` and `tune` read what queries of any Spark since 2.1 record, "
            "without running on it."
        )
    return found


def refuse_others(java: str) -> None:
    """Refuse a Spark whose Java part is of another version than its Python part.

    Parameters
    ----------
    java: its version.

    Raises
    ------
    ConfigurationError: it is.
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
    """The same of ``SPARK_HOME``, before anything is started.

    Raises
    ------
    ConfigurationError: it is of another version.
    """
    home = os.environ.get("SPARK_HOME")
    for jar in Path(home, "jars").glob("spark-core_*.jar") if home else ():
        refuse_others(jar.stem.removeprefix("spark-core_").partition("-")[2])


def _name(minor: tuple[int, int]) -> str:
    return f"{minor[0]}.{minor[1]}"


def _place() -> str:
    found = find_spec("pyspark")
    return str(Path(found.origin).parent) if found is not None and found.origin else sys.prefix
