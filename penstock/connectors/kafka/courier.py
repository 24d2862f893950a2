"""Sends the messages of a micro-batch to a topic: by an idempotent producer, or in a transaction."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from logging import getLogger
from typing import Any, NamedTuple

from penstock.connectors.kafka.refusal import FAILED, cause_of, mend_of, patiently
from penstock.connectors.kafka.topic import COMMITTED, ID_HEADER, LARGEST_MESSAGE, PATIENCE_S, PRODUCER, Topic
from penstock.errors import PenstockError, RunLockedError, SinkError
from penstock.extras import needs

with needs():
    from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

DELIVERY_S = 120
"""How long the broker may take for a message. Then the batch fails, and is delivered at the next start."""

TRANSACTION_S = 600
"""How long a transaction may take. Brokers allow 15 minutes by default."""


SILENT = getLogger("penstock.kafka")
SILENT.disabled = True
"""Swallows messages that librdkafka would print if a producer is refused; the error raised then says enough."""


class Outgoing(NamedTuple):
    """A message yet to be sent."""

    key: str | bytes | None
    headers: list[tuple[str, str | bytes]]
    value: bytes


Named = Iterable[tuple[str, Outgoing]]
"""Messages with their ids."""


class Courier:
    """Sends micro-batches by an idempotent producer, so that order is kept and nothing is sent twice while it lives.

    Args:
        sink: the sink's name, for error messages.
    """

    without_reason: frozenset[int] = frozenset()
    """Error codes of messages that do not state the cause of the failure; another call raises an error that does."""

    def __init__(self, topic: Topic, sink: str) -> None:
        self._topic, self._sink = topic, sink
        self._kept: Producer | None = None
        """The producer, kept between batches, as an idempotent producer takes half a second to start."""

    def prepare(self, group: str) -> None:
        """Finish what earlier drivers began; called before `reached`, and before the topic is read for a group's messages."""

    def reached(self, group: str) -> int | None:
        """Return the last batch of a group that is recorded to be completely in the topic; None if there is no record."""
        return None

    def begin(self, group: str) -> None:
        """Record that nothing of a group has been sent yet, if this courier keeps records."""

    def send(self, group: str, batch: int, messages: Named) -> None:
        """Send a batch of a group.

        Raises:
            SinkError: the broker refuses, or does not answer.
        """
        producer, self._kept = self._kept or self._producer({}), None
        self._send(producer, messages)
        self._kept = producer  # not reached after a failure, so a producer that has failed is not used again

    def _producer(self, own: dict[str, Any]) -> Producer:
        ours = {
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": DELIVERY_S * 1000,
            "log_level": 0,
            "logger": SILENT,
        }
        return Producer({**PRODUCER, "message.max.bytes": LARGEST_MESSAGE, **self._topic.settings, **ours, **own})

    def _send(self, producer: Producer, messages: Named) -> None:
        try:
            self._produce(producer, messages)
        except FAILED as error:
            raise SinkError(f"Sink {self._sink}: {self._topic.place} does not take messages: {cause_of(error)}.") from error

    def _produce(self, producer: Producer, messages: Named) -> None:
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None and error.code() not in self.without_reason:
                failures.append(error)

        for name, message in messages:
            headers: list[tuple[str, str | bytes | None]] = [(ID_HEADER, name), *message.headers]
            while True:
                try:
                    producer.produce(
                        self._topic.place.topic, message.value, message.key, headers=headers, on_delivery=delivered
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush()
        if failures:
            raise SinkError(
                f"Sink {self._sink}: {self._topic.place} does not take messages ({failures[0].str()}){_mended(failures[0])}."
            )


class Transactions(Courier):
    """Sends each micro-batch as a transaction: consumers of committed messages see all of it, once, or nothing.

    The transaction also commits the batch's number, as the offset of a consumer group that only the sink uses. It tells whether
    the transaction was committed, even while other programs have transactions open. Kafka fences all but the newest producer of
    a transactional id. A run and the runs that it discards share the id, so a driver that was replaced can commit nothing more.

    Args:
        lineage: the identifier of the first of these runs.
    """

    without_reason = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # the commit states the cause

    def __init__(self, topic: Topic, sink: str, run: str, lineage: str) -> None:
        super().__init__(topic, sink)
        self._run, self._lineage = run, lineage
        self._producers: dict[str, Producer] = {}
        self._reached: dict[str, int | None] = {}
        """The last committed batch of each group, cached while this driver's producer for the group lives."""

    def prepare(self, group: str) -> None:
        """Start the group's producer, which fences earlier ones: their open transactions are committed or aborted then."""
        if group not in self._producers:
            name = f"penstock/{self._lineage}/{self._sink}/{group}"
            producer = self._producer({"transactional.id": name, "transaction.timeout.ms": TRANSACTION_S * 1000})
            try:
                patiently(lambda: producer.init_transactions(DELIVERY_S), DELIVERY_S)
            except KafkaException as error:
                raise self._refused(error) from error
            self._producers[group] = producer

    def reached(self, group: str) -> int | None:
        """Return the batch of the last committed transaction; None also if a group was idle for a week, as Kafka forgets it."""
        if group not in self._reached:
            self._reached[group] = self._looked_up(group)
        return self._reached[group]

    def _looked_up(self, group: str) -> int | None:
        with self._numbering(group) as consumer:
            try:
                [place] = patiently(lambda: consumer.committed([self._number(-1)], PATIENCE_S), PATIENCE_S)
            except KafkaException as error:
                raise self._refused(error) from error
        return None if place.offset < 0 else place.offset - 1

    def begin(self, group: str) -> None:
        self.send(group, -1, ())  # a transaction, so that a driver that was paused and followed does not set the record back

    def send(self, group: str, batch: int, messages: Named) -> None:
        producer = self._producers[group]
        try:
            producer.begin_transaction()
            self._send(producer, messages)
            with self._numbering(group) as consumer:
                producer.send_offsets_to_transaction([self._number(batch)], consumer.consumer_group_metadata(), DELIVERY_S)
            producer.commit_transaction(DELIVERY_S)
            self._reached[group] = batch
        except (KafkaException, SinkError) as error:
            with suppress(KafkaException):  # if it cannot be aborted now, the next producer of its name aborts it
                producer.abort_transaction(DELIVERY_S)
            del self._producers[group]
            self._reached.pop(group, None)
            cause = error.__cause__ if isinstance(error, SinkError) else error
            if isinstance(error, SinkError) and not _is_fenced(cause):
                raise
            raise self._refused(cause) from error

    def _numbering(self, group: str) -> AbstractContextManager[Consumer]:
        """Return a consumer of the group whose offset records the number of batches."""
        return self._topic.consumer(**COMMITTED, **{"group.id": f"penstock/{self._run}/{self._sink}/{group}"})

    def _number(self, batch: int) -> TopicPartition:
        return TopicPartition(self._topic.place.topic, self._topic.partitions[0], batch + 1)

    def _refused(self, error: BaseException | None) -> PenstockError:
        assert isinstance(error, KafkaException)
        if _is_fenced(error):
            return RunLockedError(
                f"Sink {self._sink}: another driver delivers for this run to {self._topic.place}; this one delivers "
                "nothing more."
            )
        cause = error.args[0]
        mend = _mended(cause) or "; run again"
        if cause.code() in (
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError._TIMED_OUT,
        ):  # where a request is denied, Kafka may report only the time-out
            reading = "READ on groups of names that begin with penstock/"
            mend = f"; see that the brokers run, and have their owner allow the user {reading}"
        return SinkError(f"Sink {self._sink}: {self._topic.place} does not take a transaction ({cause.str()}){mend}.")


FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def _is_fenced(error: BaseException | None) -> bool:
    """Whether a newer producer with the same transactional id has fenced this one."""
    return isinstance(error, KafkaException) and error.args[0].code() in FENCED


def _mended(error: KafkaError) -> str:
    """Return the remedy for an error that a retry does not solve, as the end of a sentence; else an empty text."""
    mend = mend_of(error)
    return "" if mend is None else f"; {mend}"
