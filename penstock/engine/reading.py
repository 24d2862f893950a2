"""From what a bound source says of its stream to Spark's streaming DataFrame."""

from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.connectors.sequence import FORMAT
from penstock.connectors.source import BoundSource
from penstock.engine.follow import FollowDataSource


class _View:
    """What a source may ask of Spark; see `penstock.connectors.SparkView`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.parallelism = spark.sparkContext.defaultParallelism

    def columns(self, format: str, path: str) -> dict[str, str]:
        schema = self._spark.read.format(format).load(path).schema
        return {field.name: field.dataType.simpleString() for field in schema}


def frame_of(spark: SparkSession, bound: BoundSource, started_us: int) -> DataFrame:
    """The streaming DataFrame of a source's rows; see `penstock.connectors.Reading` for its columns."""
    reading = bound.reading(_View(spark), started_us)
    if reading.format == FORMAT:
        spark.dataSource.register(FollowDataSource)
    reader = spark.readStream.format(reading.format).options(**reading.options)
    if reading.like is not None:
        like = spark.read.format(reading.format).load(reading.like).schema
        given = cast(StructType, StructType.fromDDL(reading.schema)) if reading.schema else StructType()
        reader = reader.schema(StructType([*given, *(field for field in like if field.name not in given.names)]))
    elif reading.schema is not None:
        reader = reader.schema(reading.schema)
    return reader.load(reading.path).selectExpr(*reading.columns)
