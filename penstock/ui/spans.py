"""The micro-batches of a run as OpenTelemetry's spans, and its figures as OpenTelemetry's metrics, sent as they come (OTLP)."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging import CRITICAL, getLogger
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode, set_span_in_context

import penstock
from penstock.errors import PenstockError
from penstock.runs.batches import BatchRecord
from penstock.runs.follower import Follower
from penstock.runs.record import Record

EVERY_S = 1.0
GRACE_S = 3.0
METRICS_EVERY_MS = 10_000
PHASES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
"""Of a micro-batch, in the order in which Spark goes through them, with the names of its ``durationMs``."""


@contextmanager
def exporting(run: Path, endpoint: str) -> Iterator[None]:
    """Within the block each micro-batch that a run commits becomes a span, with one for each of its phases.

    Parameters
    ----------
    run: its directory, which may not be there yet.
    endpoint: of a collector that speaks OTLP over HTTP, as ``http://127.0.0.1:4318``.
    """
    over = threading.Event()
    exporter = _Exporter(run, endpoint)
    thread = threading.Thread(target=exporter.follow, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(GRACE_S)  # a collector that does not answer is not waited for


class _Exporter:
    def __init__(self, run: Path, endpoint: str) -> None:
        self._run, self._since = run, time.time()
        resource = Resource.create(
            {"service.name": "penstock", "service.version": penstock.__version__, "penstock.run": run.name}
        )
        getLogger("opentelemetry").setLevel(CRITICAL)  # which would say on the screen each time that a collector is away
        self._spans = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces", timeout=2)))
        self._tracer = self._spans.get_tracer("penstock")
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{endpoint}/v1/metrics", timeout=2), METRICS_EVERY_MS)
        self._metrics = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._metrics.get_meter("penstock")
        self._events = meter.create_counter("penstock.events", "{event}", "Source events by what became of them")
        self._durations = meter.create_histogram("penstock.batch.duration", "s", "Of micro-batches")
        self._latencies = meter.create_histogram("penstock.latency.p95", "s", "The p95 of the results of each micro-batch")
        self._sent: dict[str, int] = {}
        self._counted: dict[str, int] = {}
        """The last micro-batch of each group whose span was sent, and that was counted."""

    def follow(self, over: threading.Event) -> None:
        """Until it is over, and once more then."""
        follower: Follower | None = None
        while True:
            last = over.wait(EVERY_S)
            with suppress(PenstockError, OSError):
                if follower is None or follower.is_another:
                    follower = Follower(self._run)
                else:
                    follower.read()
                self._send(follower)
            if last:
                break
        self._spans.shutdown()
        self._metrics.shutdown()

    def _send(self, follower: Follower) -> None:
        committed = {}
        for group, seen in follower.groups.items():
            for record in seen.records:
                committed[group, record.batch] = record
                if record.committed_us / 1e6 >= self._since and record.batch > self._counted.get(group, -1):
                    self._counted[group] = record.batch
                    self._count(group, record, seen.external)
        for one in follower.progress:
            group = one.name or ""
            if one.ran and one.started >= self._since and one.number > self._sent.get(group, -1):
                self._sent[group] = one.number
                self._span(one, group, committed.get((group, one.number)))

    def _count(self, group: str, record: BatchRecord, external: frozenset[str]) -> None:
        """Source events are those of sources: what a group hands on to another counts once, and so do its dead letters."""
        taken = sum(source.accepted for name, source in record.sources.items() if name in external)
        dead = min(record.dead_lettered, taken)  # a timer's letter is of an event that an earlier micro-batch has counted
        if external:
            self._events.add(taken - dead, {"outcome": "processed", "group": group})
            self._events.add(dead, {"outcome": "dead_lettered", "group": group})
        p95 = record.latency_ms.quantile(0.95)
        if p95 is not None:
            self._latencies.record(p95 / 1e3, {"group": group})

    def _span(self, one: Record, group: str, committed: BatchRecord | None) -> None:
        """A micro-batch, and what of its time each phase took; Spark says how long phases last, and they follow each other."""
        self._durations.record(one.duration, {"group": group})
        start = round(one.started * 1e9)
        attributes: dict[str, str | int] = {"penstock.group": group, "penstock.batch": one.number, "penstock.rows": one.rows}
        if committed is not None:
            attributes["penstock.dead_lettered"] = committed.dead_lettered
        span = self._tracer.start_span("micro-batch", start_time=start, attributes=attributes)
        if committed is not None and committed.dead_lettered:
            span.set_status(Status(StatusCode.ERROR, f"{committed.dead_lettered} events became dead letters"))
        inside, at = set_span_in_context(span), start
        for phase in PHASES:
            if phase in one.phases:
                part = self._tracer.start_span(phase, inside, start_time=at)
                at += round(one.phases[phase] * 1e9)
                part.end(at)
        span.end(start + round(one.duration * 1e9))
