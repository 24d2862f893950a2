"""Aggregates in update mode, merged into a Delta table by foreachBatch.

Promised: the merge must be made idempotent by who writes it, for a restart may apply a batch more than once,
https://docs.delta.io/delta-update/#upsert-from-streaming-queries-using-foreachbatch
"""

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    from delta.tables import DeltaTable

    columns = (
        DeltaTable.createIfNotExists(spark).location(sink).addColumn("city", "STRING").addColumn("total", "BIGINT")
    )
    table = columns.execute()

    def upsert(frame, batch):
        merging = table.alias("t").merge(frame.alias("s"), "s.city = t.city")
        merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    totals = source.groupBy("city").sum("amount").withColumnRenamed("sum(amount)", "total")
    return totals.writeStream.foreachBatch(upsert).outputMode("update").option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    return spark.read.format("delta").load(sink)
