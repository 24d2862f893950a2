"""The streams that an adapter opens to clients: those that come in, and those that go out."""

from dataclasses import dataclass

from penstock.adapter.arrivals import Arrivals
from penstock.adapter.body import BodyReader
from penstock.adapter.door import Door
from penstock.adapter.metrics import Metrics
from penstock.adapter.store import LogStore, Store
from penstock.adapter.tail import Tail
from penstock.adapter.transfers import Transfer, Transfers
from penstock.app.topology import Topology
from penstock.errors import ConfigurationError
from penstock.kinds.event import Event
from penstock.runs.gate import Gate


@dataclass(frozen=True)
class Limits:
    """What one client may ask of the adapter; times are in seconds, sizes in bytes.

    Parameters
    ----------
    body, event: of a request, unpacked, and of one event.
    receive: in which a request's body must have come.
    answer: after which a request that is still not durable is answered with 503.
    held: of all requests being received or waiting for a transfer.
    memory: of the whole process.
    """

    body: int = 8 << 20
    event: int = 1 << 20
    receive: float = 30.0
    answer: float = 30.0
    held: int = 128 << 20
    memory: int = 700 << 20

    def check(self, stream: str, flush_timer: float) -> None:
        """Refuse a flush timer that no request would live to see.

        Raises
        ------
        ConfigurationError: it is.
        """
        if flush_timer >= self.answer:
            raise ConfigurationError(
                f"A flush timer of {flush_timer:g} s for {stream} is not below the {self.answer:g} s in which requests are "
                "answered; choose a shorter one, or a longer --answer-within."
            )


class Input:
    """A stream that clients send events into."""

    def __init__(self, name: str, event_type: type[Event], store: Store, gate: Gate, limits: Limits, metrics: Metrics) -> None:
        self.name, self.event_type, self.store = name, event_type, store
        self.reader = BodyReader(event_type, limits.event)
        self.arrivals, self.transfers = Arrivals(), Transfers()
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


class Output:
    """A stream that clients receive events from."""

    def __init__(self, name: str, event_type: type[Event], store: LogStore, key: tuple[str, ...]) -> None:
        self.name, self.event_type, self.store, self.key = name, event_type, store, key
        self.tail = Tail(store.end)


def outputs_of(topology: Topology) -> dict[str, tuple[type[Event], tuple[str, ...]]]:
    """The result streams of a topology, those that leave at a sink: their event types and keys."""
    inputs = {source.name for source in topology.sources}
    found: dict[str, tuple[type[Event], tuple[str, ...]]] = {}
    for sink in topology.sinks:
        if sink.stream.name not in inputs:
            _, key = found.get(sink.stream.name, (None, ()))
            found[sink.stream.name] = (sink.stream.event_type, key or sink.key)
    return found
