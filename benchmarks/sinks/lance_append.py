"""A Lance dataset, appended to by foreachBatch.

Promised: none; LanceDB's page on ingestion: appending the same input twice can create duplicates.
https://lancedb.github.io/lance/guide/read_and_write and https://docs.lancedb.com/ingestion
"""

from pathlib import Path

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    import lance

    def write(frame, batch):
        there = Path(sink, "sales.lance").exists()
        lance.write_dataset(frame.toArrow(), f"{sink}/sales.lance", mode="append" if there else "create")

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    import lance

    return lance.dataset(f"{sink}/sales.lance").to_table().to_pylist()
