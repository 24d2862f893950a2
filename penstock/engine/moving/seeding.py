"""Reading the state of groups from their checkpoints, and seeding new checkpoints with it; Spark does both."""

import math
import re
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.stateful_processor import TimerValues

from penstock.app.topology import Topology
from penstock.engine.moving.entries import ENTRIES, PAGES, SUMS, Divisions, Homes, PageCounts, Spread, pack
from penstock.engine.query.compile import bucket_labels, with_watermark
from penstock.engine.query.stateful import HopProcessor, time_mode_of
from penstock.engine.session.spark import having
from penstock.runtime.pages import HEADER, Header, pages_for
from penstock.runtime.wire import WIRE
from penstock.runtime.wiring import WiringReference
from penstock.storage import durable
from penstock.storage.place import is_local

if TYPE_CHECKING:
    import pandas as pd

FEW_ROWS = {"spark.sql.execution.arrow.maxRecordsPerBatch": "32"}
"""Few rows per Arrow batch, because each row is a page, which may be large."""
HeaderRow = tuple[int, int, str, int, bytes, int | None]
HEADERS = "hop int, bucket int, element string, page int, content binary, due bigint"
"""The columns of a `HeaderRow`; ``due`` is in milliseconds since the epoch."""


class InstanceCounts(NamedTuple):
    """The content of a state: live instances and their bytes by element and partition, and a checksum over all."""

    instances: dict[tuple[str, int], int]
    bytes: dict[tuple[str, int], int]
    checksum: int

    @property
    def total(self) -> int:
        """The number of instances of all elements."""
        return sum(self.instances.values())


UNREADABLE = re.compile(r"[\s%#\[\]{}?\\\\\"<>^|`]")
"""Characters that Spark's reader of state escapes, so that it cannot open a path with one of them."""


class Links:
    """Symbolic links to checkpoints whose paths Spark's reader of state cannot open. They live as long as this object."""

    def __init__(self) -> None:
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def to(self, checkpoint: Path) -> Path:
        """Return the path of a checkpoint, or a link to it if the path is not readable."""
        if not (is_local(checkpoint) and UNREADABLE.search(str(checkpoint))):
            return checkpoint
        self._directory = self._directory or tempfile.TemporaryDirectory(prefix="penstock-")
        link = Path(self._directory.name) / str(len(durable.names(Path(self._directory.name))))
        link.symlink_to(checkpoint)
        return link


@dataclass(frozen=True)
class OldState:
    """Checkpoints with state, each with its last committed micro-batch."""

    checkpoints: Mapping[Path, int]

    def pages(self, spark: SparkSession) -> DataFrame:
        """Return all pages of all checkpoints, with the columns element, page and content."""
        frame = spark.createDataFrame([], "element string, page int, content binary")
        frames = [
            spark.read.format("statestore")
            .option("operatorId", operator)
            .option("batchId", batch)
            .option("stateVarName", "pages")
            .load(str(checkpoint))
            .select("user_map_key.element", "user_map_key.page", "user_map_value.content")
            for checkpoint, batch in self.checkpoints.items()
            for operator in _operators(checkpoint)
        ]
        for other in frames:
            frame = frame.union(other)
        return frame


def count(pages: DataFrame, homes: Homes) -> InstanceCounts:
    """Count the instances on pages, by element and by the partition to which they belong in the new layout."""
    with having(pages.sparkSession, FEW_ROWS):
        sums = pages.mapInArrow(PageCounts(homes), from_arrow_schema(SUMS))
        rows = sums.groupBy("element", "bucket").agg(*(F.sum(name).alias(name) for name in SUMS.names[2:])).collect()
    instances = {(row["element"], row["bucket"]): int(row["instances"]) for row in rows}
    sizes = {(row["element"], row["bucket"]): int(row["bytes"]) for row in rows}
    return InstanceCounts(instances, sizes, sum(int(row["checksum"]) for row in rows))


def divided(counted: InstanceCounts) -> Divisions:
    """Return the number of pages for the counted instances, by element and partition."""
    return {where: pages_for(instances, counted.bytes[where]) for where, instances in counted.instances.items()}


def repack(pages: DataFrame, homes: Homes, divisions: Divisions, place: Path) -> None:
    """Regroup the instances on pages to the pages of the new layout, and write these to Parquet files."""
    with having(pages.sparkSession, FEW_ROWS):
        entries = pages.mapInArrow(Spread(homes, divisions), from_arrow_schema(ENTRIES))
        by_page = entries.groupBy("element", "bucket", "page")

        def packed(instances: pa.Table) -> pa.Table:
            return pack(homes, instances)

        by_page.applyInArrow(packed, from_arrow_schema(PAGES)).write.mode("overwrite").parquet(str(place))


def read_pages(spark: SparkSession, place: Path) -> DataFrame:
    """Read the pages that `repack` has written."""
    whole = spark.read.option("__globPaths__", "false")  # take the path literally, not as a glob pattern
    return whole.schema(from_arrow_schema(PAGES)).parquet(str(place))


class Clocks(NamedTuple):
    """The clocks of an element: the last watermark by which timers fired, and the time of its last micro-batch; both in seconds
    since the epoch.
    """

    fired: float | None = None
    ran: float | None = None


def clocks_of(pages: DataFrame) -> dict[str, Clocks]:
    """Return the clocks by element, the latest of all its partitions."""
    clocks: dict[str, Clocks] = {}
    for row in pages.where(F.col("page") == HEADER).select("element", "content").collect():
        header = msgspec.msgpack.decode(bytes(row["content"]), type=Header)
        latest = clocks.get(row["element"], Clocks())
        clocks[row["element"]] = Clocks(_latest(latest.fired, header.fired), _latest(latest.ran, header.ran))
    return clocks


