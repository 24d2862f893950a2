"""The sink for Kafka topics."""

import json
import time
from abc import abstractmethod
from base64 import b64decode
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from penstock.app.stream import Sink, Stream
from penstock.connectors.declaration import FIELD, Option, Options, SinkConnector, SinkContext, one_of
from penstock.connectors.kafka.courier import Courier, Outgoing, Transactions
from penstock.connectors.kafka.place import (
    BORN_HEADER,
    JARS,
    OWN,
    OWN_OF_REGISTRY,
    ROOT_HEADER,
    KafkaPlace,
    has_registry,
    header_fields,
    subject_of,
)
from penstock.connectors.kafka.topic import COMMITTED, ID_HEADER, SETTLED_S, UNCOMMITTED, Topic, name_of
from penstock.connectors.sink import BoundSink, present
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError, SinkError, SourceError
from penstock.kinds.fields import raw_fields
from penstock.kinds.text import joined
from penstock.runtime.codec import Codec
from penstock.runtime.output import BORN, ROOT, SinkFiles, StagedFile, divided
from penstock.schemas.schema import FORMATS
from penstock.storage import durable
from penstock.storage.alone import alone
from penstock.storage.tables import batches_in

AROUND = 2_000
"""The most bytes of a message besides its value, key and headers: the overhead of the producer and of the broker's batch."""


