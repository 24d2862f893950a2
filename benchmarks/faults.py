"""Kills every part of a pipeline with kill -9 at random moments, and counts its events.

    python benchmarks/faults.py [--events 1000000] [--faults 20] [--runs 3] [--seed 1] [--output FILE.md]
        [--stores log,kafka] [--sinks files,postgres]

A producer sends numbered events through the adapter; a run on a standalone cluster of two workers
counts them by customer and hands them on to a sink. Killed in turn, at random moments: the adapter,
the driver with its JVM, a worker with its executor, the Kafka broker, the PostgreSQL server. Whoever
died is started again by the same command. At the end every acknowledged event must be in the result
exactly once, and each customer's events must be numbered from 1 without a gap.
"""

import argparse
import asyncio
import datetime
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import psycopg
import pyarrow.compute as pc
import pyarrow.json as pj
from servers.postgres import PostgresServer

from penstock.bench.cluster import Cluster
from penstock.bench.servers.broker import KafkaBroker
from penstock.bench.servers.process import free_port, kill, listens, spawn
from penstock.client import AsyncClient

APP = Path(__file__).parent / "apps/orders.py"
WORK = Path("data/faults")
CUSTOMERS, BATCH, SENDERS = 1_000, 500, 4
BETWEEN_S = (3.0, 8.0)


class Supervised:
    """A process that is started again whenever it ends, until it is released."""

    def __init__(self, name, command, log):
        self.name, self._command, self._log = name, [str(part) for part in command], log
        self.starts, self._released = 0, threading.Event()
        self._start()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def kill(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)

    def release(self, number=signal.SIGINT):
        """Ask it to stop, and wait for it."""
        self._released.set()
        self._thread.join()
        self.process.send_signal(number)
        try:
            self.process.wait(90)
        except subprocess.TimeoutExpired:
            kill(self.process)

    def _start(self):
        self.starts += 1
        self.process = spawn(self._command, self._log)

    def _keep(self):
        while not self._released.wait(0.2):
            if self.process.poll() is not None:
                self._start()


async def produce(url, events, told):
    """Send all events in order of their numbers from several senders; returns how often requests were repeated."""
    numbers = iter(range(0, events, BATCH))
    async with AsyncClient(url, patience=600) as client:

        async def sender():
            retries = duplicates = 0
            for first in numbers:
                batch = [{"id": n, "customer": n * 7919 % CUSTOMERS} for n in range(first, min(first + BATCH, events))]
                sent = await client.send("Orders", batch, id_field="id")
                assert sent.accepted + sent.duplicates == len(batch), sent
                retries, duplicates = retries + sent.retries, duplicates + sent.duplicates
                told["acknowledged"] += len(batch)
                while told["acknowledged"] > told["allowed"]():
                    await asyncio.sleep(0.05)
            return retries, duplicates

        return np.sum(await asyncio.gather(*(sender() for _ in range(SENDERS))), axis=0)


