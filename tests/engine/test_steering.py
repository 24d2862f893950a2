"""Settings that change while a run is on: nothing is lost, nothing doubled, and the micro-batches keep the new time."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import httpx
import numpy as np
import pytest

from penstock.bench.servers.process import free_port
from penstock.engine.running.steering import Change
from penstock.runs.decisions import decisions

pytestmark = pytest.mark.slow

APPS = Path(__file__).parent / "apps_words.py"


class Steered:
    """Wants changes after so many micro-batches each, and keeps when micro-batches were committed."""

    def __init__(self, **changes):
        self._changes = sorted((int(after.removeprefix("after_")), change) for after, change in changes.items())
        self.committed_at, self.changed_at, self.restarts, self.progresses = [], [], [], 0

    def progressed(self, progress):
        self.progresses += 1

    def committed(self, group, record):
        self.committed_at.append(record.committed_us / 1e6)

    def wanted(self):
        if self._changes and len(self.committed_at) >= self._changes[0][0]:
            return self._changes.pop(0)[1]
        return None

    def changed(self, change, *, restarted):
        self.restarts.append(restarted)
        self.changed_at.append(time.time())


def triggers(directory):
    """When the micro-batches with data were started."""
    told = [json.loads(line) for line in (directory / "progress.jsonl").read_text().splitlines()]
    return [datetime.fromisoformat(one["timestamp"]).timestamp() for one in told if one.get("numInputRows")]


def gaps(steered, since, until=np.inf):
    """Seconds between the micro-batches committed in a span."""
    return np.diff([at for at in steered.committed_at if since <= at < until])


def test_a_trigger_is_changed_while_the_query_runs(run_app):
    steered = Steered(after_2=Change(3.0, "Slower."), after_5=Change(0.5, "Faster."))
    source = "generator:constant?rate=250&count=9000"
    result = run_app("counter", sources={"Words": source}, trigger=0.5, steering=steered)
    assert steered.restarts == [False, False]
    slower, faster = steered.changed_at
    starts = np.array([start for start in triggers(result.directory) if slower < start])
    assert starts[starts < faster][-1] % 3 < 1.0  # Spark counts its triggers from the epoch
    assert (np.minimum(starts[starts > faster + 3] % 3, 3 - starts[starts > faster + 3] % 3) > 0.25).any()
    assert result.report["counts"]["accepted"] == result.report["counts"]["processed"] == 9000
    assert max(event.seen for event in result.output("Out")) == 1800
    assert steered.progresses
    starts = [json.loads(line) for line in (result.directory / "starts.jsonl").read_text().splitlines()]
    assert [start["trigger"] for start in starts] == [0.5, 3.0, 0.5]


def test_a_gate_is_changed_by_starting_the_query_anew(run_app):
    source = "generator:constant?rate=300&count=9000"
    other = f"{source}&min_rows=900&max_delay=8s"
    steered = Steered(after_2=Change(0.0, "Fewer.", {"Words": other}))
    result = run_app("counter", sources={"Words": source}, trigger=0.5, steering=steered)
    assert steered.restarts == [True]
    counts = result.report["counts"]
    assert counts["accepted"] == counts["processed"] == 9000
    assert (counts["lost"], counts["duplicated"], counts["queued"]) == (0, 0, 0)
    assert max(event.seen for event in result.output("Out")) == 1800
    assert np.max(gaps(steered, steered.changed_at[0])) > 2


@pytest.mark.timeout(600)
def test_an_adapting_run_chooses_the_gate_of_its_adapter_and_an_adapter_that_died_gets_it_again(tmp_path):
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        f"{APPS}:app",
        "--adapter",
        "--port",
        str(port),
        "--spool",
        str(tmp_path / "spool"),
        "--runs",
        str(tmp_path),
        "--name",
        "run",
        "--adapt",
        "--p95",
        "5s",
        "--master",
        "local[2]",
    ]
    chance, accepted, over = random.Random(1), 0, time.monotonic() + 480
    killed = given_again = False
    with (tmp_path / "said").open("wb") as said, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        try:
            while not given_again and time.monotonic() < over and process.poll() is None:
                with suppress(httpx.TransportError):
                    body = [{"text": chance.choice("abcdefgh")} for _ in range(20)]
                    answer = client.post("/streams/Words", json=body, headers={"Idempotency-Key": str(accepted)})
                    accepted += answer.json().get("accepted", 0)
                    gate = client.get("/streams/Words/gate").json()
                    applied = [one for one in decisions(tmp_path / "run") if one.kind == "apply"]
                    if applied and gate["flush_timer_s"] == applied[-1].doors["Words"].flush_timer:
                        given_again = killed
                        if not killed:
                            os.kill(process_id(f"penstock adapter .*--port {port}"), signal.SIGKILL)
                            killed = True
                time.sleep(0.05)
            told = [str(one) for one in decisions(tmp_path / "run")]
            assert given_again, "\n".join([(tmp_path / "said").read_text()[-4000:], *told])
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
    counts = json.loads((tmp_path / "run" / "report.json").read_text())["counts"]
    assert counts["accepted"] >= accepted  # a request may have been answered by none of the two
    assert (counts["lost"], counts["duplicated"]) == (0, 0)


def process_id(pattern):
    """The first process whose command line matches the pattern."""
    return int(subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True).stdout.split()[0])
