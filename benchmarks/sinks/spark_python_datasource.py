"""The stream writer of Spark's tutorial on Python data sources: what it has counted of a micro-batch, into a file.

Promised: nothing said of replays; `commit(messages, batchId)` gets what is needed to be idempotent, and the
tutorial's example opens the micro-batch's file for appending.
https://spark.apache.org/docs/latest/api/python/tutorial/sql/python_data_source.html
"""

import json
from pathlib import Path

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    from dataclasses import dataclass

    from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage

    Path(sink).mkdir(parents=True, exist_ok=True)

    @dataclass
    class Counted(WriterCommitMessage):
        rows: int

    class Counting(DataSourceStreamWriter):
        def __init__(self, options):
            self.path = options["path"]

        def write(self, iterator):
            return Counted(sum(1 for _ in iterator))

        def commit(self, messages, batchId):
            import json
            import os

            status = {"num_partitions": len(messages), "rows": sum(message.rows for message in messages)}
            with open(os.path.join(self.path, f"{batchId}.json"), "a") as file:
                file.write(json.dumps(status) + "\n")

        def abort(self, messages, batchId):
            import os

            with open(os.path.join(self.path, f"{batchId}.txt"), "w") as file:
                file.write(f"failed in batch {batchId}")

    class Fake(DataSource):
        @classmethod
        def name(cls):
            return "fakestream"

        def streamWriter(self, schema, overwrite):
            return Counting(self.options)

    spark.dataSource.register(Fake)
    return source.writeStream.format("fakestream").option("checkpointLocation", checkpoint).start(sink)


def read(spark, sink):
    lines = [line for file in Path(sink).glob("*.json") for line in file.read_text().splitlines()]
    return [{"rows": sum(json.loads(line)["rows"] for line in lines)}]
