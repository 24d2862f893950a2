"""What grows as a run goes on: the files of many small micro-batches, and the state of many keys.

    python benchmarks/growth.py [--only batches|keys] [--batches 800] [--keys 10000000] [--output FILE.md]

Batches: a counter in two groups, each micro-batch a few events, `--retain 100`; the files and bytes of the run's directory at
four moments. Keys: a sum per key in each dialect, a million new keys a micro-batch, and then three micro-batches of a million
events of random keys; durations, memory of all processes at its greatest, and bytes of the checkpoint.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness import HERE, MASTER, parquet_files, tell

sys.path.append(str(HERE / "peers"))

from tree import Tree

WORK = Path("data/benchmarks/growth")
Row = tuple[str, ...]
AT_ONCE = 1_000_000
RETAIN = 100


def start(app: str, name: str, *given: str) -> "subprocess.Popen[bytes]":
    """Start a run of an application."""
    shutil.rmtree(WORK / name, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(HERE / "apps" / app),
        "--name",
        name,
        "--runs",
        str(WORK),
        "--master",
        MASTER,
    ]
    return subprocess.Popen([*command, *given], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def size_of(directory: Path) -> tuple[int, int]:
    """Files and bytes."""
    sizes = []
    for path in directory.rglob("*") if directory.is_dir() else [directory]:
        try:
            sizes.append(path.stat().st_size if path.is_file() else -1)
        except FileNotFoundError:  # removed meanwhile
            continue
    there = [size for size in sizes if size >= 0]
    return len(there), sum(there)


def batches(number: int) -> Iterator[Row]:
    """Files and bytes by part of the directory, at four moments."""
    run = WORK / "batches"
    running = start(
        "chain.py",
        "batches",
        "--source",
        "Readings=generator:constant?rate=20",
        "--group",
        "Counter=second",
        "--retain",
        str(RETAIN),
    )
    moments: list[tuple[int, Counter[str], Counter[str]]] = []
    try:
        for moment in range(1, 5):
            while (done := _committed(run)) < number * moment // 4:
                if running.poll() is not None:
                    raise SystemExit(f"the run ended too early; {run / 'spark.log'} says why")
                time.sleep(0.5)
            files, sizes = Counter[str](), Counter[str]()
            for path in run.iterdir():
                files[path.name], sizes[path.name] = size_of(path)
            moments.append((done, files, sizes))
            print(f"    {done} micro-batches", file=sys.stderr, flush=True)
    finally:
        running.send_signal(signal.SIGINT)
        running.wait()
    for name in sorted(moments[-1][1]):
        yield (name, *(f"{files[name]:,} files, {sizes[name]:,} B" for _, files, sizes in moments))


def _committed(run: Path) -> int:
    path = run / "checkpoint" / "main" / "commits"
    return max((int(file.name) + 1 for file in path.glob("[0-9]*")), default=0) if path.exists() else 0


def keys(number: int) -> Iterator[Row]:
    """Durations and sizes as keys become more."""
    source = readings(number)
    for dialect, app in (("event", "sums.py"), ("batch", "sums_batch.py")):
        run = WORK / f"keys-{dialect}"
        began = time.monotonic()
        running = start(app, run.name, "--source", f"Words=parquet:{source}?max_files=1", "--until-idle")
        sizes: dict[int, int] = {}
        with Tree(running.pid) as tree:
            while running.poll() is None:
                sizes[_committed(run)] = size_of(run / "checkpoint")[1]
                time.sleep(0.5)
        lines = map(json.loads, (run / "progress.jsonl").read_text().splitlines())
        took = [one["durationMs"]["triggerExecution"] / 1e3 for one in lines if one["numInputRows"]]
        print(f"    {dialect}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        loads = number // AT_ONCE
        reached = [sizes[max(batch for batch in sizes if batch <= wanted)] / 1e6 for wanted in (loads // 2, loads, loads + 3)]
        yield (
            f"{dialect} dialect",
            f"{took[1]:.1f} to {took[loads - 1]:.1f}",
            ", ".join(f"{one:.1f}" for one in took[loads:]),
            f"{tree.peak_bytes / 1e9:.1f}",
            ", ".join(f"{one:,.0f}" for one in reached),
        )
        shutil.rmtree(run)


def readings(number: int) -> Path:
    """A million new keys in each file; then three files of any keys."""
    chance = np.random.default_rng(7)
    files = [*np.split(chance.permutation(number), number // AT_ONCE), *chance.integers(0, number, (3, AT_ONCE))]
    tables = (pa.table({"key": ids, "value": chance.integers(0, 1000, len(ids))}) for ids in files)
    return parquet_files(WORK / f"readings-{number}", tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("batches", "keys"))
    parser.add_argument("--batches", type=int, default=800)
    parser.add_argument("--keys", type=int, default=10 * AT_ONCE, help="a multiple of a million, two at least")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.keys % AT_ONCE or options.keys < 2 * AT_ONCE:
        parser.error(f"--keys {options.keys}: give a multiple of {AT_ONCE}, two at least")
    WORK.mkdir(parents=True, exist_ok=True)
    if options.only != "keys":
        moments = [f"after {options.batches * moment // 4}" for moment in range(1, 5)]
        tell(f"--retain {RETAIN}", ("part of the run's directory", *moments), batches(options.batches), options.output)
    if options.only != "batches":
        columns = ("", "s a micro-batch of new keys", "s, of any keys", "memory, GB", "checkpoint, MB: half, all, 3 more")
        tell(f"{options.keys:,} keys", columns, keys(options.keys), options.output)


if __name__ == "__main__":
    main()
