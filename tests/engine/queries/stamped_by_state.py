"""Keeps, by transformWithState, how much each city has sold, and stamps each sum with the wall clock."""

import time

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

RESULT = "city string, total bigint, at double"


class Totals(StatefulProcessor):
    def init(self, handle):
        self.total = handle.getValueState("total", "amount bigint")

    def handleInputRows(self, key, rows, timers):
        before = self.total.get()
        total = (before[0] if before else 0) + sum(row.amount for row in rows)
        self.total.update((total,))
        yield Row(city=key[0], total=total, at=time.time())

    def close(self):
        pass


def build(spark, source, sink, checkpoint):
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    totals = source.groupBy("city").transformWithState(Totals(), RESULT, "Append", "None")
    return totals.writeStream.format("json").option("path", sink).option("checkpointLocation", checkpoint).start()


def read(spark, sink):
    return spark.read.schema(RESULT).json(sink)
