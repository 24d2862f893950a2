"""A topic whose schema evolves twice while a run reads it, and kills on the way: what is committed must be there once.

    python benchmarks/schemas.py [--events 1000000] [--kills 20] [--trials 1] [--format avro] [--seed 1] [--json FILE]

A sender writes orders to a topic by a schema registry: a third of them by one schema, the next by one with another field that
has a default, the last by one with a third field that may be null. On a cluster of two workers an application (apps/orders.py)
passes them on to one topic, and writes sums by customer to another, in transactions, by schemas of its own. At random moments
the driver, a worker or the broker is killed with kill -9 and started again. Who then reads committed messages must find each
order once, with the fields that it was sent with, sums of each customer that only grow, and the last of them right. In some
places of the topic stands what is no message of a registry's: a dead letter each. As root.
"""

import argparse
import collections
import itertools
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apps.orders import Order, Sum
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from servers.registry import SchemaRegistry

from penstock.bench.cluster import Cluster
from penstock.bench.servers.broker import KafkaBroker
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.kafka.schema_registry import Registry, RegistryFrames
from penstock.connectors.kafka.topic import PRODUCER, Topic
from penstock.runtime.codec import Codec
from penstock.storage.journal import lines_of

ROOT = Path(__file__).parent.parent
WORK = Path("data/benchmarks/schemas").absolute()
CUSTOMERS, JUNK_EVERY = 500, 50_000
FIELDS: list[dict[str, Any]] = [
    *({"name": name, "type": "long"} for name in ("number", "customer", "amount")),
    {"name": "discount", "type": "int", "default": 0},
    {"name": "note", "type": ["null", "string"], "default": None},
]
VERSIONS = [{"type": "record", "name": "Order", "fields": FIELDS[:count]} for count in (3, 4, 5)]
PATIENCE_S = 600.0


def order(number: int, events: int) -> dict[str, Any]:
    """The order of a number, in the fields of the version by which it is sent."""
    version = number * len(VERSIONS) // events
    values = {
        "number": number,
        "customer": number * 7919 % CUSTOMERS,
        "amount": number % 1000,
        "discount": number % 7,
        "note": None if number % 3 else f"n{number}",
    }
    return {field["name"]: values[field["name"]] for field in VERSIONS[version]["fields"]}


