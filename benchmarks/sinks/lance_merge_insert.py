"""A Lance dataset, upserted by foreachBatch with merge_insert.

Promised: adds, updates and removes rows in one transaction, by a key.
https://lancedb.github.io/lance/guide/read_and_write
"""

from pathlib import Path

schema = "id bigint, amount bigint, city string"


def build(spark, source, sink, checkpoint):
    import lance

    def write(frame, batch):
        arrow, place = frame.toArrow(), f"{sink}/sales.lance"
        if not Path(place).exists():
            lance.write_dataset(arrow.slice(0, 0), place)
        merging = lance.dataset(place).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merging.execute(arrow)

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    import lance

    return lance.dataset(f"{sink}/sales.lance").to_table().to_pylist()
