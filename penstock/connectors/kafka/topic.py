"""A Kafka topic, accessed by Kafka's client library: its partitions, offsets, rights and messages."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, Literal

from penstock.connectors.kafka import security
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.refusal import AGAIN, DENIED, BrokerErrors, mend_of, needing, patiently
from penstock.errors import SourceError
from penstock.extras import needs

with needs():
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._acl import AclOperation
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.cimpl import NewTopic

Right = Literal["read", "write"]
"""A right on a topic, named as in Kafka's access control."""

ID_HEADER = "penstock-id"
"""The header with an event's id, by which the adapter and the engine recognise an event that was sent already."""

PATIENCE_S = 15.0
"""How long to wait for a broker that does not answer."""

SETTLED_S = 0.5
"""How long to wait until a topic holds all messages that a killed producer had sent."""

ASKED_S = 2.0
"""How long one request for the topic's metadata may take before it is repeated."""

COMMITTED = {"isolation.level": "read_committed"}
UNCOMMITTED = {"isolation.level": "read_uncommitted"}

LARGEST_MESSAGE = 1_048_576
"""The most bytes of a message, unless the URI says otherwise; the default of Kafka's own producer."""

PRODUCER = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 0,
    "linger.ms": 0,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # as Java's producers do, Spark's among them
}
"""Settings of producers. Retries go on until the broker answers, so that no event is in doubt while the adapter lives."""


