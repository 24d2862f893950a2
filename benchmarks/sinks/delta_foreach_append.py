"""Delta tables written by foreachBatch, two of them, without a transaction's identity.

Promised: foreachBatch does not make these writes idempotent; a batch that is run again may be there twice,
https://docs.delta.io/delta-streaming/#idempotent-table-writes-in-foreachbatch
"""

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    def write(frame, batch):
        frame.write.format("delta").mode("append").save(f"{sink}/one")
        frame.where("amount > 10").write.format("delta").mode("append").save(f"{sink}/two")

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    found = []
    for name in ("one", "two"):
        found += [[name, *row] for row in spark.read.format("delta").load(f"{sink}/{name}").collect()]
    return found
