"""What Kafka sources, sinks and hops share: Spark's connector, and the headers of messages."""

import pyspark

from penstock.app.uri import KAFKA, KafkaPlace

CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
"""Fetched from Maven Central when a run first needs it, and kept in Ivy's cache."""

BORN_HEADER = "penstock-born"
"""When the source event behind a message was meant to be sent, in microseconds, as text."""


def connector_options(place: KafkaPlace) -> dict[str, str]:
    """What the connector needs to reach a topic's brokers."""
    return {f"{KAFKA}bootstrap.servers": place.brokers, **{f"{KAFKA}{name}": value for name, value in place.options}}
