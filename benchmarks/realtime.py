"""Latency from producer to result topic, in real-time mode and in micro-batches, at 1,000 events/s.

    python benchmarks/realtime.py [--seconds 60] [--repeats 3] [--rate 1000] [--topologies T,T] [--modes M;M]
        [--output FILE.md]

An open-loop generator in a process of its own gives each event its intended send time; the latency is
from then to when this process has received the result that the event led to. The first 20 s after the
first result are left out. One broker, topics of one partition, the run with `penstock run`.
"""

import argparse
import datetime
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.bench.servers.broker import KafkaBroker
from penstock.bench.servers.process import kill, spawn

APP = Path(__file__).parent / "apps/realtime.py"
KEYS, WARM_UP_S, STARTING_S = 100, 20.0, 60.0
MODES = {
    "real-time, checkpoint every 5 min": ["--real-time", "--checkpoint-every", "5min"],
    "real-time, checkpoint every 60 s": ["--real-time", "--checkpoint-every", "60s"],
    "real-time, checkpoint every 5 s": ["--real-time", "--checkpoint-every", "5s"],
    "micro-batches": [],
}


def generate(brokers, topic, rate, seconds):
    """Send events when they are due, with what that moment was."""
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 0})
    began, late = time.time(), 0.0
    for number in range(int(rate * seconds)):
        due = began + number / rate
        while (now := time.time()) < due:
            time.sleep(min(0.001, due - now))
        late = max(late, now - due)
        producer.produce(topic, json.dumps({"key": f"k{number % KEYS}", "sent": due}))
        producer.poll(0)
    producer.flush()
    print(json.dumps({"latest_ms": late * 1e3}))


def measured(broker, scratch, topology, mode, options, number):
    """The latencies of one run, in seconds, and how late the generator was at most."""
    source, sink = f"in-{number}", f"out-{number}"
    admin = AdminClient({"bootstrap.servers": broker.brokers})
    for created in admin.create_topics([NewTopic(source, 1), NewTopic(sink, 1)]).values():
        created.result()
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        f"{APP}:{topology}",
        "--source",
        f"Readings=kafka:{broker.brokers}/{source}",
        "--sink",
        f"Out=kafka:{broker.brokers}/{sink}",
        "--runs",
        str(scratch),
        "--name",
        f"run-{number}",
        "--partitions",
        "1",
        "--master",
        "local[4]",
        *MODES[mode],
    ]
    run = spawn(command, scratch / f"run-{number}.log")
    consumer = Consumer({"bootstrap.servers": broker.brokers, "group.id": "latency", "enable.auto.commit": False})
    consumer.assign([TopicPartition(sink, 0, 0)])
    told = [str(STARTING_S + WARM_UP_S + options.seconds), str(options.rate)]
    generator = subprocess.Popen(
        [sys.executable, __file__, "--generate", broker.brokers, source, *told], stdout=subprocess.PIPE, text=True
    )
    got, first = [], None
    try:
        while generator.poll() is None or time.time() < got[-1][0] + 1:
            assert run.poll() is None, (scratch / f"run-{number}.log").read_text()[-2000:]
            for message in consumer.consume(2_000, 0.002):
                now = time.time()
                first = first or now
                got.append((now, json.loads(message.value())["sent"]))
            if first and time.time() > first + WARM_UP_S + options.seconds:
                break
    finally:
        generator.send_signal(signal.SIGTERM)
        generator.wait()
        run.send_signal(signal.SIGINT)
        try:
            run.wait(30)
        except subprocess.TimeoutExpired:
            kill(run)
        consumer.close()
    received, sent = np.array(got).T
    kept = received > first + WARM_UP_S
    return received[kept] - sent[kept]


def main():
    if sys.argv[1:2] == ["--generate"]:
        brokers, topic, seconds, rate = sys.argv[2:]
        generate(brokers, topic, float(rate), float(seconds))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--topologies", default="stateless,counting")
    parser.add_argument("--modes", default=";".join(MODES), help="some of them, divided by semicolons")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as directory, KafkaBroker(Path(directory) / "broker", partitions=1) as broker:
        number = 0
        for _ in range(options.repeats):
            for topology in options.topologies.split(","):
                for mode in options.modes.split(";"):
                    number += 1
                    latencies = measured(broker, Path(directory), topology, mode, options, number)
                    results.setdefault((topology, mode), []).append(np.quantile(latencies, [0.5, 0.95, 0.99, 1]) * 1e3)
                    print(f"    {topology}, {mode}: {results[topology, mode][-1].round(1)} ms", file=sys.stderr, flush=True)
    lines = [
        f"{datetime.date.today()}, {os.cpu_count()} cores, {options.rate:,.0f} events/s, {options.seconds:g} s after "
        f"{WARM_UP_S:g} s of warm-up, medians of {options.repeats} runs (p99: least to most), in milliseconds:",
        "",
        "| topology | mode | p50 | p95 | p99 | max |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for (topology, mode), runs in results.items():
        p50, p95, p99, most = (statistics.median(run[column] for run in runs) for column in range(4))
        spread = f"{min(run[2] for run in runs):,.0f} to {max(run[2] for run in runs):,.0f}"
        lines.append(f"| {topology} | {mode} | {p50:,.1f} | {p95:,.1f} | {p99:,.0f} ({spread}) | {most:,.0f} |")
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
