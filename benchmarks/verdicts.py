"""Verdicts on the progress logs of real queries whose condition is known.

    python benchmarks/verdicts.py [--directory build/verdicts] [--seconds 45] [--only NAME,NAME]

Each condition is a query of its own in one session; its log is kept, so that an interrupted benchmark goes on where it
was. Prints the verdict on each, and whether it is right.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import penstock
from penstock.bench.servers.broker import KafkaBroker
from penstock.connectors.kafka.place import JARS
from penstock.engine.session.maven import jars_of
from penstock.engine.session.spark import start_session
from penstock.planner import observe, verdicts

HERE = Path(__file__).parent


RIGHT = {
    "healthy": ("healthy",),
    "too-long": ("trigger too long",),
    "too-short": ("trigger too short",),
    "saturated": ("saturated",),
    "skewed": ("skewed",),
    "slow-sink": ("slow sink",),
    "state-growing": ("state growing",),
    "pauses": ("garbage collection",),
    "throttled": ("source throttled",),
    "idle": ("idle",),
    "rising": ("rate rising",),
    "cut-off": ("healthy",),
}
"""The conditions, and the verdicts that are right."""


class Source:
    """A topic that a thread fills: ``rate(seconds)`` messages a second, spread over partitions by shares."""

    def __init__(self, brokers: str, topic: str, rate: Callable[[float], float], shares: list[float]) -> None:
        admin = AdminClient({"bootstrap.servers": brokers})
        for made in admin.create_topics([NewTopic(topic, len(shares))]).values():
            made.result()
        self._producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5, "queue.buffering.max.messages": 500_000})
        self._topic, self._rate, self._shares, self._over = topic, rate, shares, threading.Event()
        self._thread = threading.Thread(target=self._fill, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush(10)

    def _fill(self) -> None:
        began, owed, last, number = time.time(), 0.0, time.time(), 0
        draw = random.Random(1)
        while not self._over.wait(0.02):
            now = time.time()
            owed += self._rate(now - began) * (now - last)
            last = now
            while owed >= 1:
                partition = draw.choices(range(len(self._shares)), self._shares)[0]
                self._producer.produce(self._topic, f"{number:020d}", partition=partition)
                owed, number = owed - 1, number + 1
            self._producer.poll(0)


def work(frame: Any, rounds: int) -> Any:
    """Work for the JVM: a chain of digests of each message."""
    chain = f"aggregate(sequence(1, {rounds}), CAST(value AS STRING), (digest, number) -> sha2(digest, 512))"
    return frame.selectExpr(f"{chain} AS digest")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=HERE.parent / "build" / "verdicts")
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    wanted = options.only.split(",") if options.only else list(RIGHT)
    left = [name for name in wanted if not (options.directory / f"{name}.jsonl").exists() and name != "cut-off"]
    if left:
        record(options.directory, left, options.seconds)
    if (options.directory / "healthy.jsonl").exists():
        text = (options.directory / "healthy.jsonl").read_text()
        (options.directory / "cut-off.jsonl").write_text(text[: len(text) - len(text.splitlines()[-1]) // 2])
    print("| condition | verdict | right | what was said |\n| --- | --- | --- | --- |")
    for name in wanted:
        found = verdicts(observe(options.directory / f"{name}.jsonl"))[0]
        right = found.kind in RIGHT[name]
        mark = "yes" if right else "no, and not sure" if not found.confident else "**no**"
        print(f"| {name} | {found.kind}{'' if found.confident else ' (not sure)'} | {mark} | {found.text} |")


def record(directory: Path, names: list[str], seconds: float) -> None:
    """Run the queries, each watched."""
    with ExitStack() as stack, (directory / "spark.log").open("ab") as log:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        spark = start_session("verdicts", "local[2]", log, {}, jars=jars_of([JARS]))
        stack.callback(spark.stop)
        spark.conf.set("spark.sql.shuffle.partitions", "2")
        broker = stack.enter_context(KafkaBroker(scratch / "kafka"))
        for name in ["warm-up", *names]:
            log_file = directory / f"{name}.jsonl"
            print(f"{time.strftime('%T')} {name} ...", file=sys.stderr, flush=True)
            part = log_file.with_suffix(".part")
            part.unlink(missing_ok=True)
            run(spark, broker.brokers, name, scratch / name, part, seconds)
            part.rename(log_file)


def run(spark: Any, brokers: str, name: str, scratch: Path, log: Path, seconds: float) -> None:
    """One query, whose log is kept."""
    rates: dict[str, Callable[[float], float]] = {
        "saturated": lambda _: 6000.0,
        "rising": lambda at: 300 + 25 * at,
        "idle": lambda at: 200.0 if at < 4 else 0.0,
        "throttled": lambda _: 1000.0,
        "slow-sink": lambda at: 200 + 150 * (int(at / 5) % 2),
        "too-long": lambda _: 500.0,
    }
    shares = [0.88, 0.04, 0.04, 0.04] if name == "skewed" else [0.5, 0.5]
    source = Source(brokers, name, rates.get(name, lambda _: 800.0), shares)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", brokers).option("subscribe", name)
    reader = reader.option("startingOffsets", "earliest")
    if name == "throttled":
        reader = reader.option("maxOffsetsPerTrigger", 1000)
    trigger = {"too-long": 8.0, "too-short": 0.1, "saturated": 0.0, "pauses": 0.0, "throttled": 2.0, "slow-sink": 4.0}
    frame, mode = work(reader.load(), 450 if name == "saturated" else 10), "append"
    if name == "state-growing":
        frame, mode = frame.groupBy("digest").count(), "update"
    ballast = None
    if name == "pauses":  # a heap full of objects, which a full collection has to walk through
        ballast = spark.range(3_000_000).selectExpr("id", "repeat(cast(id AS STRING), 4) AS text").cache()
        ballast.count()

    def write(batch: Any, number: int) -> None:
        batch.write.format("noop").mode("append").save()
        if name == "slow-sink":
            time.sleep(2.5)
        if name == "pauses" and number % 15 == 14:
            for _ in range(3):
                spark._jvm.java.lang.System.gc()

    with penstock.watch(spark, log):
        query = (
            frame.writeStream.queryName(name.replace("-", "_"))
            .outputMode(mode)
            .foreachBatch(write)
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .trigger(processingTime=f"{round(trigger.get(name, 1.0) * 1000)} milliseconds")
            .start()
        )
        source.start()
        time.sleep(max(seconds, 14 * trigger.get(name, 1.0)))
        source.stop()
        query.stop()
        time.sleep(1)
    if ballast is not None:
        ballast.unpersist()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    log.write_text("".join(json.dumps(slimmed(line)) + "\n" for line in lines))
    shutil.rmtree(scratch, ignore_errors=True)


def slimmed(progress: dict[str, Any]) -> dict[str, Any]:
    """Without the state store's own metrics, which are long and not used."""
    for operator in progress.get("stateOperators", ()):
        operator.pop("customMetrics", None)
    return progress


if __name__ == "__main__":
    main()
