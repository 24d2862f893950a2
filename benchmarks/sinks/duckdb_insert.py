"""A DuckDB table that foreachBatch inserts into, from Arrow.

Promised: none for replays; inserting from Arrow: https://duckdb.org/docs/stable/guides/python/import_arrow
"""

from pathlib import Path

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    import duckdb

    Path(sink).mkdir(parents=True, exist_ok=True)

    def write(frame, batch):
        arrow = frame.toArrow()
        with duckdb.connect(f"{sink}/out.db") as database:
            database.execute("CREATE TABLE IF NOT EXISTS sales (id BIGINT, amount BIGINT, city VARCHAR)")
            database.register("arrived", arrow)
            database.execute("INSERT INTO sales SELECT * FROM arrived")

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    import duckdb

    with duckdb.connect(f"{sink}/out.db", read_only=True) as database:
        return [list(row) for row in database.execute("SELECT * FROM sales").fetchall()]
