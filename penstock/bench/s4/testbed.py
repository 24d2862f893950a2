"""The testbed of a cluster, a broker, a driver and a client, which measures one cell at a time."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

import penstock
from penstock.bench.cluster import Cluster, Node, Sampler
from penstock.bench.s4.cells import Cell
from penstock.bench.s4.driver import ORDERS, OVER, Order
from penstock.bench.s4.follow import Course, LedgerFollower
from penstock.bench.s4.given import GivenCluster
from penstock.bench.s4.workload import expected, words_file
from penstock.bench.servers.broker import KafkaBroker
from penstock.bench.servers.process import Process, kill
from penstock.errors import ClusterError

WARM_UP = 600
"""Words of a cell that are sent before the measured ones, so that executors and their Python workers are up."""
AGEING = 8_000
"""Words of the discarded run in which the JVMs of a new testbed compile their code."""
START_S, PATIENCE_S, BACK_S = 240.0, 120.0, 8.0
"""Seconds allowed for a run's first commit, and for a cell beyond its own time; seconds until a killed node returns."""
MOST_ROWS = 20_000
"""Most words in a micro-batch: twice as many, with 8 keys, exceed the memory of a 1.5 GB node, whose executor is killed."""
SLOWEST = 50.0
"""Words per second below which a cell without a rate times out."""

Json = dict[str, Any]


