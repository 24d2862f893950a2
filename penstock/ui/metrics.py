"""Metrics of runs for Prometheus: a pure function of the page's data."""

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.ui.snapshot import LATELY_S

OUTCOMES = ("processed", "dead_lettered", "late")
QUANTILES = ("p50", "p95", "p99")


def exposition(states: Mapping[str, str], snapshots: Iterable[Mapping[str, Any]], now: float | None = None) -> bytes:
    """Return the metrics of runs in Prometheus's text format.

    Args:
        states: the state of each run, by name: ``running``, ``stopped`` or ``ended``.
        snapshots: the snapshots of the running runs; see `penstock.ui.snapshot.snapshot`.
        now: seconds since the epoch; the present unless given.
    """
    registry = CollectorRegistry()
    registry.register(_Once([*_of_states(states), *_of_runs(list(snapshots), time.time() if now is None else now)]))
    return generate_latest(registry)


class _Once(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics


def _of_states(states: Mapping[str, str]) -> Iterator[Metric]:
    running = GaugeMetricFamily("penstock_running", "Whether a run is on", labels=["run"])
    stopped = GaugeMetricFamily("penstock_stopped", "Whether a run is not on although its input is not over", labels=["run"])
    for name, state in states.items():
        running.add_metric([name], float(state == "running"))
        stopped.add_metric([name], float(state == "stopped"))
    yield from (running, stopped)


def _of_runs(snapshots: list[Mapping[str, Any]], now: float) -> Iterator[Metric]:
    """Yield each metric with the samples of all runs, as the text format needs them together."""
    counter, gauge = CounterMetricFamily, GaugeMetricFamily
    events = counter("penstock_events", "Source events of a run by what became of them (measured)", labels=["run", "outcome"])
    queued = gauge("penstock_queued_events", "Events that wait at the sources, where these tell (measured)", labels=["run"])
    lag = gauge(
        "penstock_lag_events",
        "Events that wait at a partition of a source, as of its last micro-batch (measured)",
        labels=["run", "source", "partition"],
    )
    batches = counter("penstock_batches", "Committed micro-batches", labels=["run"])
    rate = gauge("penstock_source_events_per_second", "Source events, of the last half minute (measured)", labels=["run"])
    trigger = gauge("penstock_trigger_seconds", "The trigger interval", labels=["run"])
    cause = gauge("penstock_cause", "1 for each cause of trouble that is seen now", labels=["run", "cause"])
    expected = gauge(
        "penstock_latency_predicted_seconds",
        "Latency as the models expect it, and its 90% band",
        labels=["run", "quantile", "edge"],
    )
    measured = gauge("penstock_latency_seconds", "Latency of the last results (measured)", labels=["run", "group", "quantile"])
    duration = gauge("penstock_batch_duration_seconds", "Of the last micro-batch (measured)", labels=["run", "group"])
    commit = gauge("penstock_last_commit_timestamp_seconds", "When a group last committed", labels=["run", "group"])
    elements = list(_element_families())
    for snapshot in snapshots:
        run = snapshot["name"]
        for outcome in OUTCOMES:
            if (count := snapshot["counts"].get(outcome)) is not None:
                events.add_metric([run, outcome], count)
        if snapshot["counts"]["queued"] is not None:
            queued.add_metric([run], snapshot["counts"]["queued"])
        for source, partitions in snapshot["lately"]["lag"].items():
            for partition, waiting in partitions.items():
                lag.add_metric([run, source, partition], waiting)
        # The rate of a run that has stopped committing is 0, not that of its last half minute of commits.
        last = max((series["rows"][-1][0] for series in snapshot["series"]), default=0.0)
        fresh = now - last <= LATELY_S + 2 * (snapshot["trigger"] or 0.0)
        if not snapshot["real_time"]:  # a real-time run has no ledger of its progress
            batches.add_metric([run], snapshot["batches"])
            rate.add_metric([run], snapshot["lately"]["rate"] if fresh else 0.0)
        if snapshot["trigger"] is not None:
            trigger.add_metric([run], snapshot["trigger"])
        for statement in snapshot["causes"]:
            if statement["fault"]:
                cause.add_metric([run, statement["kind"]], 1.0)
        for name, edge, value in _expected(snapshot["today"]):
            expected.add_metric([run, name, edge], value)
        for series in snapshot["series"]:
            at, p50, p95, p99, _, lasted, _ = series["rows"][-1]
            commit.add_metric([run, series["group"]], at)
            if lasted is not None:
                duration.add_metric([run, series["group"]], lasted)
            for name, value in zip(QUANTILES, (p50, p95, p99), strict=True):
                if value is not None:
                    measured.add_metric([run, series["group"], name], value)
        for name, element in snapshot["lately"]["elements"].items():
            for family, field in elements:
                if element[field] is not None:
                    family.add_metric([run, name], element[field] / (1e6 if field == "service_us" else 1))
    yield from (events, queued, lag, batches, rate, trigger, cause, expected, measured, duration, commit)
    yield from (family for family, _ in elements)


def _expected(today: Mapping[str, Any] | None) -> Iterator[tuple[str, str, float]]:
    """Yield the expected latencies and their bands, as far as they are known: quantile, edge and value."""
    for name in QUANTILES if today else ():
        assert today is not None
        low, high = today["bands"][name]
        for edge, value in (("expected", today[name]), ("low", low), ("high", high)):
            if value is not None:
                yield name, edge, value


def _element_families() -> Iterator[tuple[CounterMetricFamily | GaugeMetricFamily, str]]:
    """Yield the metrics of elements, each with the field of the snapshot that holds its value."""
    labels = ["run", "element"]
    yield CounterMetricFamily("penstock_element_events", "Events that an element has handled", labels=labels), "events"
    yield (CounterMetricFamily("penstock_element_dead_letters", "Dead letters of an element", labels=labels), "dead_letters")
    yield CounterMetricFamily("penstock_element_late_events", "Events after the watermark", labels=labels), "late"
    yield (
        CounterMetricFamily("penstock_element_late_in_part_events", "Events some of whose windows had closed", labels=labels),
        "late_in_part",
    )
    yield (
        GaugeMetricFamily("penstock_element_busy_cores", "Cores that an element keeps busy (measured)", labels=labels),
        "busy",
    )
    yield GaugeMetricFamily("penstock_element_service_seconds", "Of an event (measured)", labels=labels), "service_us"
    yield (GaugeMetricFamily("penstock_element_instances", "Live instances, of keyed elements", labels=labels), "instances")
