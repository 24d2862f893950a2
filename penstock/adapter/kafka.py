"""Kafka behind the adapter: a topic that events are written to, and a mirror of one with results."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event as Flag
from typing import Any

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.adapter.log import Entry, StreamLog
from penstock.adapter.streams import result_key
from penstock.app.uri import KafkaPlace
from penstock.errors import SinkError, SourceError

ID_HEADER = "penstock-id"
"""Holds an event's id, by which the adapter and the engine know one that is there already."""

PATIENCE_S = 15.0
"""How long to wait for a broker that does not answer when something begins."""

LARGEST_EVENT = 950_000
"""Bytes of an event that fits into a message by Kafka's own settings."""

SETTLED_S = 0.5
"""A topic whose end has not moved for so long holds all that a producer that was killed had sent."""

PRODUCER = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 0,
    "linger.ms": 0,
    "compression.type": "lz4",
}
"""Retries go on until the broker answers, so that no event is in doubt while the adapter lives."""


class Topic:
    """A topic: whether it can be reached, and from where to where it goes.

    Raises
    ------
    SourceError: no broker answers, or it refuses.
    """

    def __init__(self, place: KafkaPlace, *, create: bool = False) -> None:
        self.place = place
        self.settings: dict[str, Any] = {"bootstrap.servers": place.brokers, **dict(place.options)}
        with self._explained():
            if create:
                self._create()
            self.partitions = self._partitions()
        if not self.partitions:
            raise SourceError(f"{place}: there is no such topic; create it, or start the adapter, which does.")

    def bounds(self) -> dict[int, tuple[int, int]]:
        """For each partition the offset of the oldest message, and the one that the next will get."""
        with self._explained(), self.consumer() as consumer:
            return {
                partition: consumer.get_watermark_offsets(TopicPartition(self.place.topic, partition), PATIENCE_S)
                for partition in self.partitions
            }

    def offsets_at(self, moment: float) -> dict[int, int]:
        """For each partition the offset of the first message that is not older than a time (seconds)."""
        asked = [TopicPartition(self.place.topic, partition, round(moment * 1000)) for partition in self.partitions]
        with self._explained(), self.consumer() as consumer:
            found = {each.partition: each.offset for each in consumer.offsets_for_times(asked, PATIENCE_S)}
        ends = self.bounds()
        return {partition: offset if offset >= 0 else ends[partition][1] for partition, offset in found.items()}

    def read(self, start: dict[int, int], end: dict[int, int]) -> Iterator[list[Message]]:
        """The messages between offsets, by partition.

        Raises
        ------
        SourceError: the broker stopped answering.
        """
        lows = {partition: low for partition, (low, _) in self.bounds().items()}  # some may have been deleted since
        begin = {partition: max(start.get(partition, 0), lows[partition]) for partition in self.partitions}
        left = {partition for partition in self.partitions if begin[partition] < end[partition]}
        with self._explained(), self.consumer(**{"enable.partition.eof": True}) as consumer:
            consumer.assign([TopicPartition(self.place.topic, partition, begin[partition]) for partition in left])
            deadline = time.monotonic() + PATIENCE_S
            while left:
                messages = consumer.consume(2_000, 0.2)
                if messages:
                    deadline = time.monotonic() + PATIENCE_S
                    yield [message for message in messages if message.error() is None]
                left -= {message.partition() for message in messages if _is_end(message)}
                for place in consumer.position([TopicPartition(self.place.topic, partition) for partition in left]):
                    if place.offset >= end[place.partition]:
                        left.discard(place.partition)
                if time.monotonic() > deadline:
                    raise SourceError(f"{self.place}: the broker has not answered for {PATIENCE_S:g} s.")

    @contextmanager
    def consumer(self, **settings: Any) -> Iterator[Consumer]:
        """A consumer that takes part in no group."""
        own = {"group.id": "penstock", "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
        consumer = Consumer({**self.settings, **own, **settings})
        try:
            yield consumer
        finally:
            consumer.close()

    def _create(self) -> None:
        admin = AdminClient({**self.settings, "log_level": 0})
        if self.place.topic in admin.list_topics(timeout=PATIENCE_S).topics:
            return
        try:
            admin.create_topics([NewTopic(self.place.topic)])[self.place.topic].result(PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        deadline = time.monotonic() + PATIENCE_S
        while not self._partitions() and time.monotonic() < deadline:
            time.sleep(0.05)

    def _partitions(self) -> list[int]:
        admin = AdminClient({**self.settings, "log_level": 0})
        found = admin.list_topics(timeout=PATIENCE_S).topics.get(self.place.topic)
        return sorted(found.partitions) if found is not None else []

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            reason = error.args[0].str() if isinstance(error.args[0], KafkaError) else str(error)
            raise SourceError(
                f"{self.place} cannot be reached ({reason}); check that a broker runs there, and the address."
            ) from error


class KafkaStore:
    """A topic that the adapter writes a stream's events to.

    The topic is the truth. Which ids it holds is noted in a file of this machine's, up to known
    offsets; what a crash kept from being noted is read from the topic's end at the next start.

    Parameters
    ----------
    index: where ids are noted.
    remember: seconds for which ids are known.

    Raises
    ------
    SourceError: no broker answers.
    """

    def __init__(self, place: KafkaPlace, index: StreamLog, remember: float) -> None:
        self._topic = Topic(place, create=True)
        self._index, self._remember = index, remember
        self.expire = index.expire
        self.size = index.size
        self._closing = Flag()
        self._in_doubt = False
        """Whether a transfer has failed, so that the topic may hold events whose ids are not noted."""
        self._failed: KafkaError | None = None
        self._reached: dict[int, int] = {}
        self._producer = self._open()

    def begin(self, entries: Sequence[Entry]) -> Callable[[], list[int]]:
        """See `Store.begin`. What it returns waits for as long as no broker answers."""
        return partial(self._append, entries)

    def stop(self) -> None:
        """Wait for the brokers no longer."""
        self._closing.set()

    def _append(self, entries: Sequence[Entry]) -> list[int]:
        self._check_closing()
        if self._in_doubt:
            self._producer.purge()
            self._producer = self._open()
        self._in_doubt = True
        counts = self._send(entries)
        self._in_doubt = False
        return counts

    def _send(self, entries: Sequence[Entry]) -> list[int]:
        names = [_names(entry) for entry in entries]
        known = self._index.known([name for each in names for name in each or ()])
        new: list[str] = []
        counts = []
        self._failed, self._reached = None, {}
        for entry, ids in zip(entries, names, strict=True):
            count = 0
            for row, payload in enumerate(entry.payloads):
                if ids is not None:
                    if ids[row] in known:
                        continue
                    known.add(ids[row])
                    new.append(ids[row])
                self._produce(payload, entry.born[row] if entry.born else None, ids[row] if ids else None)
                count += 1
            counts.append(count)
        self._await_acknowledgements()
        if new:
            self._index.note_ids(new, {str(partition): offset + 1 for partition, offset in self._reached.items()})
        return counts

    def close(self) -> None:
        """Give up what no broker has acknowledged."""
        self._closing.set()
        self._producer.purge()
        self._producer.flush(1)
        self._index.close()

    def _produce(self, payload: bytes, born: int | None, name: str | None) -> None:
        headers: dict[str, str | bytes | None] | None = {ID_HEADER: name} if name is not None else None
        stamp = 0 if born is None else born // 1000
        while True:
            try:
                self._producer.produce(
                    self._topic.place.topic, payload, headers=headers, timestamp=stamp, on_delivery=self._delivered
                )
                return
            except BufferError:
                self._producer.poll(0.1)
                self._check_closing()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = error
        else:
            partition, offset = _place_of(message)
            if offset > self._reached.get(partition, -1):
                self._reached[partition] = offset

    def _await_acknowledgements(self) -> None:
        while self._producer.flush(0.5):
            self._check_closing()
        if self._failed is not None:
            raise SinkError(f"{self._topic.place} refuses events ({self._failed.str()}).")

    def _check_closing(self) -> None:
        if self._closing.is_set():
            raise SinkError(f"The adapter stops, and {self._topic.place} has not answered.")

    def _open(self) -> Producer:
        """A producer, once all ids that the topic holds are known."""
        positions = {int(partition): offset for partition, offset in self._index.positions().items()}
        ends = self._settled()
        begin = {**self._topic.offsets_at(time.time() - self._remember), **positions}
        for messages in self._topic.read(begin, ends):
            found = [name for name in map(name_of, messages) if name is not None]
            self._index.note_ids(found, {})
        self._index.note_ids([], {str(partition): offset for partition, offset in ends.items()})
        return Producer({**self._topic.settings, **PRODUCER, "log_level": 0})

    def _settled(self) -> dict[int, int]:
        """The ends of the partitions, once they do not move; somebody else may be writing, so not for ever."""
        before: dict[int, tuple[int, int]] = {}
        deadline = time.monotonic() + PATIENCE_S
        while (bounds := self._topic.bounds()) != before and time.monotonic() < deadline:
            before = bounds
            time.sleep(SETTLED_S)
        return {partition: end for partition, (_, end) in bounds.items()}


class KafkaMirror:
    """Copies a result topic to a stream of the spool, from which consumers are served.

    Parameters
    ----------
    key: the fields under whose values results are looked up.
    """

    def __init__(self, place: KafkaPlace, log: StreamLog, key: tuple[str, ...]) -> None:
        self._topic = Topic(place, create=True)
        self._log, self._key = log, key
        self._stopped = Flag()

    def run(self) -> None:
        """Copy until `stop` is called; what goes wrong meanwhile is tried again."""
        while not self._stopped.is_set():
            with suppress(SourceError, SinkError, KafkaException):
                self._run()
            self._stopped.wait(1.0)

    def _run(self) -> None:
        positions = self._log.positions()
        start = [
            TopicPartition(self._topic.place.topic, partition, positions.get(str(partition), low))
            for partition, (low, _) in self._topic.bounds().items()
        ]
        with self._topic.consumer() as consumer:
            consumer.assign(start)
            while not self._stopped.is_set():
                messages = [message for message in consumer.consume(2_000, 0.1) if message.error() is None]
                if messages:
                    self._copy(messages)

    def stop(self) -> None:
        """Let `run` return."""
        self._stopped.set()

    def _copy(self, messages: list[Message]) -> None:
        entries = []
        for message in messages:
            payload, name = message.value(), name_of(message)
            with suppress(msgspec.DecodeError, KeyError, TypeError):  # somebody else's, in a topic that is shared
                values = msgspec.json.decode(payload or b"")
                keys = [result_key(values, self._key)] if self._key else None
                ids = None if name is None else [name]
                entries.append(Entry([payload or b""], [message.timestamp()[1] * 1000], ids, result_keys=keys))
        places = map(_place_of, messages)
        self._log.append(entries, {str(partition): offset + 1 for partition, offset in places})


def _names(entry: Entry) -> Sequence[str] | None:
    if entry.key is None:
        return entry.ids
    return [f"{entry.key}/{row}" for row in range(len(entry.payloads))]


def _is_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def _place_of(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def name_of(message: Message) -> str | None:
    """The id in a message's header, if it has one."""
    value = dict(message.headers() or ()).get(ID_HEADER)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
