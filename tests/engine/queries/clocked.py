"""Stamps rows with the time at which they were handled."""


def build(spark, source, sink, checkpoint):
    from pyspark.sql import functions as F

    stamped = source.withColumn("handled", F.current_timestamp())
    return stamped.writeStream.format("parquet").option("path", sink).option("checkpointLocation", checkpoint).start()
