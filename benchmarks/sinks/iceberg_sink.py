"""Iceberg's streaming sink, append mode.

Promised: no word of exactly once on the page; append adds each micro-batch's rows,
https://iceberg.apache.org/docs/latest/spark-structured-streaming/#streaming-writes (its code keeps the query's id and
the micro-batch's number in the snapshot's summary, and skips what is there)
"""

from pathlib import Path

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    table = _table(spark, sink)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (id bigint, amount bigint, city string) USING iceberg")
    started = source.writeStream.format("iceberg").outputMode("append")
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
