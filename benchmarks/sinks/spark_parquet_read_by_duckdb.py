"""Spark's Parquet file sink, read by a program that does not know of `_spark_metadata`.

Promised: "Yes (exactly-once)" for the file sink,
https://spark.apache.org/docs/latest/streaming/apis-on-dataframes-and-datasets.html#output-sinks - it holds for
readers that know of the log only
"""

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    kept = source.where("amount > 10")
    return kept.writeStream.format("parquet").option("checkpointLocation", checkpoint).option("path", sink).start()


def read(spark, sink):
    import duckdb

    return [list(row) for row in duckdb.sql(f"SELECT id, amount, city FROM read_parquet('{sink}/*.parquet')").fetchall()]
