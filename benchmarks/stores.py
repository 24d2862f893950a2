"""Runs on a cluster whose nodes share no disk, with all they keep in a store; what a store costs; and kills on the way.

    python benchmarks/stores.py --store s3|hdfs [--kills 20] [--trials 3] [--events 200000] [--files 60] [--json FILE]
    python benchmarks/stores.py --cost [--json FILE]

The cluster is Spark's own standalone one, with a network namespace, an address and an empty private disk for each of its
master, driver and two workers; the store is HDFS (a NameNode and a DataNode), or S3's API served by the Versity gateway. Two
applications: example 1 of the first paper, and a keyed one with timers on event time. At random moments one of them is killed
with kill -9 and started again: the driver, a worker, or the store's server (of HDFS the DataNode or the NameNode). The results
must be those of an undisturbed run on a local disk.

With --cost, the same micro-batches on a local disk, S3 and HDFS: milliseconds each, and what of the store a warm one asks for,
listed by who asks, about what, and how. As root, but for --cost.
"""

import argparse
import collections
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

from calls import Call, between_commits, hdfs_calls, s3_calls
from servers.hdfs import Hdfs
from servers.s3 import KEYS, S3

from penstock.bench.cluster import Cluster
from penstock.storage import durable
from penstock.storage.journal import lines_of
from penstock.storage.place import path_of

ROOT = Path(__file__).parent.parent
WORK = Path("data/benchmarks/stores").absolute()
APPS = {"divisibility": ROOT / "examples/divisibility/app.py", "shops": Path(__file__).parent / "apps/shops.py"}
RECEIVERS = 4
SERVERS: dict[str, Any] = {"s3": S3, "hdfs": Hdfs}
PATIENCE_S = 600.0


