"""Less memory for the processes of a session on one machine: which collector its JVM has, and when Python gives memory back."""

import ctypes
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

import pyspark

SMALL_HEAP = 2 << 30
FEW_CORES = 4
"""On a small heap and few cores, Java's serial collector is as fast as G1, and needs some 200 MB less for itself."""
OPTIONS_IN = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS")
"""Variables in which Java and Spark find further options for a JVM."""
HEAP_IN = ("SPARK_DRIVER_MEMORY", "SPARK_MEM")
"""Variables in which Spark finds the size of the heap."""
FILES = ("spark-defaults.conf", "spark-env.sh", "java-opts")
"""Files of Spark's configuration, in which its launcher finds all of these."""
CHOSEN = re.compile(r"-XX:[+-]Use\w+GC\b|driver[.-]memory|" + "|".join(HEAP_IN))
"""Is found in options by which a user has chosen a collector or a heap. Java does not start with two collectors."""
SIZES = {"": 20, "k": 10, "m": 20, "g": 30, "t": 40}
"""Spark's units of memory, as powers of two; a number alone is in MiB."""
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""glibc's names of parameters, for `mallopt`."""
GIVEN_BACK = 4 << 20
"""As many free bytes at the end of the heap go back to the system."""
BY_ITSELF = 1 << 20
"""A block of at least as many bytes goes back as soon as it is free."""


def collector(master: str, heap: str, given: str) -> str:
    """Return the JVM option for the garbage collector; empty where Java, or the user, chooses it.

    Args:
        heap: ``spark.driver.memory``.
        given: the user's options for the JVM, besides those that its launcher finds by itself.
    """
    cores = re.fullmatch(r"local(?:\[(\d+|\*)(?:, *\d+)?\])?", master)
    if cores is None or CHOSEN.search(f"{given} {_found_by_launcher()}"):
        return ""
    count = os.cpu_count() or 1 if cores[1] == "*" else int(cores[1] or 1)
    return "-XX:+UseSerialGC" if count <= FEW_CORES and _bytes(heap) <= SMALL_HEAP else ""


def _found_by_launcher() -> str:
    """Return the options, and the names of the variables for the heap, that Spark's launcher finds in its environment."""
    texts = [os.environ.get(name, "") for name in OPTIONS_IN] + [name for name in HEAP_IN if os.environ.get(name)]
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    for name in FILES:
        with suppress(OSError):
            texts.append((Path(os.environ.get("SPARK_CONF_DIR") or home / "conf") / name).read_text(errors="replace"))
    return " ".join(texts)


def _bytes(size: str) -> float:
    """Return the bytes of a size such as 512m; infinite if it is none, which Spark then says."""
    parts = re.fullmatch(r"(\d+)([kmgt]?)b?", size.strip().lower())
    return float("inf") if parts is None else int(parts[1]) << SIZES[parts[2]]


def give_back() -> None:
    """Make this process, and those that it forks, return free memory to the system at once.

    By default, glibc and Arrow keep what one micro-batch needed, which was nearly half of a worker's own memory.
    """
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another library than glibc may lack the function
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(TRIM_THRESHOLD, GIVEN_BACK)
            mallopt(MMAP_THRESHOLD, BY_ITSELF)
