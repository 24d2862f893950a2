"""How Spark makes the files of a checkpoint on a disk."""

from penstock.engine.session.versions import Spark

MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""Either way Spark writes a file under another name, looks whether there is one of its own, and renames it. By its own choice
this starts ten programs a file (`chmod` and `readlink`, for want of Hadoop's native library), some 3 ms each; by this one
two.
"""

DISK = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}
"""Without which that one must not be set: in place of Hadoop's disk, the jars of Hive that Spark carries bring one that
replaces no file, so that the state of a micro-batch that is repeated would be dropped."""


def on_disk(spark: Spark) -> dict[str, str]:
    """What a session of a version is told for checkpoints on a disk."""
    return {MANAGER: spark.checkpoint_manager, **DISK}
