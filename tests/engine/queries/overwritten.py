"""A file for each micro-batch, put in its place whole: the same again when it is run again."""

import json
from pathlib import Path


def build(spark, source, sink, checkpoint):
    Path(sink).mkdir(parents=True, exist_ok=True)

    def write(frame, batch):
        rows = [row.asDict() for row in frame.collect()]
        draft = Path(sink, f".{batch}")
        draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
        draft.rename(Path(sink, f"{batch}.json"))

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    return [json.loads(line) for file in Path(sink).glob("*.json") for line in file.read_text().splitlines()]