class Sender(threading.Thread):
    """Sends all orders, evenly over some seconds."""

    def __init__(self, brokers: str, url: str, events: int, seconds: float) -> None:
        super().__init__(daemon=True)
        self._brokers, self._url, self._events, self._seconds = brokers, url, events, seconds
        self.junk = 0

    def run(self) -> None:
        client = SchemaRegistryClient({"url": self._url})
        producer = Producer({"bootstrap.servers": self._brokers, **PRODUCER, "linger.ms": 20, "log_level": 0})
        writers = [AvroSerializer(client, json.dumps(version)) for version in VERSIONS]
        context, began = SerializationContext("orders", MessageField.VALUE), time.monotonic()
        for number in range(self._events):
            values = order(number, self._events)
            message = writers[number * len(VERSIONS) // self._events](values, context)
            produce(producer, message, str(values["customer"]))
            if number % JUNK_EVERY == JUNK_EVERY // 2:
                produce(producer, b"{}", None)
                self.junk += 1
            if number % 200 == 0:
                time.sleep(max(0.0, began + self._seconds * number / self._events - time.monotonic()))
        producer.flush()


def produce(producer: Producer, message: bytes, key: str | None) -> None:
    """Hand a message over, waiting where the broker is away and all buffers are full."""
    while True:
        try:
            producer.produce("orders", message, key)
            producer.poll(0)
        except BufferError:
            producer.poll(0.1)
        else:
            return


class Trial:
    """A run, and what is killed of it."""

    def __init__(self, cluster: Cluster, broker: KafkaBroker, registry: SchemaRegistry, form: str, seed: int) -> None:
        self._cluster, self._broker, self._registry, self._form = cluster, broker, registry, form
        self._random = random.Random(seed)
        self.kills: collections.Counter[str] = collections.Counter()
        self.starts = 0

    def run(self, events: int, kills: int, pause: float) -> tuple[float, int]:
        """Run until all is read; returns the seconds it took, and how many messages were none."""
        began = time.monotonic()
        sender = Sender(self._broker.brokers, self._registry.url, events, kills * pause)
        sender.start()
        driver = None
        while sum(self.kills.values()) < kills:
            if driver is None or driver.poll() is not None:  # it may have said that the broker is away
                driver = self._start()
            time.sleep(self._random.uniform(0.5, 1.5) * pause)
            self._kill(driver)
        sender.join()
        if driver is not None and driver.poll() is None:
            driver.send_signal(signal.SIGINT)
            driver.wait(PATIENCE_S)
        for _ in range(3):  # where the first finds an executor that has just been killed
            if self._start("--until-idle").wait(PATIENCE_S) == 0:
                return time.monotonic() - began, sender.junk
        raise SystemExit(f"The run ends in vain; {WORK / 'driver.log'} has the reason.")

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        topic = f"kafka:{self._broker.brokers}/{{}}?registry={self._registry.url}"
        settings = [part for pair in self._cluster.conf.items() for part in ("--conf", "=".join(pair))]
        command = [
            sys.executable,
            "-m",
            "penstock",
            "run",
            str(ROOT / "benchmarks/apps/orders.py"),
            "--runs",
            str(WORK / "runs"),
            "--name",
            "run",
            "--source",
            f"Orders={topic.format('orders')}&max_rows=20000",
            "--partitions",
            "2",
            "--trigger",
            "1s",
            *(
                f"--sink={sink}={topic.format(sink.lower())}&schema={self._form}&transactions=yes"
                for sink in ("Passed", "Sums")
            ),
            "--master",
            self._cluster.master,
            *settings,
            *options,
        ]
        self.starts += 1
        environment = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": self._cluster.driver.address}
        return self._cluster.driver.spawn(command, WORK / "driver.log", environment)

    def _kill(self, driver: subprocess.Popen[bytes]) -> None:
        victim = self._random.choice(["driver", "worker", "broker"])
        self.kills[victim] += 1
        if victim == "driver":
            self._cluster.driver.kill()
            driver.wait()
        elif victim == "worker":
            node = self._random.choice(self._cluster.nodes)
            node.kill()
            self._cluster.start(node)
        else:
            self._broker.kill()
            time.sleep(self._random.uniform(0, 3))
            self._broker.start()
        print(f"  {victim} killed ({sum(self.kills.values())})", file=sys.stderr, flush=True)


def committed(brokers: str, registry: Registry, topic: str, event_type: Any) -> list[Any]:
    """All committed events of a topic, by partition and in its order."""
    found, frames, codec = Topic(KafkaPlace(brokers, topic)), RegistryFrames(registry), Codec(event_type)
    lows, ends = ({partition: place[side] for partition, place in found.bounds().items()} for side in (0, 1))
    messages = [message for some in found.read(lows, ends) for message in some]
    values = [message.value() or b"" for message in sorted(messages, key=lambda one: (one.partition(), one.offset()))]
    frames.prepare(values)
    return [frames.read(value, lambda found: codec.from_values(found, {})) for value in values]


def verdict(events: int, passed: list[Any], sums: list[Any], counts: dict[str, Any], junk: int) -> list[str]:
    """What is wrong."""
    wrong = []
    if sorted(one.number for one in passed) != list(range(events)):
        wrong.append(f"{len(passed)} orders were passed on, {len({one.number for one in passed})} different ones, of {events}")
    if any(one != Order(**order(one.number, events)) for one in passed):
        wrong.append("an order was changed on its way")
    wanted: dict[int, list[int]] = collections.defaultdict(lambda: [0, 0])
    for each in (Order(**order(number, events)) for number in range(events)):
        wanted[each.customer][0] += 1
        wanted[each.customer][1] += each.amount - each.discount
    told = collections.defaultdict(list)
    for each in sums:
        told[each.customer].append(each)
    if {customer: [some[-1].orders, some[-1].amount] for customer, some in told.items()} != dict(wanted):
        wrong.append("the last sums are not those of the orders")
    if any(one.orders >= after.orders for some in told.values() for one, after in itertools.pairwise(some)):
        wrong.append("a sum was said twice, or came too late")
    if (counts["accepted"], counts["dead_lettered"], counts["lost"], counts["duplicated"]) != (events + junk, junk, 0, 0):
        wrong.append(f"the report counts {counts}, and {junk} messages were none")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--pause", type=float, default=15.0, help="Seconds between kills, on average.")
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--format", choices=["avro", "protobuf", "json"], default="avro", help="Of what is written.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    report: dict[str, Any] = {
        "day": str(datetime.now(UTC).date()),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "command": " ".join(sys.argv),
        "trials": [],
    }
    held = True
    for number in range(options.trials):
        shutil.rmtree(WORK, ignore_errors=True)
        WORK.mkdir(parents=True)
        with ExitStack() as stack:
            cluster = stack.enter_context(Cluster(nodes=2, directory=WORK / "cluster", isolated=True, memory=2048))
            broker = stack.enter_context(KafkaBroker(WORK / "kafka", node=cluster.broker))
            registry = stack.enter_context(SchemaRegistry(WORK / "registry", cluster.client))
            registry.demand("BACKWARD")
            admin = AdminClient({"bootstrap.servers": broker.brokers})
            admin.create_topics([NewTopic("orders", 4)])["orders"].result()
            SchemaRegistryClient({"url": registry.url}).register_schema("orders-value", Schema(json.dumps(VERSIONS[0]), "AVRO"))
            trial = Trial(cluster, broker, registry, options.format, options.seed + number)
            seconds, junk = trial.run(options.events, options.kills, options.pause)
            known = Registry(registry.url)
            passed, sums = (committed(broker.brokers, known, topic, kind) for topic, kind in (("passed", Order), ("sums", Sum)))
            counts = json.loads((WORK / "runs/run/report.json").read_text())["counts"]
            wrong = verdict(options.events, passed, sums, counts, junk)
            row = {
                "kills": dict(trial.kills),
                "starts": trial.starts,
                "seconds": round(seconds, 1),
                "wrong": wrong,
                "counts": counts,
                "batches": len(list(lines_of(WORK / "runs/run/batches-main.jsonl"))),
            }
        held = held and not wrong
        report["trials"].append(row)
        print(json.dumps(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(not held)


if __name__ == "__main__":
    main()
