"""Tries three times to append a micro-batch to a SQLite table, and then goes on with the next."""

import sqlite3
import time
from pathlib import Path

INSERT = "INSERT OR IGNORE INTO sales VALUES (?, ?)"


def append(sink, rows):
    with sqlite3.connect(f"{sink}/out.db") as database:
        database.execute("CREATE TABLE IF NOT EXISTS sales (id PRIMARY KEY, amount)")
        database.executemany(INSERT, rows)


def build(spark, source, sink, checkpoint):
    Path(sink).mkdir(parents=True, exist_ok=True)

    def write(frame, batch):
        rows = [(row.id, row.amount) for row in frame.collect()]
        for _ in range(3):
            try:
                append(sink, rows)
                break
            except Exception:
                time.sleep(0.01)

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    with sqlite3.connect(f"{sink}/out.db") as database:
        return [list(row) for row in database.execute("SELECT * FROM sales")]
