"""Adds what each micro-batch has of a city to a total of its own."""

import sqlite3
from pathlib import Path


def build(spark, source, sink, checkpoint):
    Path(sink).mkdir(parents=True, exist_ok=True)

    def write(frame, batch):
        rows = [(row["sum(amount)"], row.city) for row in frame.groupBy("city").sum("amount").collect()]
        with sqlite3.connect(f"{sink}/out.db") as database:
            database.execute("CREATE TABLE IF NOT EXISTS totals (city PRIMARY KEY, total DEFAULT 0)")
            database.executemany("INSERT OR IGNORE INTO totals VALUES (?, 0)", [(city,) for _, city in rows])
            database.executemany("UPDATE totals SET total = total + ? WHERE city = ?", rows)

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    with sqlite3.connect(f"{sink}/out.db") as database:
        return [list(row) for row in database.execute("SELECT * FROM totals")]
