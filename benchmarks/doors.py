"""How many events a second the adapter takes in, beside a plain FastAPI handler that writes to Kafka.

    python benchmarks/doors.py [--repeats 5] [--seconds 5] [--output FILE.md]

Everything is on this machine: the load generator, the door and (for the rows with Kafka) a broker,
each in a process of its own. Rows take turns, so that a busy moment of the machine hits all of them.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvicorn

from penstock.bench.servers.broker import KafkaBroker
from penstock.bench.servers.process import free_port, kill, listens, spawn

ROOT = Path(__file__).parent.parent
LOADS = {"100 events a request, 16 connections": (16, 100), "1 event a request, 64 connections": (64, 1)}
PLAIN, LOG, KAFKA = "FastAPI, Kafka", "adapter, embedded log", "adapter, Kafka"
WHOLE = "FastAPI, Kafka, a message a request"


@contextmanager
def serving(command, scratch, environment=None):
    """A door at a port; yields nothing, and kills it at the end."""
    port = int(command[-1])
    process = spawn(command, scratch / f"{port}.log", environment)
    try:
        while not listens(port):
            assert process.poll() is None, (scratch / f"{port}.log").read_text()
            time.sleep(0.05)
        yield
    finally:
        kill(process)


def doors(stack, scratch, brokers):
    """The URL of each door."""
    app, ports = ROOT / "benchmarks/apps/door.py", {name: free_port() for name in (PLAIN, LOG, KAFKA)}
    adapter = [sys.executable, "-m", "penstock", "adapter", app]
    plain = [sys.executable, "-m", "uvicorn", "--app-dir", ROOT / "benchmarks/apps", "plain_door:app", "--no-access-log"]
    topic = f"Lines=kafka:{brokers}/penstock-lines"
    commands = {
        PLAIN: [*plain, "--port", str(ports[PLAIN])],
        LOG: [*adapter, "--spool", scratch / "log", "--port", str(ports[LOG])],
        KAFKA: [*adapter, "--spool", scratch / "kafka-spool", "--stream", topic, "--port", str(ports[KAFKA])],
    }
    for command in commands.values():
        stack.enter_context(serving([*map(str, command)], scratch, {"BROKERS": brokers}))
    paths = {PLAIN: (PLAIN, "lines"), WHOLE: (PLAIN, "requests"), LOG: (LOG, "streams/Lines"), KAFKA: (KAFKA, "streams/Lines")}
    return {name: f"http://127.0.0.1:{ports[door]}/{path}" for name, (door, path) in paths.items()}


def measured(url, connections, events, seconds):
    command = [sys.executable, ROOT / "benchmarks/load.py", url, "--seconds", str(seconds)]
    command += ["--connections", str(connections), "--events", str(events)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of one measurement, after 2 s of warm-up")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        scratch = Path(directory)
        broker = stack.enter_context(KafkaBroker(scratch / "broker", partitions=1))
        urls = doors(stack, scratch, broker.brokers)
        subprocess.run([sys.executable, "-c", CREATE, broker.brokers], check=True)
        for repeat in range(options.repeats):
            for load, (connections, events) in LOADS.items():
                for name, url in urls.items():
                    made = measured(url, connections, events, options.seconds)
                    assert not made["failed"], (name, made)
                    results.setdefault((load, name), []).append(made)
            print(f"    {repeat + 1} of {options.repeats}", file=sys.stderr, flush=True)
    lines = [
        f"{datetime.date.today()}, {os.cpu_count()} cores, uvicorn {uvicorn.__version__}, medians of {options.repeats} runs of "
        f"{options.seconds:g} s (least to most):",
        "",
        "| load, events of 200 bytes | door | events/s | times the plain handler | p50 of the answer | p99 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (load, name), runs in results.items():
        rates = [run["events_per_s"] for run in runs]
        rate, plain = statistics.median(rates), statistics.median(run["events_per_s"] for run in results[load, PLAIN])
        p50, p99 = (statistics.median(run[key] for run in runs) for key in ("p50_ms", "p99_ms"))
        spread = f"{rate:,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
        lines.append(f"| {load} | {name} | {spread} | {rate / plain:.2f} | {p50:.1f} ms | {p99:.1f} ms |")
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")


CREATE = """
import sys
from penstock.connectors.kafka.topic import Topic
from penstock.connectors.kafka.place import KafkaPlace
Topic(KafkaPlace(sys.argv[1], "lines"), create=True)
"""

if __name__ == "__main__":
    main()
