"""Writes by a connection that is kept from one micro-batch to the next; a kill rolls back what was not committed."""

import sqlite3
from pathlib import Path


def build(spark, source, sink, checkpoint):
    Path(sink).mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(f"{sink}/out.db", check_same_thread=False, timeout=2)
    database.execute("CREATE TABLE IF NOT EXISTS sales (id, batch, PRIMARY KEY (id, batch))")
    database.commit()

    def write(frame, batch):
        rows = [(row.id, batch) for row in frame.collect()]
        database.executemany("INSERT OR REPLACE INTO sales VALUES (?, ?)", rows)
        database.commit()

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    with sqlite3.connect(f"{sink}/out.db") as database:
        return [row[0] for row in database.execute("SELECT id FROM sales")]