class Testbed:
    """A context in which cells can be measured, on a cluster that can grow.

    Files of all its runs stay until it ends, because an executor that starts later fetches what each run has shipped.

    Args:
        cluster: the cluster, not yet entered.
        nodes: its number of workers.
        directory: for logs and runs; files of words are put beside it.

    Raises:
        ClusterError: a part does not start; the error names its log.
    """

    def __init__(self, cluster: Cluster | GivenCluster, nodes: int, directory: Path) -> None:
        self._cluster, self._nodes, self._directory = cluster, nodes, directory
        self._stack = ExitStack()

    def __enter__(self) -> "Testbed":
        try:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory.mkdir(parents=True)
            self._stack.enter_context(self._cluster)
            self._broker = self._stack.enter_context(KafkaBroker(self._directory / "kafka", node=self._cluster.broker))
            self._start_driver()
            self._age()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def grow(self, nodes: int) -> None:
        """Add nodes until there are ``nodes``; never remove any.

        Raises:
            ClusterError: a node does not start.
        """
        if isinstance(self._cluster, Cluster) and nodes > len(self._cluster.nodes):
            while len(self._cluster.nodes) < nodes:
                self._cluster.add_node()
            self._nodes = nodes
            self._age()

    def _age(self) -> None:
        """Make a run whose result is discarded, because JVMs get faster at first."""
        self.measure(Cell("grid", self._nodes, 8, None, AGEING, repetition=-self._nodes))

    def measure(self, cell: Cell) -> Json:
        """Run a cell, and return its result as data for JSON.

        Raises:
            ClusterError: the run or a part of the testbed has failed.
        """
        self._words = words_file(self._directory.parent, WARM_UP + cell.words)
        self._make_topic(cell.name, cell.nodes)
        order = Order(cell.name, cell.keys, f"kafka:{self._broker.brokers}/{cell.name}?max_rows={MOST_ROWS}", cell.nodes)
        follower = LedgerFollower(self._directory / "runs" / cell.name / "batches-main.jsonl")
        self._order(order)
        self._await(follower, WARM_UP, START_S, cell, self._send(cell, 0, WARM_UP, 300.0))
        fault = Fault(self, cell, order)
        with Sampler(self._cluster.everything) as sampler:
            client = self._send(cell, WARM_UP, cell.words, cell.rate)
            usual = cell.words / SLOWEST if cell.rate is None else 3 * cell.words / cell.rate
            self._await(follower, WARM_UP + cell.words, usual + PATIENCE_S, cell, client, fault)
            until = time.time()
        over = self._finish(order)
        sent = client.told()
        if sent["failed"]:
            raise ClusterError(f"The broker has refused {sent['failed']} words of {cell.name}.")
        loads = sampler.loads(sent["began"], until)
        fault.mend()
        usage = {name: asdict(load) for name, load in loads.items()}
        return self._result(cell, Course.of(follower.records, WARM_UP), sent, over, usage, fault)

    def _result(self, cell: Cell, course: Course, sent: Json, over: Json, usage: Json, fault: "Fault") -> Json:
        with self._words.open() as lines:
            expected_totals = expected((line.strip() for line in islice(lines, WARM_UP + cell.words)), cell.keys)
        counted = over["totals"]
        last = float(course.times[-1]) if len(course.times) else sent["at"]
        result = {
            **msgspec.to_builtins(cell),
            "events": cell.words,
            "name": cell.name,
            "lost": sum(max(0, expected_totals[divisor] - counted.get(divisor, 0)) for divisor in expected_totals),
            "duplicated": sum(max(0, counted.get(divisor, 0) - expected_totals[divisor]) for divisor in expected_totals),
            "processed": counted.get("Three", 0),
            "expected": expected_totals["Three"],
            "throughput": cell.words / (last - sent["began"]),
            "seconds": last - sent["began"],
            "latency": course.latency(),
            "counts": over["counts"],
            "usage": usage,
            "batches": len(course.times),
            "isolated": self._cluster.isolated,
            "notes": list(self._cluster.notes),
            "version": penstock.__version__,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(sent["began"])),
        }
        if fault.struck is not None and cell.rate is not None:
            took = course.recovered(fault.struck, sent["began"], cell.rate, cell.words)
            result |= {
                "recovery_seconds": took,
                "throughput_before": course.throughput(sent["began"], fault.struck),
                "throughput_during": course.throughput(fault.struck, fault.struck + took),
                "throughput_after": course.throughput(fault.struck + took, last),
                "struck": fault.struck - sent["began"],
                "course": [
                    [float(at) - sent["began"], float(words)] for at, words in zip(course.times, course.words, strict=True)
                ],
            }
        return result

    # --- the parts -----------------------------------------------------------------------------------------------

    def _start_driver(self) -> None:
        pipe = self._directory / ORDERS
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        settings = [f"{key}={value}" for key, value in self._cluster.conf.items()]
        command = [sys.executable, "-m", "penstock.bench.s4.driver", self._cluster.master, self._directory, *settings]
        log = self._directory / "driver.log"
        self._driver: Process = self._cluster.driver.spawn(command, log)

    def kill_driver(self) -> None:
        """``kill -9`` the driver and its JVM."""
        self._cluster.driver.kill()

    def resume(self, order: Order) -> None:
        """Start a new driver after a kill, and resume the run on it."""
        self._start_driver()
        self._order(order)

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the workers."""
        return self._cluster.nodes

    def start(self, node: Node) -> None:
        """Start the worker of a killed node again."""
        assert isinstance(self._cluster, Cluster)
        self._cluster.start(node)

    def _order(self, order: Order) -> None:
        """Send an order to the driver as soon as it listens."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                pipe = os.open(self._directory / ORDERS, os.O_WRONLY | os.O_NONBLOCK)
                break
            except OSError:  # the driver does not read from the pipe yet
                self._check_driver()
                if time.monotonic() > deadline:
                    raise ClusterError(f"The driver reads no orders; {self._directory / 'driver.log'} may say why.") from None
                time.sleep(0.1)
        os.write(pipe, msgspec.json.encode(order) + b"\n")
        os.close(pipe)

    def _check_driver(self) -> None:
        if self._driver.poll() is not None:
            raise ClusterError(f"The driver has ended; {self._directory / 'driver.log'} and spark.log have the reason.")

    def _make_topic(self, name: str, partitions: int) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self._broker.brokers})
        try:
            for created in admin.create_topics([NewTopic(name, partitions)]).values():
                created.result()
            deadline = time.monotonic() + PATIENCE_S
            while name not in admin.list_topics(timeout=10).topics and time.monotonic() < deadline:
                time.sleep(0.1)  # the broker confirms a topic before its metadata has it
        except KafkaException as error:
            raise ClusterError(f"The broker cannot make the topic {name} ({error}).") from error

    def _send(self, cell: Cell, skip: int, count: int, rate: float | None) -> "ClientProcess":
        report = self._directory / f"sent-{cell.name}-{skip}.json"
        report.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "penstock.bench.s4.sender",
            self._broker.brokers,
            cell.name,
            self._words,
            "--skip",
            str(skip),
            "--count",
            str(count),
            "--partitions",
            str(cell.nodes),
            "--told",
            report,
        ]
        if rate is not None:
            command += ["--rate", str(rate)]
        log = self._directory / "sender.log"
        return ClientProcess(self._cluster.client.spawn(command, log), report, log)

    def _await(
        self,
        follower: LedgerFollower,
        words: int,
        seconds: float,
        cell: Cell,
        client: "ClientProcess",
        fault: "Fault | None" = None,
    ) -> None:
        """Wait until ``words`` words are processed.

        Raises:
            ClusterError: it takes longer than ``seconds``, or a part has ended.
        """
        over = follower.path.with_name(OVER)
        deadline = time.monotonic() + seconds
        while (processed := follower.look()) < words:
            if over.exists():
                raise ClusterError(f"The run {cell.name} has ended too soon: {json.loads(over.read_text()).get('error')}")
            client.check()
            if fault is None or not fault.strikes_driver:
                self._check_driver()
            if time.monotonic() > deadline:
                client.kill()
                raise ClusterError(
                    f"{cell.name} has not ended in {seconds:.0f} s: {processed:,} of {words:,} words were processed; "
                    f"{self._directory / 'spark.log'} may say why."
                )
            if fault is not None:
                fault.look(client)
            time.sleep(0.2)

    def _finish(self, order: Order) -> Json:
        """End the run, and return its totals and counts."""
        over = self._directory / "runs" / order.name / OVER
        deadline = time.monotonic() + PATIENCE_S
        while not over.exists():
            self._check_driver()
            os.kill(self._driver.pid, signal.SIGINT)  # the driver has replaced its wrapping commands
            until = time.monotonic() + 20
            while not over.exists() and time.monotonic() < min(until, deadline):
                time.sleep(0.1)
            if time.monotonic() > deadline:
                raise ClusterError(f"The run {order.name} does not end; {self._directory / 'spark.log'} may say why.")
        outcome: Json = json.loads(over.read_text())
        if "error" in outcome:
            raise ClusterError(f"The run {order.name} has failed: {outcome['error']}")
        return outcome


