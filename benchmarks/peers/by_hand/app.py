"""Plain PySpark, in three ways: Arrow batches without a keyed hop, state by key in pandas, and SQL alone."""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

ROWS = 50_000
"""Of a micro-batch at most."""

ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def by_three(text: str) -> bool:
    return sum(int(digit) for digit in text) % 3 == 0


def by_eleven(text: str) -> bool:
    digits = [int(digit) for digit in text]
    return (sum(digits[::2]) - sum(digits[1::2])) % 11 == 0


def map_in_arrow(numbers: DataFrame, keys: int) -> DataFrame:
    """The checks in mapInArrow; Spark adds up what each Arrow batch has found."""

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            texts = batch.column("text").to_pylist()
            three = sum(by_three(text) for text in texts for _ in range(keys))
            eleven = sum(by_eleven(text) for text in texts for _ in range(keys))
            yield pa.RecordBatch.from_pydict({"by": ["Three", "Eleven"], "found": [three, eleven]})

    found = numbers.mapInArrow(check, "by string, found bigint")
    return found.groupBy("by").agg(F.sum("found").alias("count")).withColumn("part", F.lit(""))


class Counter(StatefulProcessor):
    """The checks and the count of a key."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "three bigint, eleven bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timer_values: Any) -> Iterator[pd.DataFrame]:
        three, eleven = self.count.get() or (0, 0)
        for frame in rows:
            for text in frame["text"]:
                three += by_three(text)
                eleven += by_eleven(text)
        self.count.update((three, eleven))
        yield pd.DataFrame({"by": ["Three", "Eleven"], "part": str(key[0]), "count": [three, eleven]})

    def close(self) -> None:
        pass


def state(numbers: DataFrame, keys: int) -> DataFrame:
    """An instance of transformWithStateInPandas for each key checks and counts."""
    keyed = numbers.select("text", F.explode(F.array(*map(F.lit, range(keys)))).alias("key"))
    schema = "by string, part string, count bigint"
    return keyed.groupBy("key").transformWithStateInPandas(Counter(), schema, "update", "None")


def native(numbers: DataFrame, keys: int) -> DataFrame:
    """SQL: words are multiplied by keys, checked digit by digit, and counted."""
    keyed = numbers.select("text", F.explode(F.array(*map(F.lit, range(keys)))).alias("key"))
    digits = F.transform(F.split("text", ""), lambda digit: F.ascii(digit) - 48)
    zero = F.lit(0)
    three = F.aggregate(digits, zero, lambda total, digit: total + digit) % 3 == 0
    # Each step turns the sign of what came before it, so that the last digit counts as itself.
    eleven = F.aggregate(digits, zero, lambda total, digit: digit - total) % 11 == 0
    one = F.array(F.when(three, F.lit("Three")), F.when(eleven, F.lit("Eleven")))
    found = keyed.select(F.explode(one).alias("by")).where("by is not null")
    return found.groupBy("by").agg(F.count("*").alias("count")).withColumn("part", F.lit(""))


WAYS = {"map-in-arrow": map_in_arrow, "state": state, "native": native}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--way", choices=WAYS, required=True)
    parser.add_argument("--jars", required=True)
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--words", required=True)
    parser.add_argument("--totals", required=True)
    parser.add_argument("--keys", type=int, required=True)
    parser.add_argument("--state", required=True)
    options = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.jars": options.jars,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.streaming.stateStore.providerClass": ROCKS,
    }
    builder = SparkSession.builder.master("local[2]").appName(options.way)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    words = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("subscribe", options.words)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS)
        .load()
    )
    text = F.from_json(F.col("value").cast("string"), "text string")["text"].alias("text")
    numbers = words.select(text).where(F.col("text").rlike("^[0-9]+$"))
    totals = WAYS[options.way](numbers, options.keys)
    (
        totals.select(F.to_json(F.struct("by", "part", "count")).alias("value"))
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", options.brokers)
        .option("topic", options.totals)
        .option("checkpointLocation", options.state)
        .outputMode("update")
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main()
