"""Lay out Spark as the image has it: links to what PySpark's wheel carries, and to the jars of Kafka and S3 besides.

The wheel itself stays as it was installed. What lies among Spark's jars needs no sending from driver to executors.

Usage: python spark.py DIRECTORY
"""

import sys
from pathlib import Path

import pyspark

from penstock.connectors.kafka.place import JARS
from penstock.engine.session.maven import jars_of
from penstock.engine.session.stores import jars_for


def lay_out(directory: Path) -> None:
    """Make a Spark home of links in a directory that is not there."""
    wheel = Path(pyspark.__file__).parent
    (directory / "conf").mkdir(parents=True)  # Kubernetes mounts the settings of a driver here
    (directory / "jars").mkdir()
    for name in ("bin", "python", "sbin"):
        (directory / name).symlink_to(wheel / name)
    for jar in [*(wheel / "jars").iterdir(), *jars_of([JARS, *jars_for(["s3a"])])]:
        (directory / "jars" / jar.name).symlink_to(jar)


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]))
