"""A driver that is paused in the middle of a run, and followed by another, can commit nothing more once it wakes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.storage import durable
from penstock.storage.journal import lines_of

pytestmark = [pytest.mark.servers, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
WORDS, FILES, KEYS = 6_000, 12, 2


def start(command):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_batches(process, ledger, number):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if len(list(lines_of(ledger))) >= number:
            return
        time.sleep(0.05)


@pytest.mark.parametrize("pause_ms", [150])
def test_a_driver_that_wakes_finds_the_run_taken_over(places, tmp_path, pause_ms):
    example = ROOT / "examples" / "divisibility"
    make = [sys.executable, str(example / "words.py"), str(tmp_path / "words"), "--count", str(WORDS)]
    subprocess.run([*make, "--files", str(FILES)], check=True)
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(example / "app.py"),
        "--keys",
        str(KEYS),
        "--until-idle",
        "--source",
        f"RawWords=text:{tmp_path / 'words'}?max_files=1",
        "--runs",
        str(places),
        "--name",
        "run",
    ]
    ledger = places / "run" / "batches-main.jsonl"
    first = start(command)
    wait_for_batches(first, ledger, 3)
    time.sleep(pause_ms / 1000)
    os.killpg(first.pid, signal.SIGSTOP)
    committed = len(list(lines_of(ledger)))
    second = start([*command, "--take-over"])
    wait_for_batches(second, ledger, committed + 2)
    os.killpg(first.pid, signal.SIGCONT)
    _, said = first.communicate(timeout=120)
    assert first.returncode != 0
    assert "Another driver has taken over run" in said
    assert "Traceback" not in said
    _, complaint = second.communicate(timeout=240)
    if second.returncode:  # the first may have planned a micro-batch: then the next start goes on
        print(complaint)
        second = start(command)
        _, complaint = second.communicate(timeout=240)
    assert second.returncode == 0, complaint

    report = json.loads(durable.read(places / "run" / "report.json"))
    totals = [
        json.loads(line)
        for file in sorted((places / "run" / "output" / "Output").glob("*.jsonl"), key=str)
        for line in durable.read(file).splitlines()
    ]
    three = [total["count"] for total in totals if total["by"] == "Three"]
    assert len(set(three)) == len(three)
    assert max(three) == report["streams"]["Three"] == WORDS // 4 * KEYS
    counts = report["counts"]
    assert counts["accepted"] == counts["processed"] == WORDS
    assert counts["lost"] == counts["duplicated"] == counts["queued"] == 0
