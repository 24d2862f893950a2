"""Export of a run to OpenTelemetry (OTLP): micro-batches as spans, and figures as metrics, sent as they come."""

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
from penstock.runs.totals import Totals

EVERY_S = 1.0
GRACE_S = 3.0
METRICS_EVERY_MS = 10_000
PHASES = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch", "commitOffsets")
"""The phases of a micro-batch in Spark's order, by their names in Spark's ``durationMs``."""


@contextmanager
def exporting(run: Path, endpoint: str) -> Iterator[None]:
    """Within the block, export each micro-batch that a run commits as a span, with a child span for each phase.

    Args:
        run: the run's directory, which need not exist yet.
        endpoint: the address of a collector that accepts OTLP over HTTP, as ``http://127.0.0.1:4318``.
    """
    over = threading.Event()
    exporter = _Exporter(run, endpoint)
    thread = threading.Thread(target=exporter.follow, args=(over,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(GRACE_S)  # does not wait longer for a collector that does not respond


class Processed:
    """Counts processed events in steps that are never negative, as a counter cannot fall.

    An event may fail after it was counted: in another group, or by a timer. It is then left out of the steps that follow.
    """

    def __init__(self) -> None:
        self._owed = 0

    def step(self, taken: int, failed: int) -> int:
        """Return by how many the processed events grow when so many are taken in and so many have failed."""
        grown = taken - failed - self._owed
        self._owed = max(0, -grown)
        return max(0, grown)


class _Exporter:
    def __init__(self, run: Path, endpoint: str) -> None:
        self._run, self._since = run, time.time()
        resource = Resource.create(
            {"service.name": "penstock", "service.version": penstock.__version__, "penstock.run": run.name}
        )
        getLogger("opentelemetry").setLevel(CRITICAL)  # else it would print each failure to reach the collector
        self._spans = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces", timeout=2)))
        self._tracer = self._spans.get_tracer("penstock")
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{endpoint}/v1/metrics", timeout=2), METRICS_EVERY_MS)
        self._metrics = MeterProvider([reader], resource, shutdown_on_exit=False)
        meter = self._metrics.get_meter("penstock")
        self._events = meter.create_counter("penstock.events", "{event}", "Source events by what became of them")
        self._durations = meter.create_histogram("penstock.batch.duration", "s", "Of micro-batches")
        self._latencies = meter.create_histogram("penstock.latency.p95", "s", "The p95 of the results of each micro-batch")
        self._processed = Processed()
        self._sent: dict[str, int] = {}
        self._counted: dict[str, int] = {}
        """By group: the last micro-batch whose span was sent, and the last one that was counted in the metrics."""

    def follow(self, over: threading.Event) -> None:
        """Export until ``over`` is set, and once more after that."""
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
        for micro_batch in follower.progress:
            group = micro_batch.name or ""
            if micro_batch.ran and micro_batch.started >= self._since and micro_batch.number > self._sent.get(group, -1):
                self._sent[group] = micro_batch.number
                self._span(micro_batch, group, committed.get((group, micro_batch.number)))

    def _count(self, group: str, record: BatchRecord, external: frozenset[str]) -> None:
        """Count a micro-batch's source events by outcome, as the report does: each once, whichever groups it passes."""
        one = Totals()
        one.add(record, external, frozenset())
        taken = sum(source.accepted for source in one.sources.values())
        self._events.add(self._processed.step(taken, one.dead_lettered), {"outcome": "processed", "group": group})
        self._events.add(one.dead_lettered, {"outcome": "dead_lettered", "group": group})
        p95 = record.latency_ms.quantile(0.95)
        if p95 is not None:
            self._latencies.record(p95 / 1e3, {"group": group})

    def _span(self, one: Record, group: str, committed: BatchRecord | None) -> None:
        """Send the spans of a micro-batch and its phases. Spark reports only durations of phases, which are put end to end."""
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
