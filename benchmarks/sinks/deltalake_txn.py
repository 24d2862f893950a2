"""The same, with the micro-batch's number as an application's transaction.

Promised: the version of an application's transaction is kept, and can be asked for; to leave a repeat out is the
writer's task. https://delta-io.github.io/delta-rs/api/transaction/ and DeltaTable.transaction_version
"""

schema = "id bigint, amount bigint, city string"

APPLICATION = "sales"


def build(spark, source, sink, checkpoint):
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    def write(frame, batch):
        done = DeltaTable(sink).transaction_version(APPLICATION) if DeltaTable.is_deltatable(sink) else None
        if done is not None and done >= batch:
            return
        properties = CommitProperties(app_transactions=[Transaction(APPLICATION, batch)])
        write_deltalake(sink, frame.toArrow(), mode="append", commit_properties=properties)

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    from deltalake import DeltaTable

    return DeltaTable(sink).to_pyarrow_table().to_pylist()