def _latest(one: float | None, other: float | None) -> float | None:
    return max((time for time in (one, other) if time is not None), default=None)


class SeedProcessor(HopProcessor):
    """Writes the initial state of a hop; handles no events."""

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator["pd.DataFrame"]:
        """Yield nothing: there are no input rows."""
        return iter(())

    def handleInitialState(self, key: Any, initialState: Any, timerValues: TimerValues) -> None:
        """Called by Spark with the initial rows of a partition, several times if they are many."""
        for row in initialState.itertuples(index=False):
            if row.element:
                self._store.put(row.element, row.page, bytes(row.content))
            else:  # an overdue timer must fire in the next micro-batch, not in this one
                self._set_timer(max(int(row.due), timerValues.getCurrentProcessingTimeInMs() + 1))

    def handleExpiredTimer(self, key: Any, timerValues: TimerValues, expiredTimerInfo: Any) -> Iterator["pd.DataFrame"]:
        """Yield nothing: no timer expires while the state is written."""
        return iter(())


def seed(
    spark: SparkSession,
    reference: WiringReference,
    checkpoint: Path,
    pages: DataFrame,
    headers: list[HeaderRow],
    workshop: Path,
) -> None:
    """Make a checkpoint that has a group's state and has read no event, by one micro-batch of a query like the group's own.

    Args:
        pages: the state, as `repack` has written it.
        headers: the result of `headers_of` for these pages.
        workshop: a directory for temporary files.
    """
    wiring = reference.resolve()
    labels = bucket_labels(wiring.partitions)
    hops = {element.name: hop for hop in range(1, wiring.hops + 1) for element in wiring.hop(hop)}
    hop_of = F.create_map(*(F.lit(word) for pair in hops.items() for word in pair))
    held_pages = pages.where(F.col("element").isin(list(hops))).withColumn("hop", hop_of[F.col("element")])
    content = held_pages.select("hop", "bucket", "element", "page", "content", F.lit(None).cast("bigint").alias("due"))
    content = content.union(spark.createDataFrame(headers, HEADERS))
    label = F.element_at(F.array(*map(F.lit, labels)), F.col("bucket") + 1)
    content = content.withColumn("label", label)
    # Spark knows sources and stateful operators by their numbers, so the query must have as many of both as the group's own.
    place = workshop / uuid.uuid4().hex
    try:
        durable.make(place)
        durable.write(place / "one.txt", "one\n")
        frame = _sources(spark, wiring.topology, str(place))
        for hop in range(1, wiring.hops + 1):
            initial = content.where(F.col("hop") == hop).drop("hop", "bucket").groupBy("label")
            frame = (
                frame.withColumn("label", F.lit(labels[0]))
                .groupBy("label")
                .transformWithStateInPandas(
                    SeedProcessor(reference, hop, tuple(labels)),
                    from_arrow_schema(WIRE),
                    "append",
                    time_mode_of(wiring.topology, hop),
                    initial,
                )
            )
        settings = {
            **FEW_ROWS,
            "spark.sql.shuffle.partitions": str(wiring.partitions),
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        }
        with having(spark, settings):
            writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
            writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        durable.remove(place)


def headers_of(
    pages: DataFrame, divisions: Divisions, clocks: Mapping[str, Clocks], hops: Mapping[str, int], partitions: int
) -> list[HeaderRow]:
    """Return the rows of a state besides its pages: a header for each element in each partition, and for each partition with
    timers a row with an empty element and the earliest time.

    Args:
        hops: the hop of each element of a group.
    """
    rows = pages.where(F.col("element").isin(list(hops)))
    rows = rows.select("element", "bucket", "page", "due", "instances", F.length("content").alias("bytes"))
    # Partitions without an instance need headers too: they must know which windows have closed.
    headers = {
        (element, bucket): Header(pages=divisions.get((element, bucket), 1), due={}, **clocks.get(element, Clocks())._asdict())
        for element in hops
        for bucket in range(partitions)
    }
    for row in rows.collect():
        header = headers[row["element"], row["bucket"]]
        header.instances += row["instances"]
        header.bytes += row["bytes"]
        if row["due"] is not None:
            header.due[row["page"]] = row["due"]
    dues: dict[tuple[int, int], float] = {}
    header_rows: list[HeaderRow] = []
    for (element, bucket), header in headers.items():
        header_rows.append((hops[element], bucket, element, HEADER, msgspec.msgpack.encode(header), None))
        if header.due:
            place = (hops[element], bucket)
            dues[place] = min(dues.get(place, math.inf), *header.due.values())
    for (hop, bucket), due in dues.items():
        header_rows.append((hop, bucket, "", 0, b"", math.ceil(due * 1000)))
    return header_rows


def _sources(spark: SparkSession, topology: Topology, place: str) -> DataFrame:
    """Return the union of as many streams as the group has sources, with the same watermarks, but without events."""

    def nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        return iter(())

    plain = re.sub(r"([][{}*?\\])", r"\\\1", place)  # glob characters are escaped: the path is meant literally
    frame: DataFrame | None = None
    for source in topology.sources:
        stream = spark.readStream.text(plain).mapInArrow(nothing, from_arrow_schema(WIRE))
        if source.event_time is not None:
            stream = with_watermark(stream, source.event_time)
        frame = stream if frame is None else frame.union(stream)
    assert frame is not None
    return frame


def _operators(checkpoint: Path) -> list[int]:
    """Return Spark's numbers of a checkpoint's stateful operators."""
    return sorted(int(name) for name in durable.names(checkpoint / "state") if name.isdigit())
