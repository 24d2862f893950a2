"""Spark's own file sink, parquet.

Promised: "Yes (exactly-once)" for the file sink,
https://spark.apache.org/docs/latest/streaming/apis-on-dataframes-and-datasets.html#output-sinks
"""

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    kept = source.where("amount > 10")
    return kept.writeStream.format("parquet").option("checkpointLocation", checkpoint).option("path", sink).start()


def read(spark, sink):
    return spark.read.format("parquet").schema(schema).load(sink)
