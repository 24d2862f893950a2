"""What is known of a Kafka topic, through its own client library."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, Literal

from penstock.connectors.kafka import security
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.refusal import AGAIN, DENIED, Refusals, mend_of, needing, patiently
from penstock.errors import SourceError
from penstock.extras import needs

with needs():
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicCollection, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._acl import AclOperation
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.cimpl import NewTopic

Right = Literal["read", "write"]
"""What a topic is used for, in the words of Kafka's access control."""

ID_HEADER = "penstock-id"
"""Holds an event's id, by which the adapter and the engine know one that is there already."""

PATIENCE_S = 15.0
"""How long to wait for a broker that does not answer when something begins."""

SETTLED_S = 0.5
"""A topic whose end has not moved for so long holds all that a producer that was killed had sent."""

ASKED_S = 2.0
"""How long one question for topics may take, before it is asked again."""

COMMITTED = {"isolation.level": "read_committed"}
UNCOMMITTED = {"isolation.level": "read_uncommitted"}

LARGEST_MESSAGE = 1_048_576
"""Bytes, as Kafka's own producer has it, unless the URI says otherwise."""

PRODUCER = {
    "enable.idempotence": True,
    "acks": "all",
    "message.timeout.ms": 0,
    "linger.ms": 0,
    "compression.type": "lz4",
    "partitioner": "murmur2_random",  # as Java's producers do, Spark's among them
}
"""Retries go on until the broker answers, so that no event is in doubt while the adapter lives."""


class Topic:
    """A topic: whether it can be reached, and from where to where it goes.

    Parameters
    ----------
    create: whether to make it, if it is not there.
    needs: what it is to be used for, which its owner must have allowed.

    Raises
    ------
    SourceError: no broker answers, or it refuses.
    """

    def __init__(self, place: KafkaPlace, *, create: bool = False, needs: Sequence[Right] = ()) -> None:
        self.place = place
        self._refusals = Refusals(place)
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
        """The id that the brokers gave the topic when it was created."""
        return str(self._description().topic_id)

    def largest(self) -> int:
        """The bytes that a message may have, as far as the topic says."""
        own = int(self.settings.get("message.max.bytes", LARGEST_MESSAGE))
        asked = ConfigResource(ConfigResource.Type.TOPIC, self.place.topic)
        with suppress(KafkaException, KeyError, TypeError, ValueError, TimeoutError):  # who may not ask finds out as it sends
            told = self._asking.describe_configs([asked], request_timeout=PATIENCE_S)[asked].result(PATIENCE_S)
            return min(own, int(told["max.message.bytes"].value))
        return own

    def _check_allowed(self, needs: Sequence[Right]) -> None:
        """Refuse a topic that may be seen and not be used: Spark, or a producer, would find that out in mid-run.

        Raises
        ------
        SourceError: something is not allowed.
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
        """Wait until what is committed can be read: a broker answers a commit before it has marked the messages.

        A transaction of somebody else's that stays open is not waited for longer than a broker is.
        """
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self.bounds(**COMMITTED) != self.bounds(**UNCOMMITTED):
            time.sleep(0.05)

    def bounds(self, **settings: str) -> dict[int, tuple[int, int]]:
        """For each partition the offset of the oldest message, and the one that the next will get.

        Parameters
        ----------
        settings: of the consumer that asks.
        """
        with self._explained(), self.consumer(**settings) as consumer:

            def bounds_of(partition: int) -> tuple[int, int]:
                asked = TopicPartition(self.place.topic, partition)
                return patiently(lambda: consumer.get_watermark_offsets(asked, PATIENCE_S), PATIENCE_S)

            return {partition: bounds_of(partition) for partition in self.partitions}

    def offsets_at(self, moment: float) -> dict[int, int]:
        """For each partition the offset of the first message that is not older than a time (seconds)."""
        asked = [TopicPartition(self.place.topic, partition, round(moment * 1000)) for partition in self.partitions]
        with self._explained(), self.consumer() as consumer:
            told = patiently(lambda: consumer.offsets_for_times(asked, PATIENCE_S), PATIENCE_S)
        found = {each.partition: each.offset for each in told}
        ends = self.ends(**UNCOMMITTED)
        return {partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()}

    def count(self, start: dict[int, int], end: dict[int, int]) -> int:
        """How many messages are between offsets."""
        places = (place_of(message) for messages in self.read(start, end) for message in messages)
        return sum(offset < end[partition] for partition, offset in places)

    def ends(self, **settings: str) -> dict[int, int]:
        """For each partition the offset that the next message will get; by `UNCOMMITTED` whatever transactions are open."""
        return {partition: end for partition, (_, end) in self.bounds(**settings).items()}

    def read(self, start: dict[int, int], end: dict[int, int], **settings: str) -> Iterator[list[Message]]:
        """The messages between offsets, by partition.

        Parameters
        ----------
        settings: of the consumer: by `UNCOMMITTED` it sees what is beyond the first transaction that is open, too.

        Raises
        ------
        SourceError: the broker stopped answering.
        """
        lows = {partition: low for partition, (low, _) in self.bounds(**settings).items()}  # some may have been deleted since
        begin = {partition: max(start.get(partition, 0), lows[partition]) for partition in self.partitions}
        left = {partition for partition in self.partitions if begin[partition] < end.get(partition, 0)}
        with self._explained(), self.consumer(**settings, **{"enable.partition.eof": True}) as consumer:
            consumer.assign([TopicPartition(self.place.topic, partition, begin[partition]) for partition in left])
            deadline = time.monotonic() + PATIENCE_S
            while left:
                messages = consumer.consume(2_000, 0.2)
                for error in (message.error() for message in messages):
                    if error is not None and mend_of(error) is not None:
                        raise KafkaException(error)
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

    @cached_property
    def _asking(self) -> AdminClient:
        """Kept, for what is asked with each micro-batch."""
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
        """What the brokers say of the topic; it is not made by our asking."""
        admin = self._admin()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                found = admin.list_topics(self.place.topic, timeout=ASKED_S).topics[self.place.topic]
            except KafkaException:
                admin.poll(0)  # which tells of refusals
                if self._refusals or time.monotonic() > deadline:
                    raise
                continue
            if found.error is None or found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return found
            if found.error.code() not in AGAIN or time.monotonic() > deadline:
                raise KafkaException(found.error)
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
    """A message's partition and offset."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def name_of(message: Message) -> str | None:
    """The id in a message's header, if it has one."""
    value = dict(message.headers() or ()).get(ID_HEADER)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
