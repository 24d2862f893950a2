"""What Spark is told of the stores that a run uses: jars, and settings that follow the tools of the store itself."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pyspark

from penstock.connectors.declaration import Jars
from penstock.storage.place import OBJECTS, TREES

PASSED_ON = (
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "HADOOP_USER_NAME", "PENSTOCK_WEBHDFS",
)  # fmt: skip
"""Of the driver's environment, what executors are told, too: where a store is, and no secret."""


def schemes_of(places: Iterable[object]) -> set[str]:
    """The schemes of the stores that some places lie in."""
    found = (re.search(r"(?:^|:)(\w+)://", str(place)) for place in places)
    return {match[1] for match in found if match}


def jars_for(schemes: Iterable[str]) -> list[Jars]:
    """What Spark needs for stores; it reaches HDFS as it is."""
    if not set(OBJECTS) & set(schemes):
        return []
    return [Jars("org.apache.hadoop", "hadoop-aws", (hadoop_version(),), (("org.wildfly.openssl", ".*"),))]


def settings_for(schemes: Iterable[str]) -> dict[str, str]:
    """Spark's settings for stores, from the environment variables that the stores' own tools read."""
    found = {f"spark.executorEnv.{name}": os.environ[name] for name in PASSED_ON if name in os.environ}
    if not schemes:
        return {}
    if set(TREES) & set(schemes):  # by default, it looks after 400 ms whether a small file is complete
        found["spark.hadoop.dfs.client.block.write.locateFollowingBlock.initial.delay.ms"] = "10"
    if not set(OBJECTS) & set(schemes):
        return found
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    own = {
        "spark.hadoop.fs.s3a.performance.flags": "mkdir,delete",  # with "create" no file would be refused that is there
        "spark.hadoop.fs.s3a.attempts.maximum": "5",
        "spark.hadoop.fs.s3a.retry.limit": "5",
        "spark.hadoop.fs.s3a.connection.establish.timeout": "5s",
    }
    if endpoint:
        own |= {
            "spark.hadoop.fs.s3a.endpoint": endpoint,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.endpoint.region": region or "us-east-1",
        }
    elif region:
        own["spark.hadoop.fs.s3a.endpoint.region"] = region
    return {**found, **own}


def hadoop_version() -> str:
    """The version of Hadoop that Spark carries."""
    jars = (Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars").glob(
        "hadoop-client-api-*.jar"
    )
    return next(jars).stem.rpartition("-")[2]
