"""Each micro-batch goes to two tables, one after the other; each is idempotent by itself but for its own crash."""

import sqlite3
from pathlib import Path


def build(spark, source, sink, checkpoint):
    Path(sink).mkdir(parents=True, exist_ok=True)

    def write(frame, batch):
        rows = [(row.id, row.amount) for row in frame.collect()]
        with sqlite3.connect(f"{sink}/one.db") as database:
            database.execute("CREATE TABLE IF NOT EXISTS sales (id, amount)")
            database.executemany("INSERT INTO sales VALUES (?, ?)", rows)
        with sqlite3.connect(f"{sink}/two.db") as database:
            database.execute("CREATE TABLE IF NOT EXISTS sales (id PRIMARY KEY, amount)")
            database.executemany("INSERT OR REPLACE INTO sales VALUES (?, ?)", rows)

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    found = []
    for name in ("one", "two"):
        with sqlite3.connect(f"{sink}/{name}.db") as database:
            found += [[name, *row] for row in database.execute("SELECT * FROM sales")]
    return found