class TopicSink(BoundSink):
    """A sink that sends staged files to a topic, by one producer in the driver, so that order is kept.

    Kafka takes no part in the ledger's commit. So the sink notes the topic's identity and end offsets before it sends a batch.
    When the batch is delivered again, it reads the topic from there to the very end, also beyond open transactions of others,
    and sends only the messages that are missing. A transaction records its batch's number, so nothing need be read then.

    Args:
        notes: the directory for these notes.
        transactions: whether each batch is sent as a transaction.
    """

    def __init__(
        self, stream: Stream[Any], place: KafkaPlace, notes: Path, files: SinkFiles, *, transactions: bool = False
    ) -> None:
        self.files, self.topic_place, self.uri = files, place, str(place)
        self._transactions = transactions
        self._codec = Codec(stream.event_type)
        self._notes, self._run = notes, ""

    def claim(self, run: str, discarded: Collection[str]) -> None:
        """Open the topic, and create it if there is none. Topics may be shared, and messages of discarded runs stay in them."""
        self._run = run
        try:
            # The right to read is needed to find the messages of a micro-batch that were sent before a crash.
            self._topic = Topic(self.topic_place, create=True, needs=("read", "write"))
        except SourceError as error:
            raise SinkError(f"Sink {self.files.name}: {error}") from error
        self.files = msgspec.structs.replace(self.files, largest=self._topic.largest() - AROUND)
        lineage, label = [run, *discarded][-1], self.files.label  # a stream between groups may have the name of a sink
        own = Transactions(self._topic, label, run, lineage) if self._transactions else None
        self._courier = own or Courier(self._topic, self.files.name)

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        staged = present(files)
        if not staged:
            return
        with self._explained():
            self._courier.prepare(group)
            reached = self._courier.reached(group)
            if reached is None and self._note(group) is None:  # the group has sent nothing yet
                self._courier.begin(group)
                reached = self._courier.reached(group)
            if reached is None:
                sent = self._present(group, batch)
            elif reached < batch:  # no transaction has committed any of the batch
                self._begin(group, batch, self._note(group))
                sent = set()
        if reached is None or reached < batch:
            messages = (message for path in staged for message in self.messages(path))
            numbered = ((f"{self._prefix(group)}{batch}/{number}", message) for number, message in enumerate(messages))
            self._courier.send(group, batch, ((name, message) for name, message in numbered if name not in sent))
        for path in staged:
            path.unlink(missing_ok=True)

    def reached(self, group: str) -> int | None:
        note = self._note(group)
        with self._explained():
            if note is not None and note.get("topic") not in (None, self._topic.identity()):
                return -1
            self._courier.prepare(group)
            reached = self._courier.reached(group)
            if reached is not None or note is None:
                return reached
            names, more = self._since(note, self._prefix(group))
        newest = max((int(name.rpartition("/")[0].rpartition("/")[2]) for name in names), default=None)
        if newest is None and not more:
            return int(note["batch"]) - 1
        return newest  # None if there are only messages of others: compaction may have removed ours

    def recall(self, run: str) -> None:
        self._run = run
        try:
            self._topic = Topic(self.topic_place, needs=("read",))
        except SourceError as error:
            raise SinkError(f"Sink {self.files.name}: {error}") from error

    def read(self) -> list[Any]:
        """Return the events that this run has sent, without those of other runs."""
        if self._transactions:
            self._topic.settle()
        bounds = self._topic.bounds()
        starts, ends = ({partition: place[side] for partition, place in bounds.items()} for side in (0, 1))
        prefix = f"{self._run}/"
        return [
            self.event(message.value() or b"")
            for messages in self._topic.read(starts, ends)
            for message in messages
            if (name_of(message) or "").startswith(prefix)
        ]

    def event(self, message: bytes) -> Any:
        """Decode the event in a message's value."""
        return self._codec.decode_json(message)

    @abstractmethod
    def messages(self, path: Path) -> Iterator[Outgoing]:
        """Yield the messages for the events in a staged file."""

    def _present(self, group: str, batch: int) -> set[str]:
        """Return the ids of the batch's events that an earlier attempt has sent; without one, note that the batch begins."""
        note = self._note(group)
        if note is None or note["batch"] != batch:
            self._begin(group, batch, note)
            return set()
        time.sleep(SETTLED_S)
        names, _ = self._since(note, f"{self._prefix(group)}{batch}/")
        return names

    def _begin(self, group: str, batch: int, note: dict[str, Any] | None) -> None:
        """Note the topic's identity and end offsets before a batch is sent."""
        topic = self._topic.identity()
        if note is not None and note.get("topic", topic) != topic:
            raise SinkError(
                f"Sink {self.files.name}: {self.uri} is another topic than the one that the run has sent to, though of the "
                "same name: put that back, or start afresh with --fresh."
            )
        ends = self._topic.ends(**UNCOMMITTED)
        with alone(self._noted(group)):
            now = self._note(group)
            followed = now is not None and now.get("run") == self._run and now["batch"] > batch
            if now != note or followed:  # a driver that was paused would hide what the one that followed it is sending
                raise SinkError(
                    f"Sink {self.files.name}: another driver has sent to {self.uri} meanwhile, so this one sends nothing more. "
                    "Nothing is lost: the other goes on."
                )
            durable.write(self._noted(group), json.dumps({"batch": batch, "ends": ends, "topic": topic, "run": self._run}))

    def _since(self, note: dict[str, Any], prefix: str) -> tuple[set[str], bool]:
        """Return the ids with a prefix among the messages since a note, and whether there are any messages since.

        With transactions, only committed messages count, and these cannot be read beyond the first open transaction.

        Raises:
            SinkError: another program has a transaction open.
        """
        before = {int(partition): end for partition, end in note["ends"].items()}
        view = COMMITTED if self._transactions else UNCOMMITTED
        if self._transactions:
            self._topic.settle()
            if self._topic.ends(**COMMITTED) != self._topic.ends(**UNCOMMITTED):
                raise SinkError(
                    f"Sink {self.files.name}: another program has a transaction open in {self.uri}, and what was sent before "
                    "it cannot be seen until it ends; run again then."
                )
        ends = self._topic.ends(**view)
        names = (name_of(message) for messages in self._topic.read(before, ends, **view) for message in messages)
        more = any(end > before.get(partition, 0) for partition, end in ends.items())
        return {name for name in names if name is not None and name.startswith(prefix)}, more

    def _prefix(self, group: str) -> str:
        """Return the prefix of the ids of a group's events; an id ends in the batch, and the event's index in the batch."""
        return f"{self._run}/{group}/"

    def _noted(self, group: str) -> Path:
        return self._notes / f"kafka~{self.files.label.replace('/', '~')}~{group}.json"  # names hold no ~

    def _note(self, group: str) -> dict[str, Any] | None:
        """Return the note of the last batch that the group began to send: batch, topic and end offsets; None for no note."""
        with suppress(FileNotFoundError):
            note: dict[str, Any] = json.loads(durable.read(self._noted(group)))
            return note
        return None

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except SourceError as error:
            raise SinkError(f"Sink {self.files.name}: {error}") from error


