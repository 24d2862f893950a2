"""Adds up sales by city in one transaction, and notes in another that the micro-batch is done."""

import sqlite3
from pathlib import Path

ADD = "INSERT INTO sums VALUES (?, ?) ON CONFLICT (city) DO UPDATE SET amount = amount + excluded.amount"


def build(spark, source, sink, checkpoint):
    Path(sink).mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(f"{sink}/out.db") as database:
        database.execute("CREATE TABLE IF NOT EXISTS sums (city PRIMARY KEY, amount)")
        database.execute("CREATE TABLE IF NOT EXISTS done (batch PRIMARY KEY)")

    def write(frame, batch):
        with sqlite3.connect(f"{sink}/out.db") as database:
            if database.execute("SELECT 1 FROM done WHERE batch = ?", (batch,)).fetchone():
                return
        with database:
            database.executemany(ADD, [(row.city, row.amount) for row in frame.collect()])
        with database:
            database.execute("INSERT INTO done VALUES (?)", (batch,))

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    with sqlite3.connect(f"{sink}/out.db") as database:
        return [list(row) for row in database.execute("SELECT * FROM sums")]
