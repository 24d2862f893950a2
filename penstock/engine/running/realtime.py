"""Running in Spark's real-time mode: events pass one by one from Kafka to Kafka, in Spark's code alone.

There are no micro-batches to commit, so there is no ledger: results are delivered at least once, and counts are computed from
offsets. Each sink is a query of its own, and so are the dead letters of each source.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pyspark
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType, StructField, StructType

from penstock.app.application import App
from penstock.app.loader import AppReference, reference
from penstock.app.stream import Sink, Stream
from penstock.connectors.checkpoint import Position, clear_drafts, committed_offsets, last_commit
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.sink import KafkaSink
from penstock.connectors.kafka.source import KafkaSource
from penstock.connectors.kafka.topic import ID_HEADER, Topic, name_of
from penstock.engine.query.native import conform, encoded_columns, in_json, joined_texts
from penstock.engine.running.binding import Binding
from penstock.engine.running.execution import RunResult, execute
from penstock.engine.running.live import Live
from penstock.engine.running.options import RunOptions
from penstock.engine.running.watch import Watch
from penstock.engine.session.versions import installed
from penstock.errors import ConfigurationError, PenstockError, SourceError
from penstock.kinds.fields import raw_fields
from penstock.runs.letters import topic_of_letters
from penstock.runs.progress import Noted
from penstock.runs.report import EventCounts, Report
from penstock.runtime.codec import Codec
from penstock.runtime.modes import refuse_in_real_time
from penstock.storage import durable

LEAST_S = 5.0
"""The shortest real-time batch that Spark allows, in seconds."""

CORRUPT = "_corrupt"
EARLIEST = -2
"""Stands for a partition's oldest message in options of Spark's connector."""
MARKS = 10_000
"""The most offsets in which only marks of transactions are looked for."""
LONGEST = 100_000
"""The most characters of a message in a dead letter, which must not be too large for its topic, however it is escaped."""


def run_real_time(app: App, options: RunOptions, *, application: AppReference | None = None) -> RunResult:
    """Run an application of query-dialect elements in real-time mode, until its time is up or it is interrupted.

    Raises:
        ConfigurationError: real-time mode does not support an element, source or sink, or there are too few cores.
    """
    refuse_in_real_time(app.topology())
    if options.checkpoint_every < LEAST_S:
        raise ConfigurationError(f"--checkpoint-every must be {LEAST_S:g} s at least.")
    if options.duration is not None and options.duration <= options.checkpoint_every:
        raise ConfigurationError(
            f"--duration is {options.duration:g} s and --checkpoint-every {options.checkpoint_every:g} s: in real-time mode "
            "only what came before a checkpoint counts as read, so each such run would begin where this one did. Give a "
            "longer --duration, or a shorter --checkpoint-every."
        )
    binding = Binding(app, options, application or reference(app), "real time")
    try:
        if binding.wanted != binding.layout:
            raise ConfigurationError(
                f"{binding.recording.directory.name} was begun with other partitions or groups, and a run in real-time mode "
                "is not moved: leave out --partitions and --group, or start afresh with --fresh."
            )
        way = RealTime(binding)
    except ConfigurationError:
        binding.recording.release()
        raise
    result = execute(binding, way, Live(quiet=options.quiet))
    return RealTimeResult(**vars(result), _way=way)


@dataclass(frozen=True)
class RealTimeResult(RunResult):
    """The result of a run in real time: its report. Events are in Kafka topics only."""

    _way: "RealTime"

    def output(self, sink: str) -> list[Any]:
        """Not available: messages of a run in real time do not contain which run sent them.

        Raises:
            ConfigurationError: always; the text names the topic to read.
        """
        raise ConfigurationError(
            f"Sink {sink} is {self._sinks[sink].uri}, and messages that are sent in real time do not say which run sent "
            "them: read the topic itself."
        )

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        """The events that could not be decoded, without the duplicates of repeated deliveries."""
        return [json.loads(letter) for letter in self._way.letters()]


class RealTime:
    """Runs every sink of an application, and the dead letters of every source, as a query in real-time mode."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._topology, self._options, self._recording = binding.topology, binding.options, binding.recording
        self.names = {
            *(f"dead-letters-{source.name}" for source in self._topology.sources),
            *(f"sink-{sink.name}" for sink in self._topology.sinks),
        }
        self._empty: dict[tuple[str, int, int, int], bool] = {}
        """Whether a topic's partition holds no message between two offsets."""
        _refuse_old()
        for name, bound in binding.sources.items():
            if not isinstance(bound, KafkaSource):
                raise ConfigurationError(f"Source {name} is {bound.uri}; real-time mode reads Kafka only.")
            if bound.frames is not None:
                raise ConfigurationError(
                    f"Source {name} has a schema registry; real-time mode reads JSON only, in Spark's own code."
                )
        by_topic: dict[str, str] = {}
        for bound in self._kafka():
            other = by_topic.setdefault(bound.place.topic, bound.source.name)
            if other != bound.source.name:
                raise ConfigurationError(
                    f"Sources {other} and {bound.source.name} both read a topic called {bound.place.topic}, and real-time "
                    "mode counts by topics: read it by one source, or leave --real-time out."
                )
        for sink in self._topology.sinks:
            bound_sink = binding.sinks[sink.name]
            if not isinstance(bound_sink, KafkaSink):
                raise ConfigurationError(f"Sink {sink.name} is {bound_sink.uri}; real-time mode writes to Kafka only.")
            if bound_sink.framed:
                raise ConfigurationError(
                    f"Sink {sink.name} has a schema registry; real-time mode writes JSON only, in Spark's own code."
                )

    def stream(self, spark: SparkSession, watch: Watch) -> Report:
        """Run until the watch ends the run, and return the report."""
        self._binding.recording.fix_state()
        self._check_slots(spark)
        with self._recording.held():
            for name in self.names:
                clear_drafts(self._recording.checkpoint(name))
        self._begin()
        queries: dict[str, StreamingQuery] = {}
        with watch.signals():
            try:
                for name, frame, place in self._parts(spark):
                    queries[name] = self._start_writing(name, frame, place)
                watch.until_over(
                    list(queries.values()), self._is_idle, lambda: True, lambda: None, self._vouch, lambda failed: False
                )
            except PySparkException as error:
                watch.fail(error)
            finally:
                for query in queries.values():
                    query.stop()
        try:
            return self._report()
        except PenstockError:
            if watch.failure is not None:  # the first failure has caused the second, or matters more
                raise watch.failure from None
            raise

    def _begin(self) -> None:
        """Record at the first start where the run begins to read, so that all its queries begin there, whenever each does.

        Raises:
            ConfigurationError: the run was begun with other sinks.
            SourceError: messages that it has not read are deleted.
        """
        recording, sinks = self._recording, {sink.name: self._binding.sinks[sink.name].uri for sink in self._topology.sinks}
        before = recording.manifest.places
        if before and before.keys() != sinks.keys():
            raise ConfigurationError(
                f"The sinks were {', '.join(before)} when this run began, and are now {', '.join(sinks)}. In real-time mode "
                "each is a query of its own, which would begin anew: use the same, or start afresh with --fresh, or under "
                f"another --name than {recording.directory.name}."
            )
        recording.places_of(sinks, {})
        for bound in self._kafka():
            bounds, beginnings = bound.topic.bounds(), recording.manifest.beginnings
            if bound.source.name not in beginnings:
                first = {str(partition): end if bound.starts_late else low for partition, (low, end) in bounds.items()}
                recording.keep(beginnings={**beginnings, bound.source.name: first})
            for reached in self._reached(bound):
                self._check_kept(bound, reached, bounds)

    def _reached(self, bound: KafkaSource) -> Iterator[dict[str, int]]:
        """Yield how far each query has read a topic, by partition, as far as it is known to read it."""
        topic, of_letters = bound.place.topic, f"dead-letters-{bound.source.name}"
        for name in self.names:
            reached = self._committed(name).get(topic) or self._begun(name).get(topic)
            if reached or name == of_letters:
                yield reached or self._recording.manifest.beginnings[bound.source.name]

    @staticmethod
    def _check_kept(bound: KafkaSource, reached: Mapping[str, int], bounds: Mapping[int, tuple[int, int]]) -> None:
        """Check that a topic still holds what is to be read next: Spark's connector would fail, or ask for it for ever."""
        for partition, (low, _) in bounds.items():
            if reached.get(str(partition), low) < low:
                raise SourceError(
                    f"Source {bound.source.name}: {bound.uri} has deleted messages of partition {partition} that the run had "
                    f"not read (offsets {reached[str(partition)]} to {low - 1}; some may be marks of transactions). They are "
                    "lost. To go on with what the topic still holds, start afresh with --fresh, or under another --name; to "
                    "lose none, raise the topic's retention.ms, or run more often."
                )

    def _vouch(self) -> None:
        """Check that this driver still has the run, and that its topics are those that it began to read."""
        self._recording.refuse_taken_over()
        for bound in self._kafka():
            bound.vouch(Position(self._recording.checkpoint(f"dead-letters-{bound.source.name}"), 0, None))

    def _check_slots(self, spark: SparkSession) -> None:
        """Check that the cluster has a slot for each task, because in real-time mode all tasks of all queries run at once."""
        partitions = sum(len(bound.topic.partitions) for bound in self._kafka())
        stateful = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
        needed = len(self._topology.sinks) * (partitions + stateful) + partitions
        present = spark.sparkContext.defaultParallelism
        if needed > present:
            raise ConfigurationError(
                f"Real-time mode runs all tasks at once, up to {needed} here, and {self._options.master} has {present} slots: "
                f"use --master local[{needed}] or more workers, fewer --partitions, or topics of fewer partitions."
            )

    def _parts(self, spark: SparkSession) -> Iterator[tuple[str, DataFrame, KafkaPlace]]:
        """Yield the name of each query, the messages that it writes, and their topic."""
        frames: dict[Stream[Any], DataFrame] = {}
        for bound in self._kafka():
            good, bad = self._decoded(spark, bound)
            frames[bound.source] = good
            yield f"dead-letters-{bound.source.name}", bad, dead_letters_of(bound.place)
        for element in self._topology.in_order:
            output = element.body(*(frames[stream] for stream in element.inputs))
            frames[element.emits[0]] = conform(element.name, output, element.emits[0])
        for sink in self._topology.sinks:
            bound_sink = self._binding.sinks[sink.name]
            assert isinstance(bound_sink, KafkaSink)
            yield f"sink-{sink.name}", messages(frames[sink.stream], sink, bound_sink.headers), bound_sink.topic_place

    def _decoded(self, spark: SparkSession, bound: KafkaSource) -> tuple[DataFrame, DataFrame]:
        """Return a source's decoded events, and dead-letter messages for those that cannot be decoded."""
        codec = Codec(bound.source.event_type)
        schema = from_arrow_schema(codec.schema, prefer_timestamp_ntz=True)
        nullable = [StructField(codec.names[field.name], field.dataType) for field in schema]
        read = StructType([*nullable, StructField(CORRUPT, StringType())])
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        rows = spark.readStream.format("kafka").options(**{**bound.options(), **self._beginning(bound)}).load()
        # An event is good if it is valid JSON and each required field has a value of its type; any other is a dead letter.
        text = F.coalesce(F.col("value").cast("string"), F.lit(""))
        rows = rows.withColumn("event", F.from_json(text, read, options))
        # Of several values in one message, from_json reads the first.
        alone = F.coalesce(F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))), F.lit(0)) == 1
        fits: Column = F.col("event").isNotNull() & F.col(f"event.{CORRUPT}").isNull() & alone
        columns = []
        beside = bound.beside()
        for field in msgspec.structs.fields(bound.source.event_type):
            column = F.col(f"event.`{codec.names[field.name]}`")
            if field.name in beside:
                text_beside = F.expr(beside[field.name]).cast("string")
                value_beside = text_beside.try_cast(schema[field.name].dataType)
                fits = fits & (text_beside.isNull() | value_beside.isNotNull())
                column = F.coalesce(value_beside, column)
            if field.required:
                fits = fits & (column.isNotNull() | F.lit(schema[field.name].nullable))
            elif field.default is not msgspec.NODEFAULT and field.default is not None:
                column = F.coalesce(column, F.lit(field.default))
            columns.append(column.alias(field.name))
        fits = F.coalesce(fits, F.lit(False))
        own = F.lit(self._recording.manifest.run)
        place = F.concat_ws("/", own, "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
        kind = bound.source.event_type.__name__
        error = F.concat(
            F.when(alone, F.lit(f"is no {kind}, in type or for want of a field")).otherwise(
                F.lit(f"is no single {kind} in JSON")
            ),
            F.when(F.length(text) > LONGEST, F.concat(F.lit("; cut, of "), F.length(text), F.lit(" characters"))).otherwise(""),
        )
        raw = F.left(text, F.lit(LONGEST))
        letter = F.to_json(F.struct(F.lit(bound.source.name).alias("stream"), raw.alias("raw"), error.alias("error")))
        header = F.struct(F.lit(ID_HEADER).alias("key"), place.cast("binary").alias("value"))
        bad = rows.where(~fits).select(letter.alias("value"), F.array(header).alias("headers"))
        return rows.where(fits).select(*columns), bad

    def _beginning(self, bound: KafkaSource) -> dict[str, str]:
        """Return the option of Spark's connector that says where the run began to read; later partitions are read whole."""
        first = self._recording.manifest.beginnings[bound.source.name]
        offsets = {str(partition): first.get(str(partition), EARLIEST) for partition in bound.topic.partitions}
        return {"startingOffsets": json.dumps({bound.place.topic: offsets})}

    def _start_writing(self, name: str, frame: DataFrame, place: KafkaPlace) -> StreamingQuery:
        Topic(place, create=True, needs=("read", "write"))
        writer = frame.writeStream.queryName(name).format("kafka").outputMode("update")
        writer = writer.options(**place.for_connector(), topic=place.topic, includeHeaders="true")
        writer = writer.option("checkpointLocation", str(self._recording.checkpoint(name)))
        length = f"{round(self._options.checkpoint_every * 1000)} milliseconds"
        self._recording.refuse_taken_over()
        try:
            query: StreamingQuery = writer.trigger(realTime=length).start()  # type: ignore[call-overload] # not in the stubs
        except AnalysisException as error:
            if installed().real_time_state or not (error.getCondition() or "").startswith("STREAMING_REAL_TIME_MODE"):
                raise
            raise ConfigurationError(
                f"The query {name} keeps state, or shuffles, which real-time mode does from Spark 4.3 on, and this is "
                f"{installed().version}: pip install 'pyspark>=4.3', or leave --real-time out."
            ) from error
        return query

    def _kafka(self) -> list[KafkaSource]:
        return [bound for bound in self._binding.sources.values() if isinstance(bound, KafkaSource)]

    # --- counts ---------------------------------------------------------------------------------

    def _committed(self, name: str) -> dict[str, dict[str, int]]:
        """Return the offsets that a query has committed, by topic and partition."""
        checkpoint = self._recording.checkpoint(name)
        last = last_commit(checkpoint)
        offsets: dict[str, dict[str, int]] = {}
        for offset in committed_offsets(checkpoint, last[0]) if last else ():
            offsets |= offset or {}
        return offsets

    def noted(self, query: str, batch: int) -> Noted:
        """Return nothing: Spark counts the rows itself, and its own sink is part of the query's work."""
        return Noted()

    def _begun(self, name: str) -> dict[str, dict[str, int]]:
        """Return the offsets at which a query began to read, by topic and partition."""
        checkpoint = self._recording.checkpoint(name)
        offsets: dict[str, dict[str, int]] = {}
        for number in durable.names(checkpoint / "sources"):
            offsets |= Position(checkpoint, int(number), None).first_offsets()
        return offsets

    def _is_idle(self) -> bool:
        return all(map(self._begun, self.names)) and all(span.done == span.end for span in self._spans().values())

    def _spans(self) -> dict[tuple[str, str], "_Span"]:
        """Return the offsets that have been read, by topic and partition."""
        begun, done = list(map(self._begun, self.names)), list(map(self._committed, self.names))
        spans = {}
        for bound in self._kafka():
            topic = bound.place.topic
            # Several queries may read a topic: an event counts as read once all of them have committed it.
            firsts = [each[topic] for each in begun if topic in each]
            lasts = [each[topic] for each in done if topic in each]
            beginning = self._recording.manifest.beginnings[bound.source.name]
            for partition, (low, end) in bound.topic.bounds().items():
                first = beginning.get(str(partition), low)
                done_to = (
                    [each.get(str(partition), first) for each in lasts] if all(begun) and len(lasts) == len(firsts) else []
                )
                read_to = max(first, min(done_to, default=first))
                if read_to < end and self._holds_nothing(bound.topic, partition, read_to, end):
                    read_to = end
                spans[topic, str(partition)] = _Span(first, read_to, end)
        return spans

    def _holds_nothing(self, topic: Topic, partition: int, first: int, end: int) -> bool:
        """Whether a partition has only marks of transactions between two offsets: Spark commits the end of what it has read."""
        asked = (topic.place.topic, partition, first, end)
        if asked not in self._empty:
            self._empty[asked] = end - first <= MARKS and not any(topic.read({partition: first}, {partition: end}))
        return self._empty[asked]

    def letters(self) -> list[bytes]:
        """Return the run's dead letters of committed events, without the duplicates of repeated deliveries."""
        spans, by_name, own = self._spans(), dict[str, bytes](), f"{self._recording.manifest.run}/"
        for topic in (Topic(dead_letters_of(bound.place)) for bound in self._kafka()):
            lows, ends = ({partition: place[side] for partition, place in topic.bounds().items()} for side in (0, 1))
            by_name |= {name_of(message) or "": message.value() or b"" for part in topic.read(lows, ends) for message in part}
        places = {name.removeprefix(own): letter for name, letter in by_name.items() if name.startswith(own)}
        return [letter for place, letter in places.items() if _is_within(place, spans)]

    def _report(self) -> Report:
        spans = self._spans().values()
        accepted, queued = sum(span.end - span.first for span in spans), sum(span.end - span.done for span in spans)
        dead = len(self.letters())
        return Report(
            application=self._topology.application,
            engine=f"spark {pyspark.__version__}, real-time mode",
            master=self._options.master,
            delivery="at least once",
            counts=EventCounts(accepted, accepted - queued - dead, dead, queued),
            dead_letter_topics=[dead_letters_of(bound.place).topic for bound in self._kafka()],
            units={
                "counts": "measured: messages in the sources' topics, by offset (marks of transactions between them included), "
                "as of the last checkpoint"
            },
        )


def _refuse_old() -> None:
    """Check that the installed Spark has a real-time mode.

    Raises:
        ConfigurationError: it has none; the text names a version that has.
    """
    if not installed().real_time:
        raise ConfigurationError(
            f"Real-time mode needs Spark 4.2 or newer, and this is {installed().version}: pip install 'pyspark>=4.2', or "
            "leave --real-time out."
        )


def dead_letters_of(place: KafkaPlace) -> KafkaPlace:
    """Return the topic for messages of a source's topic that cannot be decoded."""
    return KafkaPlace(place.brokers, topic_of_letters(place.topic), place.options)


class _Span(NamedTuple):
    """Offsets of a partition: from where all its queries read, up to where all have committed, and the partition's end."""

    first: int
    done: int
    end: int


def _is_within(name: str, spans: Mapping[tuple[str, str], _Span]) -> bool:
    """Whether a dead letter belongs to a committed event. Its name is the event's place, as TOPIC/PARTITION/OFFSET."""
    place, _, offset = name.rpartition("/")
    topic, _, partition = place.rpartition("/")
    span = spans.get((topic, partition))
    return span is not None and span.first <= int(offset) < span.done


def messages(frame: DataFrame, sink: Sink, headers: dict[str, str]) -> DataFrame:
    """Return a stream as Kafka messages, with the keys and headers of a sink."""
    event_type, fields = sink.stream.event_type, (*sink.key, *headers.values())
    line, texts = in_json(encoded_columns(event_type), event_type, fields)
    raw, columns = raw_fields(event_type), [line.alias("value")]

    def alone(field: str, text: Column) -> Column:
        """Return the bytes of a field's text, decoded from Base64 if the field is of type `bytes`."""
        return F.unbase64(text) if field in raw else text.cast("binary")

    if sink.key:  # a key of several fields is a text, not of any field's type
        parts = texts[: len(sink.key)]
        key = parts[0] if len(parts) == 1 else joined_texts(parts)
        columns.append(alone("/".join(sink.key), key).alias("key"))
    if headers:
        pairs = [
            F.struct(F.lit(header).alias("key"), alone(field, text).alias("value"))
            for (header, field), text in zip(headers.items(), texts[len(sink.key) :], strict=True)
        ]
        columns.append(F.filter(F.array(*pairs), lambda pair: pair["value"].isNotNull()).alias("headers"))
    return frame.select(*columns)
