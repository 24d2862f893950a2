"""A JDBC table in PostgreSQL by foreachBatch: the batch writer used again, as the guide has it.

Promised: "By default, foreachBatch provides only at-least-once write guarantees",
https://spark.apache.org/docs/latest/streaming/apis-on-dataframes-and-datasets.html#foreachbatch
"""

import os
from hashlib import sha256
from urllib.parse import urlsplit

schema = "id bigint, amount bigint, city string"

PG = os.environ.get("PG", "postgresql://postgres@localhost:5432/postgres")


def build(spark, source, sink, checkpoint):
    url, table, options = *_place(sink), _options()

    def write(frame, batch):
        frame.write.jdbc(url, table, mode="append", properties=options)

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    return spark.read.jdbc(*_place(sink), properties=_options())


def clean(spark, sink):
    import psycopg

    with psycopg.connect(PG) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {_place(sink)[1]}")


def _place(sink):
    at = urlsplit(PG)
    return (f"jdbc:postgresql://{at.hostname}:{at.port or 5432}{at.path}", f"sales_{sha256(sink.encode()).hexdigest()[:16]}")


def _options():
    at = urlsplit(PG)
    return {"driver": "org.postgresql.Driver", "user": at.username or "", "password": at.password or ""}