def inputs(events: int, files: int) -> dict[str, Path]:
    """The sources' files, for each application in a directory."""
    for name in ("words", "sales"):
        shutil.rmtree(WORK / name, ignore_errors=True)
    words = WORK / "words"
    make = [sys.executable, str(ROOT / "examples/divisibility/words.py"), str(words), "--count", str(events)]
    subprocess.run([*make, "--files", str(files)], check=True, stdout=subprocess.DEVNULL)
    sales, random_ = WORK / "sales", random.Random(7)
    sales.mkdir(parents=True, exist_ok=True)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(files):
        lines = []
        for each in range(number * events // files, (number + 1) * events // files):
            at = start + timedelta(seconds=each * 36_000 / events)
            lines.append(json.dumps({"shop": random_.randrange(500), "amount": random_.randrange(100), "at": at.isoformat()}))
        file = sales / f"{number:04d}.jsonl"
        file.write_text("".join(f"{line}\n" for line in lines))
        os.utime(file, (1_700_000_000 + number * 60,) * 2)
    return {"divisibility": words, "shops": sales}


def command(app: str, source: str, runs: str) -> list[str]:
    """Runs an application, a file a micro-batch."""
    uri = f"RawWords=text:{source}" if app == "divisibility" else f"Sales=jsonl:{source}"
    own = ["--keys", str(RECEIVERS)] if app == "divisibility" else []
    return [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(APPS[app]),
        *own,
        "--source",
        f"{uri}?max_files=1",
        "--until-idle",
        "--partitions",
        "2",
        "--runs",
        runs,
        "--name",
        app,
    ]


def outcome(app: str, run: Path) -> dict[str, Any]:
    """What a run has counted, and what is in its output."""
    report = json.loads(durable.read(run / "report.json"))
    sink = run / "output" / ("Output" if app == "divisibility" else "Sold")
    files = sorted(name for name in durable.names(sink) if name.endswith(".jsonl"))
    events = [json.loads(line) for name in files for line in durable.read(sink / name).splitlines()]
    streams = report["streams"]
    if (
        app == "divisibility"
    ):  # totals come once a micro-batch, of which two may become one: each is new, and the last one right
        del streams["Totals"]
        per = collections.defaultdict(list)
        for event in events:
            per[event["by"]].append(event["count"])
        shown: Any = {by: [max(counts), len(counts) == len(set(counts))] for by, counts in sorted(per.items())}
    else:
        shown = sorted([one["shop"], one["since"], one["sales"], one["amount"]] for one in events)
    return {"counts": report["counts"], "streams": streams, "output": shown}


class Trial:
    """A run on a cluster with a store, and what is killed of it."""

    def __init__(self, cluster: Cluster, server: Any, app: str, seed: int) -> None:
        self._cluster, self._server, self._app = cluster, server, app
        self._random = random.Random(seed)
        self._address = cluster.driver.address
        self.kills: collections.Counter[str] = collections.Counter()
        self.starts = 0

    def run(self, source: str, runs: str, kills: int, between: tuple[float, float]) -> float:
        """Run to the end, with so many kills; returns the seconds it took."""
        began = time.monotonic()
        settings = [part for pair in self._cluster.conf.items() for part in ("--conf", "=".join(pair))]
        full = [*command(self._app, source, runs), "--master", self._cluster.master, *settings]
        environment = {**self._server.environment, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": self._address}
        done = False
        while not done:
            driver = self._cluster.driver.spawn(full, WORK / "driver.log", environment)
            self.starts += 1
            while sum(self.kills.values()) < kills and self._still(driver, self._random.uniform(*between)):
                if self._kill(driver) == "driver":
                    break
            else:
                done = driver.wait(PATIENCE_S) == 0
                if not done and self.starts > 3 * kills + 3:
                    raise SystemExit(f"The driver ends in vain; {WORK / 'driver.log'} has the reason.")
        return time.monotonic() - began

    @staticmethod
    def _still(driver: Any, seconds: float) -> bool:
        try:
            driver.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def _kill(self, driver: Any) -> str:
        victim = self._random.choice(["driver", "worker", "store"])
        self.kills[victim] += 1
        if victim == "driver":
            os.killpg(driver.pid, signal.SIGKILL)
            self._cluster.driver.kill()
        elif victim == "worker":
            node = self._random.choice(self._cluster.nodes)
            node.kill()
            self._cluster.start(node)
        else:
            if isinstance(self._server, Hdfs):
                self._server.kill_one(self._random.choice(["namenode", "datanode"]))
            else:
                self._server.kill()
            time.sleep(self._random.uniform(0, 3))
            self._server.start()
        print(f"  {victim} killed ({sum(self.kills.values())})", file=sys.stderr, flush=True)
        return victim


def put(local: Path, store: Path) -> None:
    """Copy input files to a store, in the order of their names."""
    for file in sorted(local.iterdir()):
        durable.write(store / file.name, file.read_bytes())


def survive(options: argparse.Namespace, report: dict[str, Any]) -> bool:
    """Kill, and compare."""
    files, held = inputs(options.events, options.files), True
    report["trials"] = []
    wanted = {}
    for app, directory in files.items():
        shutil.rmtree(WORK / "local" / app, ignore_errors=True)
        subprocess.run(command(app, str(directory), str(WORK / "local")), check=True, stdout=subprocess.DEVNULL)
        wanted[app] = outcome(app, WORK / "local" / app)
    with ExitStack() as stack:
        shutil.rmtree(WORK / "cluster", ignore_errors=True)
        shutil.rmtree(WORK / options.store, ignore_errors=True)
        os.environ.update(KEYS)  # each node has its own credentials, as on a real cluster
        cluster = stack.enter_context(Cluster(nodes=2, directory=WORK / "cluster", isolated=True, private=True, memory=2048))
        server = stack.enter_context(SERVERS[options.store](WORK / options.store, cluster.broker))
        os.environ.update(server.environment)
        for app, directory in files.items():
            source = f"{server.uri}/in/{app}"
            put(directory, path_of(source))
            for number in range(options.trials):
                runs = f"{server.uri}/runs-{number}"
                trial = Trial(cluster, server, app, options.seed + number)
                took = trial.run(source, runs, options.kills, (4.0, 20.0))
                found = outcome(app, path_of(runs) / app)
                right = found == wanted[app]
                held = held and right
                row = {
                    "store": options.store,
                    "app": app,
                    "kills": dict(trial.kills),
                    "starts": trial.starts,
                    "seconds": round(took, 1),
                    "right": right,
                    "counts": found["counts"],
                }
                report["trials"].append(row)
                print(json.dumps(row), flush=True)
                if not right:
                    print(json.dumps({"wanted": wanted[app], "found": found})[:4000], flush=True)
    return held


def cost(options: argparse.Namespace, report: dict[str, Any]) -> bool:
    """The same micro-batches in each place."""
    directory = inputs(options.events, options.files)["divisibility"]
    report["cost"] = []
    for store in ("disk", "s3", "hdfs"):
        shutil.rmtree(WORK / store, ignore_errors=True)
        with ExitStack() as stack:
            server = None if store == "disk" else stack.enter_context(_audited(store))
            if server is not None:
                os.environ.update(server.environment)
                put(directory, path_of(f"{server.uri}/in"))
            runs = str(WORK / "disk") if server is None else f"{server.uri}/runs"
            source = str(directory) if server is None else f"{server.uri}/in"
            subprocess.run(command("divisibility", source, runs), check=True, stdout=subprocess.DEVNULL)
            told = [json.loads(line) for line in lines_of(path_of(runs) / "divisibility" / "progress.jsonl")]
            batches = [one["durationMs"]["triggerExecution"] for one in told if one.get("numInputRows")][2:]
            row = {"place": store, "batches": len(batches), "median_ms": median(batches), "max_ms": max(batches)}
            share = None if server is None else between_commits(list(_calls(server)))
            if share is not None:
                row["calls_per_batch"] = round(sum(share.calls.values()) / share.batches, 1)
                row["calls"] = {", ".join(what): count / share.batches for what, count in sorted(share.calls.items())}
            report["cost"].append(row)
            print(json.dumps({name: value for name, value in row.items() if name != "calls"}), flush=True)
            if share is not None:
                print("\n".join(["", *share.table(), ""]), flush=True)
    return True


def _audited(store: str) -> S3 | Hdfs:
    """A server that keeps what it was asked for."""
    return S3(WORK / store) if store == "s3" else Hdfs(WORK / store, audited=True)


def _calls(server: S3 | Hdfs) -> Iterator[Call]:
    return s3_calls(server.access_log) if isinstance(server, S3) else hdfs_calls(server.audit_log)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", choices=list(SERVERS), default="s3")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    report: dict[str, Any] = {
        "day": str(datetime.now(UTC).date()),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "command": " ".join(sys.argv),
    }
    held = (cost if options.cost else survive)(options, report)
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    sys.exit(not held)


if __name__ == "__main__":
    main()