def trial(store, sink, options, seed):
    """One run; returns its row of the table."""
    random_ = random.Random(seed)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    began = time.monotonic()
    with ExitStack() as stack:
        scratch = WORK.absolute()
        cluster = stack.enter_context(Cluster(nodes=2, directory=scratch / "cluster", isolated=False))
        port, streams, source = free_port(), [], f"log:{scratch / 'spool'}"
        victims = {"adapter": None, "driver": None, "worker": None}
        if store == "kafka":
            broker = stack.enter_context(KafkaBroker(scratch / "kafka"))
            source = f"kafka:{broker.brokers}/orders"
            streams = ["--stream", f"Orders={source}"]
            victims["broker"] = broker
        target = f"jsonl:{scratch / 'out'}"
        if sink == "postgres":
            server = stack.enter_context(PostgresServer(scratch / "postgres"))
            target = server.uri
            victims["postgres"] = server
        penstock = [sys.executable, "-m", "penstock"]
        adapter = Supervised(
            "adapter",
            [*penstock, "adapter", APP, "--spool", scratch / "spool", "--port", port, *streams],
            scratch / "adapter.log",
        )
        stack.callback(lambda: kill(adapter.process))
        while not listens(port):
            time.sleep(0.1)
        settings = [part for key, value in cluster.conf.items() for part in ("--conf", f"{key}={value}")]
        run = [
            *penstock,
            "run",
            APP,
            "--source",
            f"Orders={source}?max_rows=50000",
            "--sink",
            f"Out={target}",
            "--runs",
            scratch,
            "--name",
            "run",
            "--master",
            cluster.master,
            *settings,
        ]
        driver = Supervised("driver", run, scratch / "driver.log")
        stack.callback(lambda: kill(driver.process))
        kills = dict.fromkeys(victims, 0)
        # The producer keeps pace with the faults, so that all of them find events on their way.
        told = {"acknowledged": 0, "allowed": lambda: options.events * (sum(kills.values()) + 1) / (options.faults + 1)}
        result = {}
        producer = threading.Thread(
            target=lambda: result.update(sent=asyncio.run(produce(f"http://127.0.0.1:{port}", options.events, told)))
        )
        time.sleep(12)
        producer.start()
        order = [name for name in victims for _ in range(-(-options.faults // len(victims)))]
        random_.shuffle(order)
        for name in order[: options.faults]:
            time.sleep(random_.uniform(*BETWEEN_S) + (6 if name == "driver" else 0))
            strike(name, victims, adapter, driver, cluster, random_)
            kills[name] += 1
            print(f"      {name} killed, {told['acknowledged']:,} acknowledged", file=sys.stderr, flush=True)
        producer.join()
        driver.release()
        done = subprocess.run([*map(str, run), "--until-idle", "--json"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        counts = json.loads(done.stdout)["counts"]
        adapter.release(signal.SIGTERM)
        ids, nths, customers = rows_of(sink, scratch / "out", target)
        verdict = judged(options.events, ids, nths, customers)
    retries, duplicates = result["sent"]
    return {
        "store": store,
        "sink": sink,
        "faults": ", ".join(f"{count} {name}" for name, count in kills.items()),
        "acknowledged": told["acknowledged"],
        "retried": int(retries),
        "known": int(duplicates),
        "in the result": len(ids),
        **verdict,
        "counted lost": counts["lost"],
        "counted duplicated": counts["duplicated"],
        "seconds": round(time.monotonic() - began),
    }


def strike(name, victims, adapter, driver, cluster, random_):
    """Kill one, and start it again where nobody else does."""
    if name == "adapter":
        adapter.kill()
    elif name == "driver":
        driver.kill()
    elif name == "worker":
        random_.choice([node for node in cluster.nodes if node.alive]).kill()
        cluster.add_node()
    else:
        victims[name].kill()
        time.sleep(1.0)
        victims[name].start()


def rows_of(sink, directory, uri):
    """The result: numbers of the events, their places among their customer's, and the customers."""
    if sink == "postgres":
        with psycopg.connect(uri) as connection:
            rows = connection.execute('SELECT id, nth, customer FROM "Out"').fetchall()
        return tuple(np.array(rows, np.int64).T)
    tables = [pj.read_json(file) for file in sorted(directory.glob("*.jsonl"))]
    return tuple(
        np.concatenate([pc.cast(table[name], "int64").to_numpy() for table in tables]) for name in ("id", "nth", "customer")
    )


def judged(events, ids, nths, customers):
    """What is missing, double or misnumbered."""
    present, times = np.unique(ids, return_counts=True)
    order = np.lexsort((nths, customers))
    firsts = np.flatnonzero(np.diff(customers[order], prepend=-1))
    expected = np.arange(len(order)) - np.repeat(firsts, np.diff(firsts, append=len(order))) + 1
    return {
        "missing": events - len(present),
        "double": int((times - 1).sum()),
        "misnumbered": int((nths[order] != expected).sum()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3, help="of each combination")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stores", default="log,kafka")
    parser.add_argument("--sinks", default="files,postgres")
    parser.add_argument("--output", type=Path, help="a file that gets a row as soon as its run has ended")
    options = parser.parse_args()
    held = total = 0
    head = None
    for number in range(options.runs):
        for store in options.stores.split(","):
            for sink in options.sinks.split(","):
                seed = options.seed + number
                row = trial(store, sink, options, f"{seed} {store} {sink}")
                good = not any(row[name] for name in ("missing", "double", "misnumbered", "counted lost", "counted duplicated"))
                good = good and row["acknowledged"] == row["in the result"] == options.events
                held, total = held + good, total + 1
                lines = [f"| {' | '.join(f'{value:,}' if isinstance(value, int) else value for value in row.values())} |"]
                if head is None:
                    head = [f"| {' | '.join(row)} |", f"|{' --- |' * len(row)}"]
                    lines = [f"{datetime.date.today()}, {os.cpu_count()} cores, seed {options.seed}:", "", *head, *lines]
                print("\n".join(lines), flush=True)
                if options.output:
                    with options.output.open("a") as file:
                        file.write("\n".join(lines) + "\n")
    print(f"\n{held} of {total} runs have every acknowledged event exactly once in their result.")
    sys.exit(held < total)


if __name__ == "__main__":
    main()
