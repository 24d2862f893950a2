"""Posts each micro-batch to a web service, which keeps what it gets. The variable SERVICE has its address."""

import json
import os
from urllib.request import Request, urlopen

SERVICE = os.environ["SERVICE"]


def build(spark, source, sink, checkpoint):
    def write(frame, batch):
        rows = [row.asDict() for row in frame.collect()]
        urlopen(Request(SERVICE + sink, json.dumps(rows).encode(), method="POST")).close()

    return source.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    with urlopen(SERVICE + sink) as answer:
        return json.load(answer)


def clean(spark, sink):
    urlopen(Request(SERVICE + sink, method="DELETE")).close()