class ClientProcess:
    """The client's process, which sends words.

    Args:
        file: the file to which the client writes how many words have been acknowledged.
    """

    def __init__(self, process: Process, file: Path, log: Path) -> None:
        self._process, self._file, self._log = process, file, log

    def told(self) -> Json:
        """The client's last report; before the first one, no words acknowledged."""
        nothing: Json = {"acknowledged": 0, "failed": 0}
        return json.loads(self._file.read_text()) if self._file.exists() else nothing

    def check(self) -> None:
        """Raise ``ClusterError`` if the client has failed."""
        if self._process.poll():
            raise ClusterError(f"The client has failed; {self._log} has the reason.")

    def kill(self) -> None:
        """Kill the client, so that it sends nothing during the next cell."""
        kill(self._process)


class Fault:
    """The fault of a cell: kills nodes or the driver when half of the words are acknowledged, and restarts them."""

    def __init__(self, testbed: Testbed, cell: Cell, order: Order) -> None:
        self._testbed, self._cell, self._order = testbed, cell, order
        self.struck: float | None = None
        self._dead: list[Node] = []

    @property
    def strikes_driver(self) -> bool:
        """Whether the fault kills the driver."""
        return self._cell.kill == "driver"

    def look(self, client: ClientProcess) -> None:
        """Kill if it is time to, and restart killed nodes that are to return."""
        if not self._cell.kill:
            return
        if self.struck is None:
            if client.told()["acknowledged"] >= self._cell.words / 2:
                self._strike()
        elif self._cell.kill.endswith("back again") and self._dead and time.time() > self.struck + BACK_S:
            self.mend()

    def _strike(self) -> None:
        self.struck = time.time()
        if self.strikes_driver:
            self._testbed.kill_driver()
            self._testbed.resume(self._order)
            return
        self._dead = self._testbed.nodes[-int(self._cell.kill[0]) :]
        for node in self._dead:
            node.kill()

    def mend(self) -> None:
        """Start all killed nodes again."""
        while self._dead:
            self._testbed.start(self._dead.pop())


def summary(result: Mapping[str, Any]) -> str:
    """Describe a cell's result in a line, for the progress output."""
    recovery = f", recovered in {result['recovery_seconds']:.1f} s" if "recovery_seconds" in result else ""
    return (
        f"{result['throughput']:,.0f} words/s, p95 {result['latency'].get('p95', float('nan')):.1f} s, lost {result['lost']}, "
        f"duplicated {result['duplicated']}{recovery}"
    )