class Topic:
    """A topic whose brokers answer, opened with the rights that are needed.

    Args:
        create: whether to create the topic if it does not exist.
        needs: the rights that the user must have on the topic.

    Raises:
        SourceError: there is no such topic, no broker answers, or a broker refuses.
    """

    def __init__(self, place: KafkaPlace, *, create: bool = False, needs: Sequence[Right] = ()) -> None:
        self.place = place
        self._refusals = BrokerErrors(place)
        self.settings: dict[str, Any] = {
            "bootstrap.servers": place.brokers,
            **security.opened(dict(place.options)),
            "error_cb": self._refusals.note,
        }
        with self._explained():
            if create:
                self._create()
            self.partitions = self._partitions()
        if not self.partitions:
            raise SourceError(f"{place}: there is no such topic; create it, or start the adapter, which does.")
        if needs:
            self._check_allowed(needs)

    def identity(self) -> str:
        """Return the id that the brokers gave the topic when it was created."""
        return str(self._description().topic_id)

    def noted(self, positions: Mapping[str, int]) -> dict[int, int]:
        """Return by partition what is noted under ``IDENTITY/PARTITION``; nothing of another topic of the same name."""
        own = f"{self.identity()}/"
        if not any("/" in origin for origin in positions):  # of a version that named partitions alone
            own = ""
        return {int(origin.removeprefix(own)): number for origin, number in positions.items() if origin.startswith(own)}

    def has_grown(self) -> bool:
        """Ask for the topic's partitions again; returns whether there are others than before."""
        with self._explained():
            before, self.partitions = self.partitions, self._partitions()
        return self.partitions != before

    def largest(self) -> int:
        """Return the most bytes that a message may have, by the client's settings and, if they can be read, the topic's."""
        own = int(self.settings.get("message.max.bytes", LARGEST_MESSAGE))
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.place.topic)
        with suppress(KafkaException, KeyError, TypeError, ValueError, TimeoutError):  # without the right, sending will tell
            config = self._asking.describe_configs([resource], request_timeout=PATIENCE_S)[resource].result(PATIENCE_S)
            return min(own, int(config["max.message.bytes"].value))
        return own

    def _check_allowed(self, needs: Sequence[Right]) -> None:
        """Refuse a topic that the user may not use; otherwise, Spark or a producer would fail in mid-run.

        Raises:
            SourceError: the user lacks one of the rights.
        """
        allowed = self._description(include_authorized_operations=True).authorized_operations
        missing = [right for right in needs if AclOperation[right.upper()] not in (allowed or ())]
        if allowed is not None and missing:
            raise SourceError(f"{self.place}: the user may not {' or '.join(missing)} this topic; {needing(*needs)}.")

    def _description(self, **asked: bool) -> Any:
        with self._explained():
            admin = self._asking
            topics = TopicCollection([self.place.topic])
            described = admin.describe_topics(topics, request_timeout=PATIENCE_S, **asked)
            return described[self.place.topic].result(PATIENCE_S)

    def settle(self) -> None:
        """Wait until committed messages can be read, as a broker answers a commit before it has marked the messages.

        The wait ends after `PATIENCE_S`, as another program may leave its transaction open.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self.bounds(**COMMITTED) != self.bounds(**UNCOMMITTED):
            time.sleep(0.05)

    def bounds(self, **settings: str) -> dict[int, tuple[int, int]]:
        """Return for each partition the offset of the oldest message, and the offset that the next message will get.

        Args:
            settings: of the consumer that makes the requests, such as `COMMITTED`.
        """
        with self._explained(), self.consumer(**settings) as consumer:

            def bounds_of(partition: int) -> tuple[int, int]:
                place = TopicPartition(self.place.topic, partition)
                return patiently(lambda: consumer.get_watermark_offsets(place, PATIENCE_S), PATIENCE_S)

            return {partition: bounds_of(partition) for partition in self.partitions}

    def offsets_at(self, moment: float) -> dict[int, int]:
        """Return for each partition the offset of the first message since ``moment`` (seconds since the epoch), or its end."""
        times = [TopicPartition(self.place.topic, partition, round(moment * 1000)) for partition in self.partitions]
        with self._explained(), self.consumer() as consumer:
            places = patiently(lambda: consumer.offsets_for_times(times, PATIENCE_S), PATIENCE_S)
        offsets = {place.partition: place.offset for place in places}
        ends = self.ends(**UNCOMMITTED)
        return {partition: offset if offset >= 0 else ends[partition] for partition, offset in offsets.items()}

    def count(self, start: dict[int, int], end: dict[int, int]) -> int:
        """Count the messages from the offsets ``start`` up to, but without, the offsets ``end``."""
        places = (place_of(message) for messages in self.read(start, end) for message in messages)
        return sum(offset < end[partition] for partition, offset in places)

    def ends(self, **settings: str) -> dict[int, int]:
        """Return for each partition the offset that the next message will get; with `UNCOMMITTED`, open transactions count."""
        return {partition: end for partition, (_, end) in self.bounds(**settings).items()}

    def read(self, start: dict[int, int], end: dict[int, int], **settings: str) -> Iterator[list[Message]]:
        """Yield the messages from the offsets ``start`` up to the offsets ``end``, in lists; some may lie beyond ``end``.

        Args:
            settings: of the consumer: with `UNCOMMITTED`, it also reads beyond the first open transaction.

        Raises:
            SourceError: the broker stopped answering.
        """
        lows = {partition: low for partition, (low, _) in self.bounds(**settings).items()}  # older ones may have been deleted
        begin = {partition: max(start.get(partition, 0), lows[partition]) for partition in self.partitions}
        unread = {partition for partition in self.partitions if begin[partition] < end.get(partition, 0)}
        with self._explained(), self.consumer(**settings, **{"enable.partition.eof": True}) as consumer:
            consumer.assign([TopicPartition(self.place.topic, partition, begin[partition]) for partition in unread])
            deadline = time.monotonic() + PATIENCE_S
            while unread:
                messages = consumer.consume(2_000, 0.2)
                for error in (message.error() for message in messages):
                    if error is not None and mend_of(error) is not None:
                        raise KafkaException(error)
                if messages:
                    deadline = time.monotonic() + PATIENCE_S
                    yield [message for message in messages if message.error() is None]
                # A partition is done when its end, or the consumer's position at or beyond ``end``, is reached.
                unread -= {message.partition() for message in messages if _is_end(message)}
                for place in consumer.position([TopicPartition(self.place.topic, partition) for partition in unread]):
                    if place.offset >= end[place.partition]:
                        unread.discard(place.partition)
                if time.monotonic() > deadline:
                    raise SourceError(f"{self.place}: the broker has not answered for {PATIENCE_S:g} s.")

    @contextmanager
    def consumer(self, **settings: Any) -> Iterator[Consumer]:
        """Return a context with a consumer that subscribes to nothing, and so joins no group."""
        own = {"group.id": "penstock", "enable.auto.commit": False, "auto.offset.reset": "earliest", "log_level": 0}
        consumer = Consumer({**self.settings, **own, **settings})
        try:
            yield consumer
        finally:
            consumer.close()

    @cached_property
    def _asking(self) -> AdminClient:
        """The client for repeated requests, as `identity` is asked for with each micro-batch."""
        return self._admin()

    def _admin(self) -> AdminClient:
        return AdminClient({**self.settings, "log_level": 0, "allow.auto.create.topics": False})

    def _create(self) -> None:
        admin = self._admin()
        if self._partitions():
            return
        try:
            admin.create_topics([NewTopic(self.place.topic)])[self.place.topic].result(PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() in DENIED:
                raise SourceError(
                    f"{self.place}: there is no such topic, and the user may not create it ({error.args[0].str()}); create "
                    "it, or have the owner of the brokers allow that."
                ) from error
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        deadline = time.monotonic() + PATIENCE_S
        while not self._partitions() and time.monotonic() < deadline:
            time.sleep(0.05)

    def _partitions(self) -> list[int]:
        return sorted(self._described().partitions)

    def _described(self) -> Any:
        """Return the brokers' metadata of the topic; the request does not create the topic."""
        admin = self._admin()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                metadata = admin.list_topics(self.place.topic, timeout=ASKED_S).topics[self.place.topic]
            except KafkaException:
                admin.poll(0)  # calls `error_cb` for refusals
                if self._refusals or time.monotonic() > deadline:
                    raise
                continue
            if metadata.error is None or metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return metadata
            if metadata.error.code() not in AGAIN or time.monotonic() > deadline:
                raise KafkaException(metadata.error)
            time.sleep(0.05)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        self._refusals.clear()
        try:
            yield
        except KafkaException as error:
            raise self._refusals.said(error) from error


def _is_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


def place_of(message: Message) -> tuple[int, int]:
    """Return a message's partition and offset."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def name_of(message: Message) -> str | None:
    """Return the id in a message's header; None if the message has none."""
    value = dict(message.headers() or ()).get(ID_HEADER)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
