"""Kills runs of example 1 with kill -9 at random moments, starts them again, and checks that nothing is lost or doubled.

    python benchmarks/survive.py [--trials 10] [--seed 1] [--output FILE.md]

Three kinds of victim: the driver's Python process alone, the driver with its JVM, and a worker of a
standalone cluster of two with its executor (a new worker takes its place). A killed driver is
started again with the same command, and may be killed again, up to three times.
"""

import argparse
import datetime
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from penstock.bench.cluster import Cluster

ROOT = Path(__file__).parent.parent
WORK = Path("data/survive")
WORDS, KEYS, FILES = 200_000, 4, 10
Row = tuple[str, ...]


def command(master: str, conf: dict[str, str]) -> list[str]:
    source = f"RawWords=text:{(WORK / 'words').absolute()}?max_files=1"
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    return [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(ROOT / "examples/divisibility/app.py"),
        "--keys",
        str(KEYS),
        "--source",
        source,
        "--until-idle",
        "--runs",
        str(WORK),
        "--name",
        "run",
        "--master",
        master,
        *settings,
    ]


def start(master: str, conf: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command(master, conf), start_new_session=True, stdout=subprocess.DEVNULL)


def committed() -> int:
    ledger = WORK / "run" / "batches-main.jsonl"
    return len(ledger.read_bytes().splitlines()) if ledger.exists() else 0


def kill_driver(random_: random.Random, whole: bool) -> int:
    """Kill the driver up to three times; returns how often."""
    kills = 0
    while True:
        process = start("local[2]", {})
        if kills == 3 or not wait_for_moment(process, random_, (8, 22)):
            assert process.wait() == 0
            return kills
        if whole:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()
        kills += 1


def kill_worker(random_: random.Random, cluster: Cluster) -> int:
    """Kill the newest worker once, and put another in its place."""
    process = start(cluster.master, cluster.conf)
    if wait_for_moment(process, random_, (12, 40)):
        cluster.nodes[-1].kill()
        cluster.add_node()
        kills = 1
    else:
        kills = 0
    assert process.wait() == 0
    return kills


def wait_for_moment(process: subprocess.Popen[bytes], random_: random.Random, between: tuple[float, float]) -> bool:
    """Wait for a random time; whether the process still runs then."""
    try:
        process.wait(random_.uniform(*between))
    except subprocess.TimeoutExpired:
        return True
    return False


def verdict() -> Row:
    """The run's own counts, and the totals in its output, which must be those of the input."""
    report = json.loads((WORK / "run" / "report.json").read_text())
    lines = [line for file in sorted((WORK / "run/output/Output").glob("*.jsonl")) for line in file.read_text().splitlines()]
    totals = [json.loads(line) for line in lines]
    final = max(total["count"] for total in totals if total["by"] == "Three")
    counts, three = report["counts"], report["streams"]["Three"]
    good = three == final == WORDS // 4 * KEYS and counts["lost"] == counts["duplicated"] == counts["queued"] == 0
    good = good and counts["accepted"] == counts["processed"] == WORDS
    distinct = len({(total["by"], total["count"]) for total in totals}) == len(totals)
    return (f"{three:,}", f"{final:,}", str(counts["lost"]), str(counts["duplicated"]), "yes" if good and distinct else "NO")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10, help="of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    words = ROOT / "examples/divisibility/words.py"
    subprocess.run([sys.executable, str(words), str(WORK / "words"), "--count", str(WORDS), "--files", str(FILES)], check=True)
    random_ = random.Random(options.seed)
    rows: list[Row] = []
    kinds = ["driver", "driver and JVM"] * ((options.trials + 1) // 2)
    for kind in kinds[: options.trials]:
        rows.append(trial(kind, len(rows), lambda kind=kind: kill_driver(random_, kind != "driver")))
    with Cluster(nodes=2, directory=WORK.absolute() / "cluster", isolated=False) as cluster:
        for _ in range(options.trials):
            rows.append(trial("worker", len(rows), lambda: kill_worker(random_, cluster)))
    held = sum(row[-1] == "yes" for row in rows)
    lines = [
        f"{datetime.date.today()}, {os.cpu_count()} cores, seed {options.seed}: {held} of {len(rows)} runs gave the result "
        "of an undisturbed one.",
        "",
        "| trial | killed | kills | batches | Three | in the output | lost | duplicated | held |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    print("\n".join(lines))
    if options.output:
        options.output.write_text("\n".join(lines) + "\n")
    sys.exit(held < len(rows))


def trial(kind: str, number: int, run: object) -> Row:
    shutil.rmtree(WORK / "run", ignore_errors=True)
    began = time.monotonic()
    kills = run()  # type: ignore[operator]
    row = (str(number + 1), kind, str(kills), str(committed()), *verdict())
    print(f"    {' | '.join(row)} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    main()
