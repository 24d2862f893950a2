"""Runs for Prometheus and OpenTelemetry: what is said is what the recording says, and real collectors take it."""

import gzip
import json
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import yaml
from adapters import required
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from penstock.planner import verdict
from penstock.runs.batches import BatchRecord
from penstock.runs.follower import Follower
from penstock.runtime.tally import SourceTally
from penstock.ui.causes import MENDS, NO_FAULT
from penstock.ui.forecast import Forecast
from penstock.ui.metrics import exposition
from penstock.ui.snapshot import snapshot
from penstock.ui.spans import GRACE_S, Processed, _Exporter, exporting


def samples(text):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def figures(runs):
    follower, forecast = Follower(runs / "keyed"), Forecast()
    forecast.refresh(follower, wait=True)
    return snapshot(follower, forecast)


def test_what_prometheus_reads_is_what_the_page_shows(runs):
    shown = figures(runs)
    last = shown["series"][0]["rows"][-1][0]
    states = {"keyed": "running", "old": "ended", "dead": "stopped"}
    found = samples(exposition(states, [shown], now=last + 1).decode())
    run = ("run", "keyed")
    assert found["penstock_running", run] == 1
    assert found["penstock_running", ("run", "old")] == 0
    assert [found["penstock_stopped", ("run", name)] for name in states] == [0, 0, 1]
    assert found["penstock_source_events_per_second", run] == shown["lately"]["rate"] > 0
    idle = samples(exposition(states, [shown], now=last + 3600).decode())
    assert idle["penstock_source_events_per_second", run] == 0
    assert found["penstock_events_total", ("outcome", "processed"), run] == shown["counts"]["processed"]
    assert found["penstock_batches_total", run] == 80
    assert found["penstock_latency_seconds", ("group", "main"), ("quantile", "p95"), run] == shown["series"][0]["rows"][-1][2]
    assert found["penstock_latency_predicted_seconds", ("edge", "expected"), ("quantile", "p95"), run] == shown["today"]["p95"]
    assert found["penstock_element_events_total", ("element", "Counter"), run] > 0


def test_the_page_serves_them_and_a_run_that_is_over_has_no_figures(served):
    found = samples(httpx.get(f"{served()}/metrics").text)
    assert set(found) == {("penstock_running", ("run", "keyed")), ("penstock_stopped", ("run", "keyed"))}


