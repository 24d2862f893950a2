"""Rows merged into an Iceberg table by their id, by MERGE INTO in foreachBatch.

Promised: none for foreachBatch; the statement: https://iceberg.apache.org/docs/latest/spark-writes/#merge-into
"""

from pathlib import Path

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    table = _table(spark, sink)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (id bigint, amount bigint, city string) USING iceberg")

    def write(frame, batch):
        frame.createOrReplaceTempView("updates")
        frame.sparkSession.sql(
            f"MERGE INTO {table} t USING (SELECT * FROM updates) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


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
