"""Ctrl-C and kill -9 of the driver, and of a worker of a real cluster of two: the result is that of a quiet run."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.bench.cluster import Cluster
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.topic import Topic, name_of

pytestmark = pytest.mark.servers

ROOT = Path(__file__).parent.parent.parent
WORDS, FILES, KEYS = 4_000, 4, 2


@pytest.fixture
def command(tmp_path):
    """The command that runs example 1, a file of words a micro-batch."""
    example = ROOT / "examples" / "divisibility"
    make = [sys.executable, str(example / "words.py"), str(tmp_path / "words"), "--count", str(WORDS)]
    subprocess.run([*make, "--files", str(FILES)], check=True)
    return [
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
        str(tmp_path),
        "--name",
        "run",
    ]


def start(command):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_batches(process, directory, number):
    """Wait until some micro-batches have been committed, or the run has ended."""
    ledger = directory / "run" / "batches-main.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if ledger.exists() and len(ledger.read_bytes().splitlines()) >= number:
            return
        time.sleep(0.02)


def check(directory):
    report = json.loads((directory / "run" / "report.json").read_text())
    files = sorted((directory / "run" / "output" / "Output").glob("*.jsonl"))
    totals = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    three = [total["count"] for total in totals if total["by"] == "Three"]
    assert max(three) == report["streams"]["Three"] == WORDS // 4 * KEYS
    assert len(set(three)) == len(three)
    counts = report["counts"]
    assert counts["accepted"] == counts["processed"] == WORDS
    assert counts["lost"] == counts["duplicated"] == counts["queued"] == 0
    assert report["batches"] <= FILES  # Spark may put a file taken in by a killed start together with the next


def test_the_driver_is_stopped_and_killed_and_started_again(command, tmp_path):
    process = start(command)
    wait_for_batches(process, tmp_path, 1)
    os.killpg(process.pid, signal.SIGINT)
    said, complaint = process.communicate(timeout=180)
    assert process.returncode == 0, complaint
    assert "the same command (without --fresh) resumes" in said
    assert "Traceback" not in complaint
    counts = json.loads((tmp_path / "run" / "report.json").read_text())["counts"]
    assert counts["accepted"] == WORDS == counts["processed"] + counts["queued"]
    assert counts["lost"] == counts["duplicated"] == 0

    process = start(command)
    wait_for_batches(process, tmp_path, 2)
    process.kill()  # Python alone; the JVM notices
    process.communicate()

    process = start(command)
    wait_for_batches(process, tmp_path, 3)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()

    process = start(command)
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint
    check(tmp_path)


def processes_below(number):
    """All of them, the daemon and the workers of Python's among them."""
    asked = subprocess.run(["ps", "-o", "pid=", "--ppid", str(number)], capture_output=True, text=True)
    return [each for child in map(int, asked.stdout.split()) for each in (child, *processes_below(child))]


@pytest.mark.parametrize("how", ["the group", "every process"])
def test_who_stops_all_its_processes_at_once_stops_a_run_as_who_stops_the_driver(command, tmp_path, how):
    """As `timeout` and CI's runners do, and as service managers do."""
    process = start([*command, "--trigger", "1 s"])
    wait_for_batches(process, tmp_path, 2)
    if how == "the group":
        os.killpg(process.pid, signal.SIGTERM)
    else:
        for number in [process.pid, *processes_below(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGTERM)
    said, complaint = process.communicate(timeout=180)
    assert process.returncode == 0, complaint
    assert "the same command (without --fresh) resumes" in said
    assert "Traceback" not in complaint
    counts = json.loads((tmp_path / "run" / "report.json").read_text())["counts"]
    assert counts["accepted"] == WORDS == counts["processed"] + counts["queued"]
    process = start(command)
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint
    check(tmp_path)


def test_a_dead_jvm_is_said_to_be_dead(command, tmp_path):
    process = start([*command, "--trigger", "1 s"])
    wait_for_batches(process, tmp_path, 2)
    java = subprocess.run(["pgrep", "-P", str(process.pid), "java"], capture_output=True, text=True).stdout.split()
    os.kill(int(java[0]), signal.SIGKILL)
    _, complaint = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Spark's Java process has died (it was killed" in complaint
    assert "running again resumes" in complaint
    assert len(complaint.strip().splitlines()) == 1, complaint
    process = start(command)
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint
    check(tmp_path)


def test_a_worker_of_the_cluster_is_killed(command, tmp_path):
    with Cluster(nodes=2, directory=tmp_path / "cluster", isolated=False) as cluster:
        settings = [part for key, value in cluster.conf.items() for part in ("--conf", f"{key}={value}")]
        process = start([*command, "--master", cluster.master, *settings])
        wait_for_batches(process, tmp_path, 2)
        assert process.poll() is None
        cluster.nodes[1].kill()
        cluster.add_node()
        _, said = process.communicate()
        assert process.returncode == 0, said
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["master"].startswith("spark://")
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("to", "source"), [("delta", "files"), ("iceberg", "delta")])
def test_tables_of_a_lake_are_exact_after_kills_and_never_seen_in_part(tmp_path, to, source):
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "lake.py"),
        "--to",
        to,
        "--source",
        source,
        "--events",
        "6000",
        "--batches",
        "30",
        "--keys",
        "7",
        "--kills",
        "2",
    ]
    told = subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert told.returncode == 0, told.stdout + told.stderr
    found = json.loads(told.stdout)
    assert found["exact"]
    assert found["kills"] == 2
    assert min(found["reads"].values()) > 0


@pytest.mark.slow
def test_transactions_to_kafka_are_there_once_after_kills(broker, tmp_path):
    words = tmp_path / "words"
    words.mkdir()
    for number in range(12):
        (words / f"{number:02d}.jsonl").write_text("".join(f'{{"text": "{letter}{number}"}}\n' for letter in "abcdefgh" * 50))
        os.utime(words / f"{number:02d}.jsonl", (1_700_000_000 + number,) * 2)
    topic = KafkaPlace(broker.brokers, "killed")
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        f"{Path(__file__).parent / 'apps_words.py'}:app",
        "--until-idle",
        "--source",
        f"Words=jsonl:{words}?max_files=1",
        "--sink",
        f"Out={topic}?transactions=yes",
        "--runs",
        str(tmp_path),
        "--name",
        "run",
    ]
    for batches in (1, 3, 5, 8):
        process = start(command)
        wait_for_batches(process, tmp_path, batches)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    process = start(command)
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    opened = Topic(topic)
    ends = {partition: end for partition, (_, end) in opened.bounds().items()}
    names = [name_of(message) for messages in opened.read({}, ends) for message in messages]
    assert len(names) == len(set(names)) == report["sinks"]["Out"]
    assert report["counts"]["processed"] == 12 * 400
