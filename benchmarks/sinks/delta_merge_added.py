"""What each micro-batch has of a city is added to the total in a Delta table, by MERGE in foreachBatch: a merge that is not idempotent.

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
        added = frame.groupBy("city").sum("amount").withColumnRenamed("sum(amount)", "total")
        merging = table.alias("t").merge(added.alias("s"), "s.city = t.city")
        merging.whenMatchedUpdate(set={"total": "t.total + s.total"}).whenNotMatchedInsertAll().execute()

    return source.writeStream.foreachBatch(upsert).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    return spark.read.format("delta").load(sink)
