"""What Kafka sources, sinks and hops share: Spark's connector, and the headers of messages."""

from pathlib import Path

import pyspark

from penstock.app.uri import KAFKA, KafkaPlace
from penstock.engine.maven import Jars
from penstock.errors import JarNotFoundError

BORN_HEADER = "penstock-born"
"""When the source event behind a message was meant to be sent, in microseconds, as text."""

SPARK, CONNECTOR, TOKENS = "org.apache.spark", "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"

VERSIONS = ((pyspark.__version__, pyspark.__version__), ("4.2.0", "4.0.0"))
"""Of the connector and of the tokens it needs, by preference. A connector is published some time after PySpark;
until then the one before it serves, which the tests run on."""

SPARKS_OWN = (
    (SPARK, f"(?!{CONNECTOR}|{TOKENS}).*"),
    *((group, ".*") for group in ("org.scala-lang", "org.scala-lang.modules", "org.apache.hadoop", "org.slf4j")),
    *(
        (group, ".*")
        for group in ("com.github.luben", "org.lz4", "at.yawk.lz4", "org.xerial.snappy", "com.google.code.findbugs")
    ),
)
"""What the connector needs and PySpark carries."""


def connector_jars() -> list[Path]:
    """The jars of Spark's connector for Kafka; fetched from Maven Central when a run first needs them.

    Raises
    ------
    JarNotFoundError: they cannot be fetched.
    """
    failure: JarNotFoundError | None = None
    for version, tokens in VERSIONS:
        jars = Jars(SPARK, CONNECTOR, version, SPARKS_OWN, ((SPARK, TOKENS, tokens),))
        try:
            return sorted(jars.fetch().glob("*.jar"))
        except JarNotFoundError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def connector_options(place: KafkaPlace) -> dict[str, str]:
    """What the connector needs to reach a topic's brokers."""
    return {f"{KAFKA}bootstrap.servers": place.brokers, **{f"{KAFKA}{name}": value for name, value in place.options}}