class Collector(BaseHTTPRequestHandler):
    """Takes OTLP over HTTP, decoded by the protocol's own messages."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
        kind = ExportTraceServiceRequest if self.path == "/v1/traces" else ExportMetricsServiceRequest
        self.server.taken.append(kind.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def collector():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.taken = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def test_each_micro_batch_is_a_span_and_each_phase_one_within(runs, collector, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 0.0)  # as if the recording had been made since
    with exporting(runs / "keyed", f"http://127.0.0.1:{collector.server_port}"):
        pass
    spans = [
        span
        for taken in collector.taken
        if isinstance(taken, ExportTraceServiceRequest)
        for resource in taken.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    names = Counter(span.name for span in spans)
    progress = [json.loads(line) for line in (runs / "keyed" / "progress.jsonl").read_text().splitlines()]
    ran = [one for one in progress if "addBatch" in one.get("durationMs", {})]
    assert names["micro-batch"] == names["addBatch"] == len(ran)
    whole = {span.span_id: span for span in spans if span.name == "micro-batch"}
    for span in spans:
        if span.name != "micro-batch":
            around = whole[span.parent_span_id]
            assert around.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= around.end_time_unix_nano + 5_000_000  # Spark rounds to milliseconds
    points = {
        (metric.name, next((one.value.string_value for one in point.attributes if one.key == "outcome"), "")): point.as_int
        for taken in collector.taken
        if isinstance(taken, ExportMetricsServiceRequest)
        for resource in taken.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.sum.data_points
    }
    counts = Follower(runs / "keyed").totals
    assert points["penstock.events", "processed"] == sum(one.accepted for one in counts.sources.values()) - counts.dead_lettered
    metrics = {
        metric.name
        for taken in collector.taken
        if isinstance(taken, ExportMetricsServiceRequest)
        for resource in taken.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert metrics == {"penstock.events", "penstock.batch.duration", "penstock.latency.p95"}


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_processed_events_never_fall_and_all_are_in_the_end_counted(batches):
    processed = Processed()
    steps = [processed.step(taken, failed) for taken, failed in batches]
    assert min(steps, default=0) >= 0
    taken, failed = (sum(one) for one in zip(*batches, strict=True)) if batches else (0, 0)
    assert sum(steps) + processed.step(failed, 0) == taken


def test_an_event_that_fails_behind_a_hop_is_not_processed(runs, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 0.0)
    exporter, counted = _Exporter(runs / "keyed", "http://127.0.0.1:9"), Counter()
    monkeypatch.setattr(exporter, "_events", SimpleNamespace(add=lambda n, labels: counted.update({labels["outcome"]: n})))
    first = {"Words": SourceTally(rows=10, accepted=10)}
    exporter._count("main", BatchRecord(batch=0, committed_us=0, sources=first, judged=True), frozenset({"Words"}))
    behind = {"Clean": SourceTally(rows=10, accepted=10)}
    exporter._count("second", BatchRecord(batch=0, committed_us=0, sources=behind, judged=True, dead_lettered=3), frozenset())
    exporter._count("main", BatchRecord(batch=1, committed_us=0, sources=first, judged=True), frozenset({"Words"}))
    assert counted == {"processed": 17, "dead_lettered": 3}


def test_a_collector_that_is_away_costs_nothing_but_its_spans(runs, monkeypatch, capfd):
    monkeypatch.setattr(time, "time", lambda: 0.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and answers none
        began = time.monotonic()
        with exporting(runs / "keyed", f"http://127.0.0.1:{silent.getsockname()[1]}"):
            pass
        assert time.monotonic() - began < GRACE_S + 5
    assert capfd.readouterr().err == ""


MONITORING = Path(__file__).parents[2] / "deploy/monitoring"


def test_the_alert_rules_name_every_cause():
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"][0]["rules"]
    named = {rule["labels"]["cause"]: rule for rule in rules if "cause" in rule["labels"]}
    assert set(named) == set(MENDS) - {"stopped"}
    for cause, rule in named.items():
        assert rule["annotations"]["mend"] == MENDS[cause]


def test_every_fault_that_a_verdict_names_has_a_mend():
    assert set(verdict._ORDER) <= set(MENDS) | NO_FAULT


class Scraped(BaseHTTPRequestHandler):
    """Serves the figures of a run that is on and in trouble."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *_):
        pass


def await_answer(url, query, patience=60.0):
    """What a query gives, once it gives something."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            answer = httpx.get(f"{url}/api/v1/query", params={"query": query}).raise_for_status()
            if answer.json()["data"]["result"]:
                return answer.json()["data"]["result"]
        except httpx.HTTPError:  # it does not listen yet, or says that it is not ready
            pass
        time.sleep(0.2)
    raise AssertionError(f"nothing for {query}")


@pytest.mark.slow
def test_a_real_prometheus_takes_them_raises_the_alerts_and_fills_the_dashboard(runs, tmp_path):
    binary = shutil.which("prometheus")
    required(binary, "Prometheus (Debian: apt-get install prometheus)")
    shown = figures(runs)
    shown["causes"] = [{"kind": kind, "fault": True} for kind in MENDS]
    shown["counts"] |= {
        "queued": 7,
        "accepted": shown["counts"]["processed"] + 7,
    }  # the recorded run had a source that does not tell
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scraped)
    server.content = exposition({"keyed": "running", "dead": "stopped"}, [shown])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    shutil.copy(MONITORING / "alerts.yml", tmp_path)
    config = (MONITORING / "prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(
        config.replace("127.0.0.1:8471", f"127.0.0.1:{server.server_port}").replace("5s", "1s")
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        binary,
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (tmp_path / "said").open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            raised = await_answer(url, 'ALERTS{alertname="PenstockSilent", alertstate="firing"}')
            assert raised[0]["metric"]["run"] == "keyed"
            for alert in ("PenstockSaturated", "PenstockRunStopped"):
                await_answer(url, f'ALERTS{{alertname="{alert}"}}')
            assert len(await_answer(url, "count by (alertname) (ALERTS)")) == len(MENDS)
            for panel in json.loads((MONITORING / "grafana.json").read_text())["panels"]:
                for target in panel["targets"]:
                    assert await_answer(url, target["expr"].replace("$run", ".*")), panel["title"]
        finally:
            process.terminate()
            server.shutdown()