class KafkaSink(TopicSink):
    """A topic that an application names as a sink. Values are JSON, or encoded by a schema of a registry. Keys are the sink's
    key. Headers hold an id, and the fields that the URI names.
    """

    def __init__(self, sink: Sink, uri: Uri, options: Options, context: SinkContext) -> None:
        self.headers = header_fields(uri, sink.stream.event_type)
        own = {ID_HEADER, BORN_HEADER}.intersection(self.headers)
        if own:
            raise ConfigurationError(f"Sink {sink.name}: the header {min(own)} is Penstock's own; choose another name.")
        self._key, self._raw = sink.key, raw_fields(sink.stream.event_type)
        files = SinkFiles(sink.name, "jsonl", str(context.output), beside=(*sink.key, *self.headers.values()))
        transactions = options.get("transactions") == "yes"
        self._uri = uri if has_registry(uri) else None
        super().__init__(sink.stream, KafkaPlace.of(uri), context.output.parent, files, transactions=transactions)

    @property
    def framed(self) -> bool:
        """Whether values are encoded by a schema of a registry."""
        return self._uri is not None

    def claim(self, run: str, discarded: Collection[str]) -> None:
        super().claim(run, discarded)
        if self._uri is not None:
            self._agree_on_schema(self._uri)

    def _agree_on_schema(self, uri: Uri) -> None:
        from penstock.connectors.kafka.schema_registry import Registry, RegistryFrames, frame_of  # needs an extra

        registry = Registry.of(uri)
        own = None if uri.options.get("schema") == "latest" else FORMATS[uri.options.get("schema", "avro")]
        try:
            frame = frame_of(registry, subject_of(uri), self._codec.event_type, own)
        except SourceError as error:
            raise SinkError(f"Sink {self.files.name}: {error}") from error
        self.files = msgspec.structs.replace(self.files, frame=frame)
        self._frames = RegistryFrames(registry)

    def event(self, message: bytes) -> Any:
        if self.files.frame is None:
            return super().event(message)
        self._frames.prepare([message])
        return self._frames.read(message, lambda values: self._codec.from_values(values, {}))

    def messages(self, path: Path) -> Iterator[Outgoing]:
        lines = path.read_bytes().splitlines()
        decode = bytes if self.files.frame is None else b64decode
        if not self.files.beside:
            yield from (Outgoing(None, [], decode(line)) for line in lines)
            return
        for texts, value in zip(*divided(lines), strict=True):
            parts, fields = texts[: len(self._key)], texts[len(self._key) :]
            # A key of several fields is a joined text, even if some of them are bytes.
            key = joined(parts) if len(parts) > 1 else parts[0] if parts else None
            pairs = zip(self.headers.items(), fields, strict=True)
            headers = [(header, self._alone(field, text)) for (header, field), text in pairs if text is not None]
            yield Outgoing(None if key is None else self._alone("/".join(self._key), key), headers, decode(value))

    def _alone(self, field: str, text: str) -> str | bytes:
        """Return the content of a key or header that is a single field: its text, or for a field of bytes the bytes."""
        return b64decode(text) if field in self._raw else text


class KafkaHopSink(TopicSink):
    """A topic through which one group of a run passes a stream to others; headers hold each event's birth and root."""

    def messages(self, path: Path) -> Iterator[Outgoing]:
        own = {BORN_HEADER: BORN, ROOT_HEADER: ROOT}
        schema = pa.schema([*self._codec.schema, *(pa.field(name, pa.int64()) for name in own.values())])
        for rows in batches_in(path, schema):
            named = [(header, rows.column(name).to_pylist()) for header, name in own.items() if name in rows.schema.names]
            for row, line in enumerate(self._codec.to_json(rows)):
                yield Outgoing(None, [(header, str(column[row])) for header, column in named], line)


def _bind(sink: Sink, uri: Uri, options: Options, context: SinkContext) -> KafkaSink:
    return KafkaSink(sink, uri, options, context)


KAFKA = SinkConnector(
    "kafka",
    "HOST:PORT/TOPIC",
    "messages of a topic, with JSON events, or what a schema registry says, as values and the sink's key as theirs",
    (
        Option("transactions", "`yes`: a micro-batch is a transaction, once for who reads committed", one_of("yes", "no")),
        Option("header.NAME", "the field that the header of a name holds", FIELD),
        *OWN_OF_REGISTRY,
        Option(
            "schema",
            "with a registry: `avro` (the default), `protobuf` or `json`, made from the event type; or `latest`, the one that "
            "is there",
            one_of(*FORMATS, "latest"),
        ),
        OWN,
    ),
    reach="shared disk",
    jars=(JARS,),
    bind=_bind,
)
