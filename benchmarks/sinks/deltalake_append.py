"""A Delta table by delta-rs' Python, appended to by foreachBatch.

Promised: none for replays; appending: https://delta-io.github.io/delta-rs/usage/writing/
"""

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    from deltalake import write_deltalake

    def write(frame, batch):
        write_deltalake(sink, frame.toArrow(), mode="append")

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    from deltalake import DeltaTable

    return DeltaTable(sink).to_pyarrow_table().to_pylist()
