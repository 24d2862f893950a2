"""Iceberg's streaming sink, complete mode.

Promised: complete replaces the table's content in each micro-batch,
https://iceberg.apache.org/docs/latest/spark-structured-streaming/#streaming-writes
"""

from pathlib import Path

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    table = _table(spark, sink)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (city string, total bigint) USING iceberg")
    totals = source.groupBy("city").sum("amount").withColumnRenamed("sum(amount)", "total")
    started = totals.writeStream.format("iceberg").outputMode("complete")
    return started.option("checkpointLocation", checkpoint).toTable(table)


def read(spark, sink):
    return spark.read.table(_table(spark, sink))


def clean(spark, sink):
    spark.sql(f"DROP TABLE IF EXISTS {_table(spark, sink)}")


def _table(spark, sink):
    """The sink's table, and the catalog it is in."""
    place = Path(sink)
    spark.conf.set("spark.sql.catalog.local", "org.apache.iceberg.spark.SparkCatalog")
    spark.conf.set("spark.sql.catalog.local.type", "hadoop")
    spark.conf.set("spark.sql.catalog.local.warehouse", str(place.parents[1] / "warehouse"))
    spark.conf.set("spark.sql.catalog.local.cache-enabled", "false")
    return f"local.db.sales_{place.parent.name}"
