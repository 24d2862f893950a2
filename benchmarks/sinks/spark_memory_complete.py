"""Spark's memory sink, complete mode: the guide's example of aggregates.

Promised: "No. But in Complete Mode, restarted query will recreate the full table.",
https://spark.apache.org/docs/latest/streaming/apis-on-dataframes-and-datasets.html#output-sinks
"""

from pathlib import Path

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    totals = source.groupBy("city").sum("amount").withColumnRenamed("sum(amount)", "total")
    started = totals.writeStream.queryName(_name(sink)).outputMode("complete").format("memory")
    return started.option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    return spark.table(_name(sink))


def clean(spark, sink):
    spark.catalog.dropTempView(_name(sink))


def _name(sink):
    return f"totals_{Path(sink).parent.name}"
