"""Delta tables written by foreachBatch, two of them, with txnAppId and txnVersion.

Promised: writes that are repeated with the same txnAppId and txnVersion are ignored,
https://docs.delta.io/delta-streaming/#idempotent-table-writes-in-foreachbatch
"""

schema = "id bigint, amount bigint, city string"

APPLICATION = "sales"


def build(spark, source, sink, checkpoint):
    def write(frame, batch):
        one = frame.write.format("delta").option("txnVersion", batch).option("txnAppId", APPLICATION)
        one.mode("append").save(f"{sink}/one")
        two = frame.where("amount > 10").write.format("delta").option("txnVersion", batch).option("txnAppId", APPLICATION)
        two.mode("append").save(f"{sink}/two")

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    found = []
    for name in ("one", "two"):
        found += [[name, *row] for row in spark.read.format("delta").load(f"{sink}/{name}").collect()]
    return found
