"""Appends each micro-batch to a SQLite table."""

import sqlite3
from pathlib import Path


def build(spark, source, sink, checkpoint):
    Path(sink).mkdir(parents=True, exist_ok=True)

    def write(frame, batch):
        rows = [(row.id, row.amount) for row in frame.collect()]
        with sqlite3.connect(f"{sink}/out.db") as database:
            database.execute("CREATE TABLE IF NOT EXISTS sales (id, amount)")
            database.executemany("INSERT INTO sales VALUES (?, ?)", rows)

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    with sqlite3.connect(f"{sink}/out.db") as database:
        return [list(row) for row in database.execute("SELECT * FROM sales")]
