"""The streams that an adapter offers to clients: inputs, which they send to, and outputs, which they receive."""

from dataclasses import dataclass

from penstock.adapter.arrivals import ArrivalStatistics
from penstock.adapter.body import BodyReader
from penstock.adapter.door import Door
from penstock.adapter.metrics import Metrics
from penstock.adapter.store import LogStore, Store
from penstock.adapter.tail import StreamTail
from penstock.adapter.transfers import Transfer, Transfers
from penstock.app.topology import Topology
from penstock.errors import ConfigurationError
from penstock.kinds.event import Event
from penstock.runs.gate import TransferGate


@dataclass(frozen=True)
class Limits:
    """Limits of requests and of memory. Times are in seconds, sizes in bytes.

    Args:
        body, event: the size of an unpacked request body, and of one event.
        receive: the time in which a request's body must arrive.
        answer: the time after which a request whose events are not durable yet is answered with 503.
        held: the size of all requests that are being received or wait for a transfer.
        memory: the memory of the whole process.
    """

    body: int = 8 << 20
    event: int = 1 << 20
    receive: float = 30.0
    answer: float = 30.0
    held: int = 128 << 20
    memory: int = 700 << 20

    def check(self, stream: str, flush_timer: float) -> None:
        """Refuse a flush timer so long that requests would time out before it.

        Raises:
            ConfigurationError: the timer is not shorter than ``answer``.
        """
        if flush_timer >= self.answer:
            raise ConfigurationError(
                f"A flush timer of {flush_timer:g} s for {stream} is not below the {self.answer:g} s in which requests are "
                "answered; choose a shorter one, or a longer --answer-within."
            )


class Input:
    """A stream that clients send events to, with its door and its metrics."""

    def __init__(
        self, name: str, event_type: type[Event], store: Store, gate: TransferGate, limits: Limits, metrics: Metrics
    ) -> None:
        self.name, self.event_type, self.store = name, event_type, store
        self.reader = BodyReader(event_type, limits.event)
        self.arrivals, self.transfers = ArrivalStatistics(), Transfers()
        self.accepted, self.duplicate = metrics.accepted.labels(name), metrics.duplicate.labels(name)
        self.rejected, self.refused = metrics.rejected.labels(name), metrics.refused.labels(name)
        self.acknowledged = metrics.acknowledged.labels(name)
        transferred, size = metrics.transferred.labels(name), metrics.transfer_size.labels(name)

        def note(made: Transfer) -> None:
            transferred.observe(made.seconds)
            size.observe(made.events)
            self.transfers.note(made)

        self.door = Door(store, gate, note, limits.answer, limits.held)
        metrics.watch("waiting_events", "Events that wait for a transfer", name, lambda: self.door.waiting)
        metrics.watch("arrival_rate", "Events per second over the last minute", name, lambda: self.arrivals.measured().rate)
        metrics.watch("store_bytes", "Bytes on this machine's disk", name, store.size)


class OutputStream:
    """A stream that clients receive events from."""

    def __init__(self, name: str, event_type: type[Event], store: LogStore, key: tuple[str, ...]) -> None:
        self.name, self.event_type, self.store, self.key = name, event_type, store, key
        self.tail = StreamTail(store.end)


def outputs_of(topology: Topology) -> dict[str, tuple[type[Event], tuple[str, ...]]]:
    """Return the event type and the key of each result stream of a topology; these are the streams with a sink."""
    inputs = {source.name for source in topology.sources}
    results: dict[str, tuple[type[Event], tuple[str, ...]]] = {}
    for sink in topology.sinks:
        if sink.stream.name not in inputs:
            _, key = results.get(sink.stream.name, (None, ()))
            results[sink.stream.name] = (sink.stream.event_type, key or sink.key)
    return results
