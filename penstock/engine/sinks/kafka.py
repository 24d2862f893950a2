"""A Kafka topic as a sink, written by Spark's own connector."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import KafkaError, Message, Producer
from pyspark.sql import SparkSession

from penstock.adapter.kafka import ID_HEADER, PRODUCER, SETTLED_S, Topic, name_of
from penstock.adapter.streams import text_of
from penstock.app.stream import Sink
from penstock.app.uri import KafkaPlace, Uri
from penstock.engine.kafka import BORN_HEADER, connector_options, header_fields
from penstock.errors import ConfigurationError, SinkError, SourceError
from penstock.runtime.codec import Codec
from penstock.runtime.staging import BORN, SinkFiles
from penstock.runtime.tally import StagedFile

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class _Outgoing(NamedTuple):
    key: str | None
    headers: list[tuple[str, str]]
    value: bytes


class KafkaSink:
    """A topic. Values are JSON, keys those of the sink; headers hold an id, in a hop the birth, and the fields that
    the URI names.

    Kafka takes no part in the ledger's commit, so where the topic ended before a batch is noted: when
    the batch is delivered again, what the topic holds of it already is left out.

    Parameters
    ----------
    notes: the directory in which that is noted.
    """

    def __init__(self, sink: Sink, uri: Uri, notes: Path, files: SinkFiles) -> None:
        self.files, self.place = files, KafkaPlace.of(uri)
        self.uri = str(self.place)
        self.headers = header_fields(uri, sink.stream.event_type)
        own = {ID_HEADER, BORN_HEADER}.intersection(self.headers)
        if own:
            raise ConfigurationError(f"Sink {sink.name}: the header {min(own)} is Penstock's own; choose another name.")
        self._codec, self._key = Codec(sink.stream.event_type), sink.key
        self._notes, self._run = notes, ""

    def claim(self, run: str, previous: str | None) -> None:
        """See `BoundSink`. A topic may be shared; what a discarded run has sent stays in it."""
        self._run = run
        try:
            self._topic = Topic(self.place, create=True)
        except SourceError as error:
            raise SinkError(f"Sink {self.files.name}: {error}") from error

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        """See `BoundSink`."""
        staged = [Path(file.staged) for file in files if Path(file.staged).exists()]
        prefix = f"{self._run}/{group}/{batch}/"
        try:
            present = self._present(group, batch, prefix) if staged else set()
        except SourceError as error:
            raise SinkError(f"Sink {self.files.name}: {error}") from error
        numbered = ((f"{prefix}{number}", message) for number, message in enumerate(self._messages(staged)))
        missing = [
            message._replace(headers=[(ID_HEADER, name), *message.headers])
            for name, message in numbered
            if name not in present
        ]
        if missing:
            self._send(missing)
        for path in staged:
            path.unlink()

    def read(self) -> list[Any]:
        """See `BoundSink`; what other runs have sent is left out."""
        bounds = self._topic.bounds()
        starts, ends = ({partition: place[side] for partition, place in bounds.items()} for side in (0, 1))
        ours = f"{self._run}/"
        return [
            self._codec.decode_json(message.value() or b"")
            for messages in self._topic.read(starts, ends)
            for message in messages
            if (name_of(message) or "").startswith(ours)
        ]

    def _messages(self, staged: list[Path]) -> Iterator[_Outgoing]:
        for path in staged:
            if not self.files.hop:
                yield from map(self._message, path.read_bytes().splitlines())
                continue
            for rows in pq.ParquetFile(path).iter_batches():
                events = self._codec.from_columns(rows.select(self._codec.schema.names))
                for event, born in zip(events, rows.column(BORN).to_pylist(), strict=True):
                    yield _Outgoing(None, [(BORN_HEADER, str(born))], self._codec.encode_json(event))

    def _message(self, value: bytes) -> _Outgoing:
        if not self._key and not self.headers:
            return _Outgoing(None, [], value)
        fields = {name: text_of(field) for name, field in msgspec.json.decode(value).items() if field is not None}
        key = "/".join(fields[name] for name in self._key if name in fields) if self._key else None
        headers = [(header, fields[name]) for header, name in self.headers.items() if name in fields]
        return _Outgoing(key, headers, value)

    def _send(self, messages: list[_Outgoing]) -> None:
        if self.files.hop:
            self._send_hop(messages)
        else:
            self._send_by_spark(messages)

    def _send_hop(self, messages: list[_Outgoing]) -> None:
        """From here, by one idempotent producer: a task that Spark repeats would send some twice, and the next group
        would count them twice."""
        failures: list[str] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error.str())

        producer = Producer({**self._topic.settings, **PRODUCER, "message.timeout.ms": 120_000, "log_level": 0})
        for message in messages:
            while True:
                try:
                    producer.produce(self.place.topic, message.value, headers=[*message.headers], on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()
        if failures:
            raise SinkError(f"Sink {self.files.name}: {self.place} does not take messages ({failures[0]}).")

    def _send_by_spark(self, messages: list[_Outgoing]) -> None:
        keys, headers, values = zip(*messages, strict=True)
        pairs = [[{"key": name, "value": text.encode()} for name, text in each] for each in headers]
        columns = {
            "key": pa.array(keys, pa.string()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(pairs, HEADERS),
        }
        frame = SparkSession.active().createDataFrame(pa.table(columns)).coalesce(1)  # one task, so that order is kept
        writer = frame.select("key", "value", "headers").write.format("kafka")
        writer.options(**connector_options(self.place), topic=self.place.topic, includeHeaders="true").save()

    def _present(self, group: str, batch: int, prefix: str) -> set[str]:
        """The ids of the batch's events that an earlier attempt has sent."""
        note = self._notes / f"kafka-{self.files.name}-{group}.json"
        ends = {partition: end for partition, (_, end) in self._topic.bounds().items()}
        noted = json.loads(note.read_text()) if note.exists() else None
        if noted is None or noted["batch"] != batch:
            draft = note.with_suffix(".draft")
            draft.write_text(json.dumps({"batch": batch, "ends": ends}))
            draft.replace(note)
            return set()
        time.sleep(SETTLED_S)
        before = {int(partition): end for partition, end in noted["ends"].items()}
        ends = {partition: end for partition, (_, end) in self._topic.bounds().items()}
        names = (name_of(message) for messages in self._topic.read(before, ends) for message in messages)
        return {name for name in names if name is not None and name.startswith(prefix)}
