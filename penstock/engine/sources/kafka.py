"""A Kafka topic as a source, read by Spark's own connector."""

from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.adapter.kafka import Topic
from penstock.app.duration import seconds
from penstock.app.stream import Source
from penstock.app.uri import KafkaPlace, Uri
from penstock.engine.checkpoint import committed_offsets, first_offsets
from penstock.engine.decode import RowKind
from penstock.engine.kafka import BORN_HEADER, check_field, connector_options, header_fields
from penstock.engine.sources.base import Reckoning
from penstock.engine.sources.gate import bounds_of
from penstock.errors import ConfigurationError

START = ("earliest", "latest")


class KafkaSource:
    """A topic, admitted through the connector's own gate.

    Its order of delivery is that of the topic: by partition, and within one by offset.
    """

    def __init__(self, source: Source[Any], uri: Uri, *, create: bool = False) -> None:
        self.source = source
        self.place = KafkaPlace.of(uri)
        self.uri = str(self.place)
        self._bounds = bounds_of(uri)
        self._delay = uri.options.get("max_delay")
        self._start = uri.options.get("start", "earliest")
        if self._start not in START:
            raise ConfigurationError(f"{uri}: start={self._start}; choose one of {', '.join(START)}.")
        self._key, self._headers = uri.options.get("key"), header_fields(uri, source.event_type)
        if self._key is not None:
            check_field(uri, "key", self._key, source.event_type)
        self.rows: RowKind = "messages" if self._key or self._headers else "json"
        self.topic = Topic(self.place, create=create)

    def options(self) -> dict[str, str]:
        """What the connector is told of the topic."""
        topic = {"subscribe": self.place.topic, "startingOffsets": self._start, "includeHeaders": "true"}
        return {**connector_options(self.place), **topic}

    def beside(self) -> dict[str, Column]:
        """The fields of events that stand beside the value, in the key or in headers; as bytes."""
        key = {} if self._key is None else {self._key: F.col("key")}
        return key | {field: _header(name) for name, field in self._headers.items()}

    def gate(self) -> dict[str, str]:
        """What it is told of micro-batches."""
        least, most = self._bounds
        options = {"maxOffsetsPerTrigger": str(most)}
        options |= {"minOffsetsPerTrigger": str(least)} if least > 1 else {}
        return options | ({"maxTriggerDelay": f"{round(seconds(self._delay) * 1000)}ms"} if self._delay else {})

    def frame(self, spark: SparkSession, started_us: int) -> DataFrame:
        """See `BoundSource`. An event is born at its message's time, unless a header says when."""
        frame = spark.readStream.format("kafka").options(**self.options(), **self.gate()).load()
        born = F.coalesce(_header(BORN_HEADER).cast("string").cast("bigint"), F.unix_micros("timestamp"))
        beside = [column.alias(field) for field, column in self.beside().items()]
        return frame.select(
            *([F.struct(*beside).alias("beside")] if beside else []),
            F.coalesce("value", F.lit("null").cast("binary")).alias("payload"),
            born.alias("born"),
            F.col("partition").cast("bigint").alias("major"),
            F.col("offset").alias("minor"),
        )

    def reckon(self, checkpoint: Path, number: int, batch: int | None) -> Reckoning:
        """See `BoundSource`; counts offsets."""
        bounds = self.topic.bounds()
        first = first_offsets(checkpoint, number).get(self.place.topic, {})
        offsets = [] if batch is None else committed_offsets(checkpoint, batch)
        done = dict(offsets[number][self.place.topic]) if offsets and offsets[number] else first
        committed = sum(end - first.get(partition, 0) for partition, end in done.items())
        queued = sum(end - done.get(str(partition), low) for partition, (low, end) in bounds.items())
        return Reckoning(committed, queued)

    def waiting(self, checkpoint: Path, number: int, batch: int | None) -> bool:
        """See `BoundSource`."""
        return self.reckon(checkpoint, number, batch).queued > 0

    def finished(self) -> bool:
        """Never: the topic may always grow."""
        return False


def _header(name: str) -> Column:
    """The first value of a message's header, or null."""
    return F.get(F.filter("headers", lambda header: header["key"] == name), F.lit(0))["value"]
