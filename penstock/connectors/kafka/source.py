"""The source for Kafka topics, which are read by Spark's own connector."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.app.stream import Source
from penstock.connectors.admission import ADMISSION, Admission
from penstock.connectors.checkpoint import Position
from penstock.connectors.declaration import FIELD, Option, Options, SourceConnector, SourceContext, one_of
from penstock.connectors.kafka.place import (
    BORN_HEADER,
    JARS,
    OWN,
    OWN_OF_REGISTRY,
    ROOT_HEADER,
    KafkaPlace,
    check_field,
    has_registry,
    header_fields,
    subject_of,
)
from penstock.connectors.kafka.topic import COMMITTED as READS
from penstock.connectors.kafka.topic import UNCOMMITTED, Topic, place_of
from penstock.connectors.source import BoundSource, Reading, Reckoning, Reread, RowKind, SparkView
from penstock.connectors.uri import Uri
from penstock.errors import SourceError
from penstock.extras import needs

with needs():
    from confluent_kafka import Message

COMMITTED = {"kafka.isolation.level": "read_committed"}
"""The setting by which Spark ignores messages of transactions that are not committed; librdkafka does so by default."""


class KafkaSource(BoundSource):
    """A source that reads a topic. Spark's connector itself limits the messages of a micro-batch.

    An event is born at its message's timestamp, unless a header holds its birth. Events are ordered by partition, and within a
    partition by offset.
    """

    def __init__(self, source: Source[Any], uri: Uri, options: Options) -> None:
        self.source = source
        self.place = KafkaPlace.of(uri)
        self.uri = str(self.place)
        self._admission, self._delay = Admission.of(uri, options), options.get("max_delay")
        self._start: str = options.get("start", "earliest")
        self._key, self._headers = options.get("key"), header_fields(uri, source.event_type)
        if self._key is not None:
            check_field(uri, "key", self._key, source.event_type)
        self.rows: RowKind = "messages" if self._key or self._headers else "json"
        if has_registry(uri):
            self._read_framed(uri)
        self.topic = Topic(self.place, needs=("read",))
        self._identity = self.topic.identity()

    def _read_framed(self, uri: Uri) -> None:
        from penstock.connectors.kafka.schema_registry import Registry, RegistryFrames, check_fits  # needs an extra

        registry = Registry.of(uri)
        check_fits(registry, subject_of(uri), self.source.event_type)
        self.rows, self.frames = "framed", RegistryFrames(registry)

    @property
    def starts_late(self) -> bool:
        """Whether a run skips the messages that the topic holds when it begins."""
        return self._start == "latest"

    def options(self) -> dict[str, str]:
        """Return the options of Spark's connector that say what to read; they may hold secrets."""
        topic = {"subscribe": self.place.topic, "startingOffsets": self._start, "includeHeaders": "true"}
        return {**COMMITTED, **self.place.for_connector(), **topic}

    def beside(self) -> dict[str, str]:
        """Return SQL for the bytes of the event's fields that are read from the key or from headers, by field."""
        key = {} if self._key is None else {self._key: "key"}
        return key | {field: _header(name) for name, field in self._headers.items()}

    def reading(self, spark: SparkView, started_us: int) -> Reading:
        beside = ", ".join(f"{_text(field)}, {column}" for field, column in self.beside().items())
        columns = (
            *([f"named_struct({beside}) AS beside"] if beside else []),
            "coalesce(value, CAST('null' AS BINARY)) AS payload",
            f"coalesce({_number(BORN_HEADER)}, unix_micros(timestamp)) AS born",
            "CAST(partition AS BIGINT) AS major",
            "offset AS minor",
        )
        return Reading("kafka", columns, {**self.options(), **self._gate()})

    def identity(self) -> str:
        return self._identity

    def vouch(self, position: Position) -> None:
        """Check that the topic was not deleted and created again: Spark would go on from offsets of the old topic."""
        now = self.topic.identity()
        if now != self._identity:
            raise SourceError(
                f"Source {self.source.name}: {self.uri} was deleted and made anew while the run was on, so the offsets up to "
                "which it has read say nothing of what the topic holds now: start afresh with --fresh, or under another "
                "--name, to read it from its beginning. What was committed before is kept."
            )

    def reckon(self, position: Position) -> Reckoning:
        """Count by offsets. The counts may be too high: ends of transactions and compacted messages have offsets, too."""
        first, done = self._read(position)
        committed = sum(end - first.get(partition, 0) for partition, end in done.items())
        bounds = self.topic.bounds().items()
        lag = {str(partition): max(0, end - done.get(partition, low)) for partition, (low, end) in bounds}
        return Reckoning(committed, sum(lag.values()), lag)

    def drained(self, position: Position) -> bool:
        self.vouch(position)
        return super().drained(position)

    def note_progress(self, run: str, positions: list[Position]) -> None:
        for position in positions:
            self.vouch(position)

    def again(self, after: Position, upto: Position) -> Iterator[Reread]:
        begin, end = self._read(after)[1], self._read(upto)[1]
        low = self.topic.bounds(**READS)
        deleted = [number for number, start in begin.items() if start < min(low[number][0], end.get(number, 0))]
        if deleted:
            raise SourceError(f"{self.uri} has deleted messages of partition {deleted[0]} that the run has read.")
        names = {field: name for name, field in self._headers.items()}
        for messages in self.topic.read(begin, end, **READS):
            wanted = [message for message in messages if place_of(message)[1] < end.get(place_of(message)[0], 0)]
            places = np.array([place_of(message) for message in wanted], np.int64).reshape(-1, 2)
            born = np.array([message.timestamp()[1] * 1000 for message in wanted], np.int64)
            yield Reread([self._row(message, names) for message in wanted], born, places[:, 0], places[:, 1])

    def _row(self, message: Message, fields: Mapping[str, str]) -> Any:
        """Return a message as the row that Spark would read; ``fields`` maps headers to fields, by field."""
        payload = b"null" if message.value() is None else message.value()
        if self.rows == "json":
            return payload
        headers: Any = message.headers() or ()
        first = dict(reversed(list(headers)))  # of several headers with one name, the first counts
        beside = {field: first.get(name) for name, field in fields.items()}
        beside |= {} if self._key is None else {self._key: message.key()}
        return {"payload": payload, "beside": beside}

    def recount(self, position: Position) -> int:
        return self.topic.count(*self._read(position))

    def _read(self, position: Position) -> tuple[dict[int, int], dict[int, int]]:
        """Return, by partition, the offsets at which Spark began to read the topic, and the offsets that it has reached."""
        first, offset = position.first_offsets().get(self.place.topic, {}), position.offset
        return _by_number(first), _by_number(offset[self.place.topic] if offset else first)

    def _gate(self) -> dict[str, str]:
        """Return the options of Spark's connector that limit the sizes of micro-batches."""
        least, most = self._admission.min_rows, self._admission.max_rows
        options = {"maxOffsetsPerTrigger": str(most)}
        options |= {"minOffsetsPerTrigger": str(least)} if least > 1 else {}
        return options | ({"maxTriggerDelay": f"{round(self._delay * 1000)}ms"} if self._delay is not None else {})


