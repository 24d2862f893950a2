"""The adapter's metrics for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
EVENTS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)


class Metrics:
    """The metrics of one adapter, in a registry of their own; all are labelled by stream."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self.accepted = self._counter("accepted_events", "Events made durable and acknowledged")
        self.duplicate = self._counter("duplicate_events", "Events whose id was known, acknowledged again")
        self.rejected = self._counter("rejected_events", "Events that do not fit the stream's type")
        self.refused = self._counter("refused_requests", "Requests with events that were answered with 503 or 409")
        self.sent = self._counter("sent_events", "Events sent to consumers")
        self.acknowledged = self._histogram("acknowledgement_seconds", "From a request's body to its answer", SECONDS)
        self.transferred = self._histogram("transfer_seconds", "Duration of a transfer to the store", SECONDS)
        self.transfer_size = self._histogram("transfer_events", "Events in a transfer", EVENTS)

    def watch(self, name: str, text: str, stream: str, read: Callable[[], float]) -> None:
        """Add a gauge, whose value is read at each scrape."""
        if name not in self._gauges:
            self._gauges[name] = Gauge(f"penstock_{name}", text, ["stream"], registry=self._registry)
        self._gauges[name].labels(stream).set_function(read)

    def text(self) -> bytes:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"penstock_{name}", text, ["stream"], registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"penstock_{name}", text, ["stream"], registry=self._registry, buckets=buckets)
