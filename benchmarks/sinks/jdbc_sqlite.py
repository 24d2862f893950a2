"""A JDBC table in SQLite by foreachBatch, with Xerial's driver.

Promised: "By default, foreachBatch provides only at-least-once write guarantees",
https://spark.apache.org/docs/latest/streaming/apis-on-dataframes-and-datasets.html#foreachbatch
"""

import sqlite3
from pathlib import Path

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    Path(sink).mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(f"{sink}/sales.db") as database:  # Spark does not make it: it takes SQLite's answer for an error
        database.execute("CREATE TABLE IF NOT EXISTS sales (id INTEGER, amount INTEGER, city TEXT)")

    def write(frame, batch):
        frame.coalesce(1).write.jdbc(_url(sink), "sales", mode="append", properties=OPTIONS)

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    return spark.read.jdbc(_url(sink), "sales", properties=OPTIONS)


OPTIONS = {"driver": "org.sqlite.JDBC"}


def _url(sink):
    return f"jdbc:sqlite:{sink}/sales.db"