class KafkaHopSource(KafkaSource):
    """A topic from which one group of a run reads a stream of others; headers hold each event's birth and root.

    Each micro-batch of the others is a transaction, whose mark has an offset, too.
    """

    def reckon(self, position: Position) -> Reckoning:
        """Count by offsets what was read, and by messages what waits."""
        reckoned = super().reckon(position)
        if not reckoned.queued:
            return reckoned
        self.topic.settle()
        done = self._read(position)[1]
        bounds = self.topic.bounds(**READS)
        starts = {partition: max(low, done.get(partition, low)) for partition, (low, _) in bounds.items()}
        return reckoned._replace(queued=self.topic.count(starts, {partition: end for partition, (_, end) in bounds.items()}))

    def drained(self, position: Position) -> bool:
        """Whether nothing waits, and no transaction is open, whose messages would come."""
        self.vouch(position)
        nothing_waits = super().reckon(position).queued == 0
        return nothing_waits and self.topic.ends(**READS) == self.topic.ends(**UNCOMMITTED)

    def reading(self, spark: SparkView, started_us: int) -> Reading:
        reading = super().reading(spark, started_us)
        return replace(reading, columns=(*reading.columns, f"coalesce({_number(ROOT_HEADER)}, 0) AS root"))


def _by_number(places: Mapping[str, int]) -> dict[int, int]:
    return {int(partition): place for partition, place in places.items()}


def _header(name: str) -> str:
    """Return SQL for the bytes of a message's first header with a name, or null."""
    return f"get(filter(headers, header -> header.key = {_text(name)}), 0).value"


def _number(name: str) -> str:
    """Return SQL for the number in a header, or null."""
    return f"TRY_CAST(CAST({_header(name)} AS STRING) AS BIGINT)"


def _text(value: str) -> str:
    """Return a text as a literal of Spark's SQL."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _bind(source: Source[Any], uri: Uri, options: Options, context: SourceContext) -> KafkaSource:
    return KafkaSource(source, uri, options)


KAFKA = SourceConnector(
    "kafka",
    "HOST:PORT/TOPIC",
    "the messages of a topic, whose values are JSON events, or what a schema registry says",
    (
        Option("start", "where a new run begins: `earliest` (the default) or `latest`", one_of("earliest", "latest")),
        Option("key", "the field that the message's key fills", FIELD),
        Option("header.NAME", "the field that the header of a name fills", FIELD),
        *ADMISSION,
        *OWN_OF_REGISTRY,
        OWN,
    ),
    jars=(JARS,),
    bind=_bind,
)
