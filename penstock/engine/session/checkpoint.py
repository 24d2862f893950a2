"""Spark's settings for writing the files of a checkpoint on a local disk."""

from penstock.engine.session.versions import Spark

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""The setting for the class that creates checkpoint files: under a temporary name, which is changed if the final one is free.
Without Hadoop's native library, Spark's default class starts ten programs (`chmod`, `readlink`) for a file, each taking some
3 ms; the class that Penstock sets starts two.
"""

DISK = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}
"""The file system class that `MANAGER` requires. By default, the Hive jars in Spark bring one that does not replace existing
files, so that the state of a repeated micro-batch would be dropped."""


def on_disk(spark: Spark) -> dict[str, str]:
    """Return the settings for checkpoints on a local disk in a session of a version of Spark."""
    return {MANAGER: spark.checkpoint_manager, **DISK}
