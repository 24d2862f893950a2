"""Makes Spark's streaming DataFrame from the reading that a bound source describes."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.connectors.sequence import FORMAT
from penstock.connectors.source import BoundSource
from penstock.engine.query.follow import FollowDataSource
from penstock.engine.query.parts import PARTS, divider


class _View:
    """The part of Spark that a source may use; see `penstock.connectors.SparkView`."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self.parallelism = spark.sparkContext.defaultParallelism


def frame_of(spark: SparkSession, bound: BoundSource, started_us: int) -> DataFrame:
    """Return the streaming DataFrame of a source's rows; see `penstock.connectors.Reading` for its columns."""
    view = _View(spark)
    reading = bound.reading(view, started_us)
    if reading.format == FORMAT:
        spark.dataSource.register(FollowDataSource)
    reader = spark.readStream.format(reading.format).options(**reading.options)
    if reading.schema is not None:
        reader = reader.schema(reading.schema)
    rows = reader.load(reading.path).selectExpr(*reading.columns)
    if not reading.divided:
        return rows
    assert bound.files is not None
    return rows.mapInArrow(divider(bound.files), from_arrow_schema(PARTS)).repartition(view.parallelism)
