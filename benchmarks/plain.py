"""The hand-written PySpark that the dialects are compared with; each function builds a streaming query."""

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from apps.lengths import measure as measure_arrow
from apps.lengths_query import measure as measure_frame
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

WORD = "key bigint, text string"
COUNT = "key bigint, seen bigint"
READING = "key bigint, value bigint"
UPDATES = "updates"
"""The form of a query whose results are written as JSON, those of each micro-batch as they have changed."""


class RowCounter(StatefulProcessor):
    """The counter over rows."""

    def init(self, handle: Any) -> None:
        self.seen = handle.getValueState("seen", "seen bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timer_values: Any) -> Iterator[Row]:
        stored = self.seen.get()
        count = (stored[0] if stored else 0) + sum(1 for _ in rows)
        self.seen.update((count,))
        yield Row(key=key[0], seen=count)

    def close(self) -> None:
        pass


class PandasCounter(RowCounter):
    """The counter over pandas frames."""

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timer_values: Any) -> Iterator[pd.DataFrame]:
        stored = self.seen.get()
        count = (stored[0] if stored else 0) + sum(len(frame) for frame in rows)
        self.seen.update((count,))
        yield pd.DataFrame({"key": [key[0]], "seen": [count]})


def json_words(spark: SparkSession, source: str) -> DataFrame:
    return spark.readStream.schema(WORD).option("maxFilesPerTrigger", 1).json(source)


def parquet_words(spark: SparkSession, source: str) -> DataFrame:
    return spark.readStream.schema(WORD).option("maxFilesPerTrigger", 1).parquet(source)


def rows(spark: SparkSession, source: str) -> DataFrame:
    grouped = json_words(spark, source).groupBy("key")
    return grouped.transformWithState(RowCounter(), COUNT, "append", "None")


def pandas(spark: SparkSession, source: str) -> DataFrame:
    grouped = json_words(spark, source).groupBy("key")
    return grouped.transformWithStateInPandas(PandasCounter(), COUNT, "append", "None")


def map_in_arrow(spark: SparkSession, source: str) -> DataFrame:
    def body(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield measure_arrow(batch)

    return parquet_words(spark, source).mapInArrow(body, "key bigint, length bigint")


def frame(spark: SparkSession, source: str) -> DataFrame:
    return measure_frame(parquet_words(spark, source))


def summed(form: str) -> Callable[[SparkSession, str], DataFrame]:
    """Spark's own aggregation: a sum by key, of the keys that a micro-batch has touched."""

    def query(spark: SparkSession, source: str) -> DataFrame:
        readings = spark.readStream.schema(READING).option("maxFilesPerTrigger", 1).format(form).load(source)
        return readings.groupBy("key").agg(F.sum("value").alias("total"))

    return query


def read(spark: SparkSession, source: str) -> DataFrame:
    """Rows handed to Python, and nothing done with them."""

    def body(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch.slice(0, 0)

    readings = spark.readStream.schema(READING).option("maxFilesPerTrigger", 1).parquet(source)
    return readings.mapInArrow(body, READING)


class DigitCounter(StatefulProcessor):
    """Example 1's receivers and aggregation as one would write them by hand: divisible words per key."""

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "three bigint, eleven bigint")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timer_values: Any) -> Iterator[pd.DataFrame]:
        three, eleven = self.count.get() or (0, 0)
        for frame in rows:
            for text in frame["text"]:
                digits = [int(digit) for digit in text]
                three += sum(int(digit) for digit in text) % 3 == 0
                eleven += (sum(digits[::2]) - sum(digits[1::2])) % 11 == 0
        self.count.update((three, eleven))
        yield pd.DataFrame({"key": [key[0]], "three": [three], "eleven": [eleven]})

    def close(self) -> None:
        pass


def divisibility(spark: SparkSession, source: str) -> DataFrame:
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(source)
    numbers = lines.where(F.col("value").rlike("^[0-9]+$"))
    keyed = numbers.select(F.col("value").alias("text"), F.explode(F.array(*map(F.lit, range(4)))).alias("key"))
    grouped = keyed.groupBy("key")
    schema = "key bigint, three bigint, eleven bigint"
    return grouped.transformWithStateInPandas(DigitCounter(), schema, "append", "None")


QUERIES: dict[str, tuple[Callable[[SparkSession, str], DataFrame], str]] = {
    "rows": (rows, "json"),
    "pandas": (pandas, "json"),
    "sum, JSON": (summed("json"), UPDATES),
    "sum, Parquet": (summed("parquet"), UPDATES),
    "reading, Parquet": (read, "noop"),
    "mapInArrow": (map_in_arrow, "parquet"),
    "DataFrame": (frame, "parquet"),
    "divisibility": (divisibility, "json"),
}
