"""Delta's streaming sink, append mode.

Promised: "exactly-once" processing with more than one stream or concurrent batch jobs; each micro-batch is noted in
the transaction log, https://docs.delta.io/delta-streaming/#delta-table-as-a-sink
"""

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    started = source.writeStream.format("delta").outputMode("append")
    return started.option("checkpointLocation", checkpoint).start(sink)


def read(spark, sink):
    return spark.read.format("delta").load(sink)
