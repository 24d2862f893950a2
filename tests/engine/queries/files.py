"""Spark's own sink of files, read by its log."""


def build(spark, source, sink, checkpoint):
    kept = source.where("amount > 10")
    return kept.writeStream.format("json").option("path", sink).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    return spark.read.schema("id bigint, amount bigint, city string").json(sink)
