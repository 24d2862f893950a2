"""A Python caller has what the command line has: an adapter, a planner that adapts the run, and a page beside it."""

import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.bench.servers.process import free_port
from penstock.client import Client
from penstock.runs.decisions import decisions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

JOB = """
import sys
import penstock
import apps_words

port, page, runs = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
result = penstock.run(
    apps_words.app, adapter=True, port=port, spool=f"{runs}/spool", ui=page, adapt=True, p95="5 s", dry_run=True,
    runs=runs, name="run", master="local[2]", duration="40 s",
)
counts = result.report["counts"]
seen = {count.text: count.seen for count in result.output("Out")}
print(counts["accepted"], counts["processed"], counts["queued"], sum(seen.values()))
"""


def test_a_script_starts_a_run_with_an_adapter_a_planner_and_a_page(tmp_path):
    port, page, job = free_port(), free_port(), tmp_path / "job.py"
    job.write_text(JOB)
    apps = Path(__file__).parent.parent / "engine"
    environment = {"PYTHONPATH": f"{apps}:{Path(__file__).parents[2]}", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, str(job), str(port), str(page), str(tmp_path)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    shown, sent = [], []

    def send():
        with Client(f"http://127.0.0.1:{port}") as client:
            sent.append(client.send("Words", [{"text": "abc"[number % 3]} for number in range(300)]))
        while process.poll() is None and not shown:
            with suppress(OSError):
                shown.append(urllib.request.urlopen(f"http://127.0.0.1:{page}/", timeout=5).status)
            time.sleep(0.5)

    sender = threading.Thread(target=send)
    sender.start()
    printed, said = process.communicate(timeout=200)
    sender.join()
    assert process.returncode == 0, said
    assert printed.split() == ["300", "300", "0", "300"], said
    assert shown == [200]
    assert "The adapter listens on" in said
    assert "The runs are shown at" in said
    assert list(decisions(tmp_path / "run")) is not None
