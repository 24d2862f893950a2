"""Spark's Kafka sink.

Promised: at least once; "Structured Streaming cannot prevent such duplicates",
https://spark.apache.org/docs/latest/streaming/structured-streaming-kafka-integration.html#writing-data-to-kafka
"""

import os
from hashlib import sha256

schema = "id bigint, amount bigint, city string"

BROKERS = os.environ.get("KAFKA", "localhost:9092")


def build(spark, source, sink, checkpoint):
    _make(_topic(sink))
    messages = source.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value")
    started = (
        messages.writeStream.format("kafka").option("kafka.bootstrap.servers", BROKERS).option("topic", _topic(sink))
    )
    return started.option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", BROKERS).option("subscribe", _topic(sink))
    return (
        reader.option("startingOffsets", "earliest").load().selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
    )


def clean(spark, sink):
    from confluent_kafka import KafkaException

    for future in _admin().delete_topics([_topic(sink)]).values():
        try:
            future.result()
        except KafkaException:
            pass  # it was not there


def _topic(sink):
    return f"sales-{sha256(sink.encode()).hexdigest()[:16]}"


def _make(topic):
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    for future in _admin().create_topics([NewTopic(topic, 1, 1)]).values():
        try:
            future.result()
        except KafkaException:
            pass  # it is there, from before a restart


def _admin():
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": BROKERS})
