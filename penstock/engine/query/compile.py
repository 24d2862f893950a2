"""Compiles the wiring of a group to one streaming DataFrame, whose rows are the tallies of its stages.

Each source is decoded and run through the keyless elements behind it in one `mapInArrow`; each
keyed hop is a shuffle by bucket and one `transformWithStateInPandas`, which also runs the keyless
elements behind the hop. Output goes to staged files inside the stages, so only tallies are left.
"""

import mmh3
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.app.stream import EventTime
from penstock.connectors.source import BoundSource
from penstock.engine.query.decode import decoder
from penstock.engine.query.reading import frame_of
from penstock.engine.query.stateful import HopProcessor, time_mode_of
from penstock.runtime.lineage import NONE
from penstock.runtime.wire import WIRE
from penstock.runtime.wiring import Wiring, WiringReference

SPARK_SEED = 42


def compile_group(spark: SparkSession, reference: WiringReference, sources: list[BoundSource], started_us: int) -> DataFrame:
    """Return the streaming DataFrame of a group of elements in the event and batch dialects."""
    wiring = reference.resolve()
    frames = [_source_stage(spark, reference, wiring, bound, started_us) for bound in sources]
    frame = frames[0]
    for other in frames[1:]:
        frame = frame.union(other)
    labels = bucket_labels(wiring.partitions)
    for hop in range(1, wiring.hops + 1):
        processor = HopProcessor(reference, hop, tuple(labels))
        label = F.element_at(F.array(*map(F.lit, labels)), F.col("bucket") + 1)
        frame = (
            frame.withColumn("label", label)
            .groupBy("label")
            .transformWithStateInPandas(processor, from_arrow_schema(WIRE), "append", time_mode_of(wiring.topology, hop))
        )
    return frame


def bucket_labels(partitions: int) -> list[int]:
    """Return for each bucket an integer that Spark's hash partitioning sends to a partition of its own.

    Spark's partition of an int is its Murmur3 hash with seed 42, modulo the number of partitions.
    """
    labels: dict[int, int] = {}
    candidate = 0
    while len(labels) < partitions:
        labels.setdefault(mmh3.hash(candidate.to_bytes(4, "little"), SPARK_SEED) % partitions, candidate)
        candidate += 1
    return [labels[bucket] for bucket in range(partitions)]


def _source_stage(
    spark: SparkSession, reference: WiringReference, wiring: Wiring, bound: BoundSource, started_us: int
) -> DataFrame:
    number = [source.name for source in wiring.topology.sources].index(bound.source.name)
    frame = frame_of(spark, bound, started_us).mapInArrow(decoder(reference, number, bound), from_arrow_schema(WIRE))
    event_time = wiring.topology.sources[number].event_time
    if event_time is not None:
        frame = with_watermark(frame, event_time)
    return frame


def with_watermark(frame: DataFrame, event_time: EventTime) -> DataFrame:
    """Add to a DataFrame of events on the wire a watermark that follows their event times."""
    own = F.timestamp_micros(F.when(F.col("time") != NONE, F.col("time")))
    delay = f"{round(event_time.lateness * 1000)} milliseconds"
    # Dropped again, so that Spark keeps the watermark but leaves the judgement of lateness to the containers.
    return frame.withColumn("event_time", own).withWatermark("event_time", delay).drop("event_time")
