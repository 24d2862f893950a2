"""Mirrors a Kafka topic of results into the spool, from which the adapter serves consumers."""

import logging
import time
from contextlib import suppress
from threading import Event as Flag

import msgspec
from confluent_kafka import KafkaException, Message, TopicPartition

from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.topic import Topic, name_of, place_of
from penstock.connectors.log import Parcel, StreamLog
from penstock.errors import SinkError, SourceError
from penstock.kinds.coding import json_decoder
from penstock.kinds.event import Event
from penstock.kinds.text import key_text

LOG = logging.getLogger("penstock.adapter")

LOOK_AGAIN_S = 10.0
"""Seconds between two looks at whether the topic has other partitions, or was made anew."""


class KafkaMirror:
    """Copies a result topic to a stream of the spool, from which consumers are served.

    Args:
        event_type: the event type of the stream.
        key: the fields by whose values results are looked up.
    """

    def __init__(self, place: KafkaPlace, log: StreamLog, event_type: type[Event], key: tuple[str, ...]) -> None:
        self._topic = Topic(place, create=True, needs=("read",))
        self._log, self._key = log, key
        self._decode = json_decoder(event_type).decode
        self._stopped = Flag()

    def run(self) -> None:
        """Copy until `stop` is called; errors of Kafka or the spool lead to another attempt."""
        while not self._stopped.is_set():
            with suppress(SourceError, SinkError, KafkaException):
                self._run()
            self._stopped.wait(1.0)

    def _run(self) -> None:
        identity, since = self._topic.identity(), time.monotonic()
        self._topic.has_grown()
        positions = self._topic.noted(self._log.positions())
        start = [
            TopicPartition(self._topic.place.topic, partition, positions.get(partition, low))
            for partition, (low, _) in self._topic.bounds().items()
        ]
        with self._topic.consumer() as consumer:
            consumer.assign(start)
            while not self._stopped.is_set():
                if time.monotonic() - since > LOOK_AGAIN_S:
                    if self._topic.has_grown() or self._topic.identity() != identity:
                        return  # to begin anew with what is there
                    since = time.monotonic()
                messages = [message for message in consumer.consume(2_000, 0.1) if message.error() is None]
                if messages:
                    self._copy(identity, messages)

    def stop(self) -> None:
        """Make `run` return."""
        self._stopped.set()

    def _copy(self, identity: str, messages: list[Message]) -> None:
        parcels = []
        for message in messages:
            payload, name = message.value(), name_of(message)
            try:
                event = self._decode(payload or b"")
            except (msgspec.DecodeError, RecursionError) as error:  # another program's, in a shared topic, or a tombstone
                LOG.warning("Offset %s of %s is no event, and is left out: %s", message.offset(), self._topic.place, error)
                continue
            keys = [key_text(event, self._key)] if self._key else None
            ids = None if name is None else [name]
            parcels.append(Parcel([payload or b""], [message.timestamp()[1] * 1000], ids, result_keys=keys))
        places = map(place_of, messages)
        self._log.append(parcels, {f"{identity}/{partition}": offset + 1 for partition, offset in places})
