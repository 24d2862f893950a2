"""Sums by city, upserted: what a micro-batch has changed is written over what was there."""

import sqlite3
from pathlib import Path


def build(spark, source, sink, checkpoint):
    Path(sink).mkdir(parents=True, exist_ok=True)

    def write(frame, batch):
        rows = [(row.city, row.total) for row in frame.collect()]
        with sqlite3.connect(f"{sink}/out.db") as database:
            database.execute("CREATE TABLE IF NOT EXISTS totals (city PRIMARY KEY, total)")
            database.executemany("INSERT OR REPLACE INTO totals VALUES (?, ?)", rows)

    totals = source.groupBy("city").sum("amount").withColumnRenamed("sum(amount)", "total")
    started = totals.writeStream.outputMode("update").foreachBatch(write)
    return started.option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    with sqlite3.connect(f"{sink}/out.db") as database:
        return [list(row) for row in database.execute("SELECT * FROM totals")]
