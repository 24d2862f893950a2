"""What Spark is told of the stores that a run uses: jars, and settings that follow the tools of the store itself."""

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
"""Of the driver's environment, what executors are told, too: where a store is, and no secret."""
SDK_OF = {"3.4.1": ("2.24.6", ""), "3.4.2": ("2.29.52", "1.2.1"), "3.5.0": ("2.35.4", "1.3.1")}
"""By Hadoop's version, those of Amazon's SDK and of its accelerator that it names; none where it uses none."""
SDK = "software.amazon.awssdk"
PARTS_OF_SDK = {
    hadoop: (
        *((SDK, name, sdk) for name in ("s3", "s3-transfer-manager", "sts", "netty-nio-client")),
        *((("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", accelerator),) if accelerator else ()),
    )
    for hadoop, (sdk, accelerator) in SDK_OF.items()
}
"""By Hadoop's version, what of Amazon's SDK it uses, in the versions that it names: 12 MB, where the bundle that it asks for,
of all of Amazon's services, has 686 MB, which every executor would fetch from the driver."""
CARRIED = (
    (SDK, "bundle"),
    ("io.netty", ".*"),
    ("org.apache.httpcomponents", ".*"),
    ("commons-codec", ".*"),
    ("commons-logging", ".*"),
    ("org.slf4j", ".*"),
)
"""What those parts, and Hadoop, ask for that is not needed, or that Spark has."""


def schemes_of(places: Iterable[object]) -> set[str]:
    """The schemes of the stores that some places lie in."""
    found = (re.search(r"(?:^|:)(\w+)://", str(place)) for place in places)
    return {match[1] for match in found if match}


def jars_for(schemes: Iterable[str]) -> list[Jars]:
    """What Spark needs for stores; it reaches HDFS as it is."""
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
    jars = (Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent) / "jars").glob("hadoop-client-api-*.jar")
    return next(jars).stem.rpartition("-")[2]
