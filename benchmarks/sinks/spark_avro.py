"""Spark's own file sink, avro.

Promised: "Yes (exactly-once)" for the file sink,
https://spark.apache.org/docs/latest/streaming/apis-on-dataframes-and-datasets.html#output-sinks
"""

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    kept = source.where("amount > 10")
    return kept.writeStream.format("avro").option("checkpointLocation", checkpoint).option("path", sink).start()


def read(spark, sink):
    return spark.read.format("avro").schema(schema).load(sink)
