"""A store in a Kafka topic, for the adapter's input streams."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from threading import Event as Flag

from confluent_kafka import KafkaError, Message, Producer

from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.refusal import FAILED, cause_of
from penstock.connectors.kafka.topic import ID_HEADER, PATIENCE_S, PRODUCER, SETTLED_S, UNCOMMITTED, Topic, name_of, place_of
from penstock.connectors.log import CONFLICT, Parcel, StreamLog
from penstock.errors import SinkError


class KafkaStore:
    """Writes a stream's events to a topic, once for each id.

    The topic is authoritative. A local index records the ids that it holds, up to known offsets. Ids that a crash has kept out
    of the index are read from the end of the topic at the next start.

    Args:
        index: the local index of ids.
        remember: seconds for which ids are known.

    Raises:
        SourceError: no broker answers.
    """

    def __init__(self, place: KafkaPlace, index: StreamLog, remember: float) -> None:
        self._topic = Topic(place, create=True, needs=("read", "write"))
        self._index, self._remember = index, remember
        self.expire = index.expire
        self.size = index.size
        self._closing = Flag()
        self._in_doubt = False
        """Whether a transfer has failed, so that the topic may hold events whose ids are not in the index."""
        self._failed: KafkaError | None = None
        self._reached: dict[int, int] = {}
        self._identity = ""
        self._producer = self._open()

    def begin(self, parcels: Sequence[Parcel]) -> Callable[[], list[int]]:
        """See `Store.begin`. The returned function waits while no broker answers, until `stop`."""
        return partial(self._append, parcels)

    def stop(self) -> None:
        """Stop waiting for brokers."""
        self._closing.set()

    def _append(self, parcels: Sequence[Parcel]) -> list[int]:
        self._check_closing()
        if self._in_doubt:
            self._producer.purge()
            self._producer = self._open()
        self._in_doubt = True
        counts = self._send(parcels)
        self._in_doubt = False
        return counts

    def _send(self, parcels: Sequence[Parcel]) -> list[int]:
        known = self._index.known(parcels)
        new: list[str] = []
        counts = []
        self._failed, self._reached = None, {}
        for parcel in parcels:
            verdict = parcel.judge(known, each=True)
            if verdict is None:
                counts.append(CONFLICT)
                continue
            names = dict(zip(verdict.rows, verdict.names, strict=True)) if verdict.names else {}
            for row in verdict.rows:
                self._produce(parcel.payloads[row], parcel.born[row] if parcel.born else None, names.get(row))
            new.extend(verdict.names)
            counts.append(len(verdict.rows))
        self._await_acknowledgements()
        if new:
            reached = {f"{self._identity}/{partition}": offset + 1 for partition, offset in self._reached.items()}
            self._index.note_ids(new, reached)
        return counts

    def close(self) -> None:
        """Discard messages that no broker has acknowledged, and close."""
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
            partition, offset = place_of(message)
            if offset > self._reached.get(partition, -1):
                self._reached[partition] = offset

    def _await_acknowledgements(self) -> None:
        try:
            while self._producer.flush(0.5):
                self._check_closing()
        except FAILED as error:  # the producer may not write, and waiting does not change that
            raise SinkError(f"{self._topic.place} refuses events ({cause_of(error)}).") from error
        if self._failed is not None:
            raise SinkError(f"{self._topic.place} refuses events ({self._failed.str()}).")

    def _check_closing(self) -> None:
        if self._closing.is_set():
            raise SinkError(f"The adapter stops, and {self._topic.place} has not answered.")

    def _open(self) -> Producer:
        """Return a producer, after reading all ids in the topic that the index lacks, also those in open transactions of
        others.
        """
        self._topic.has_grown()
        self._identity = self._topic.identity()
        positions = self._topic.noted(self._index.positions())
        ends = self._settled()
        begin = {**self._topic.offsets_at(time.time() - self._remember), **positions}
        for messages in self._topic.read(begin, ends, **UNCOMMITTED):
            ids = [name for name in map(name_of, messages) if name is not None]
            self._index.note_ids(ids, {})
        self._index.note_ids([], {f"{self._identity}/{partition}": offset for partition, offset in ends.items()})
        return Producer({**self._topic.settings, **PRODUCER, "log_level": 0})

    def _settled(self) -> dict[int, int]:
        """Return the partitions' end offsets once they stop growing, or after `PATIENCE_S`, as others may keep writing."""
        before: dict[int, int] = {}
        deadline = time.monotonic() + PATIENCE_S
        while (ends := self._topic.ends(**UNCOMMITTED)) != before and time.monotonic() < deadline:
            before = ends
            time.sleep(SETTLED_S)
        return ends
