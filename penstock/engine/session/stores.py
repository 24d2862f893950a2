"""Jars and settings with which Spark reaches stores. Settings follow the environment variables of the stores' own tools."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

import pyspark

from penstock.connectors.declaration import Jars, Release
from penstock.storage.place import OBJECTS, TREES

PASSED_ON = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "HADOOP_USER_NAME",
    "PENSTOCK_WEBHDFS",
)
"""Environment variables that are passed on to executors: those on a store's address, and no secrets."""
SDK_OF = {"3.4.1": ("2.24.6", ""), "3.4.2": ("2.29.52", "1.2.1"), "3.5.0": ("2.35.4", "1.3.1")}
"""By version of Hadoop, the versions of Amazon's SDK and of its accelerator that it requires; empty if it has none."""
SDK = "software.amazon.awssdk"
PARTS_OF_SDK = {
    hadoop: (
        *((SDK, name, sdk) for name in ("s3", "s3-transfer-manager", "sts", "netty-nio-client")),
        *((("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", accelerator),) if accelerator else ()),
    )
    for hadoop, (sdk, accelerator) in SDK_OF.items()
}
"""By version of Hadoop, the parts of Amazon's SDK that it uses. They take 12 MB. The bundle that Hadoop requires, for all of
Amazon's services, takes 686 MB, which every executor would fetch from the driver."""
CARRIED = (
    (SDK, "bundle"),
    ("io.netty", ".*"),
    ("org.apache.httpcomponents", ".*"),
    ("commons-codec", ".*"),
    ("commons-logging", ".*"),
    ("org.slf4j", ".*"),
)
"""Dependencies of these parts, and of Hadoop, that are not needed or that Spark has already."""


def schemes_of(places: Iterable[object]) -> set[str]:
    """Return the URI schemes that occur in some places."""
    matches = (re.search(r"(?:^|:)(\w+)://", str(place)) for place in places)
    return {match[1] for match in matches if match}


def jars_for(schemes: Iterable[str]) -> list[Jars]:
    """Return the jars that Spark needs for stores. For HDFS it needs none."""
    if not set(OBJECTS) & set(schemes):
        return []
    version = hadoop_version()
    parts = PARTS_OF_SDK.get(version, ())
    excluded = (("org.wildfly.openssl", ".*"), *(CARRIED if parts else ()))
    return [
        Jars(
            "org.apache.hadoop",
            "hadoop-aws",
            (Release(version),),
            excluded,
            besides=parts,
            provides="org.apache.hadoop.fs.s3a.S3AFileSystem",
        )
    ]


def settings_for(schemes: Iterable[str]) -> dict[str, str]:
    """Return Spark's settings for stores, from the environment variables that the stores' own tools read."""
    settings = {f"spark.executorEnv.{name}": os.environ[name] for name in PASSED_ON if name in os.environ}
    if not schemes:
        return {}
    if set(TREES) & set(schemes):  # by default, it waits 400 ms before it checks that a small file is complete
        settings["spark.hadoop.dfs.client.block.write.locateFollowingBlock.initial.delay.ms"] = "10"
    if not set(OBJECTS) & set(schemes):
        return settings
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    own = {
        "spark.hadoop.fs.s3a.performance.flags": "mkdir,delete",  # not "create", with which existing files would be overwritten
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
    return {**settings, **own}


def hadoop_version() -> str:
    """Return the version of Hadoop that Spark contains."""
    jars = (Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars").glob("hadoop-client-api-*.jar")
    return next(jars).stem.rpartition("-")[2]
