"""Spark's Kafka sink.

Promised: "only supports at-least-once write semantics",
https://spark.apache.org/docs/latest/streaming/structured-streaming-kafka-integration.html#writing-data-to-kafka
"""

import os
from hashlib import sha256

schema = "id bigint, amount bigint, city string"

KAFKA = os.environ.get("KAFKA", "localhost:9092")


def build(spark, source, sink, checkpoint):
    messages = source.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value")
    started = messages.writeStream.format("kafka").option("kafka.bootstrap.servers", KAFKA)
    return started.option("topic", _topic(sink)).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    messages = spark.read.format("kafka").option("kafka.bootstrap.servers", KAFKA).option("subscribe", _topic(sink)).load()
    return messages.selectExpr("CAST(value AS STRING) AS value")


def clean(spark, sink):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin, topic = AdminClient({"bootstrap.servers": KAFKA}), _topic(sink)
    if topic in admin.list_topics(timeout=10).topics:
        for done in admin.delete_topics([topic]).values():
            done.result()
    else:
        for done in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            done.result()


def _topic(sink):
    return f"sales-{sha256(sink.encode()).hexdigest()[:16]}"
