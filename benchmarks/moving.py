"""Does a run that is moved keep everything? A million instances with timers, killed at every stage of the move.

    python benchmarks/moving.py [--directory build/moving] [--instances 1000000] [--kills 10]

The application of `apps/moving.py` counts the sales of each item and sets a timer for it. A run with all items is moved from 2
to 5 partitions and from 5 to 3, and its two elements into two queries and back into one. Each move is killed (`kill -9` of the
driver and of all that belongs to it) `--kills` times, spread over its stages and between them, and started again. In between
come more sales; at the end all timers fire. What every item must have counted is known beforehand. The table is printed at the
end.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

HERE = Path(__file__).parent
APP = HERE / "apps" / "moving.py"
MOVES = (
    ("2 to 5 partitions", ["--partitions", "5"]),
    ("one query to two", ["--group", "Keeps=behind"]),
    ("5 to 3 partitions", ["--partitions", "3"]),
    ("two queries to one", ["--group", "Keeps=main"]),
)
"""What each is called, and the options of `penstock run` that ask for it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("build/moving"))
    parser.add_argument("--instances", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=10)
    options = parser.parse_args()
    place = options.directory.absolute()
    shutil.rmtree(place, ignore_errors=True)
    (place / "in").mkdir(parents=True)
    sales = Sales(place / "in", options.instances)
    random = np.random.default_rng(5)
    sales.all_items()
    finish(place, ["--partitions", "2"], pause=True)
    rows = []
    for name, wanted in MOVES:
        sales.some(options.instances // 20)
        kills: Counter[str] = Counter()
        for number in range(options.kills):
            kills[killed(place, wanted, STAGES[number % len(STAGES)], float(random.uniform(0, 2)))] += 1
        begun = time.monotonic()
        finish(place, wanted, pause=True)
        rows.append((name, kills, time.monotonic() - begun))
        print(time.strftime("%T"), name, dict(kills), flush=True)
    finish(place, [], pause=False)
    print("\n".join(table(place, rows)))
    print(verdict(place, sales))


class Sales:
    """The input, and what must be counted."""

    def __init__(self, place: Path, items: int) -> None:
        self._place, self._items, self._files = place, items, 0
        self.counts = np.zeros(items, np.int64)
        self._random = np.random.default_rng(3)

    def all_items(self) -> None:
        """One sale of each."""
        for part in np.array_split(self._random.permutation(self._items), max(1, self._items // 50_000)):
            self._write(part)

    def some(self, sales: int) -> None:
        """Sales of some."""
        self._write(self._random.integers(0, self._items, sales))

    def _write(self, items: np.ndarray) -> None:
        np.add.at(self.counts, items, 1)
        encode = msgspec.json.Encoder().encode
        at = f"2026-01-01T00:00:{self._files % 60:02d}Z"
        lines = b"\n".join(encode({"item": item, "at": at}) for item in items.tolist())
        draft = self._place / f".{self._files:05d}"
        draft.write_bytes(lines + b"\n")
        draft.rename(self._place / f"{self._files:05d}.jsonl")
        self._files += 1


def command(place: Path, wanted: list[str], *, pause: bool) -> list[str]:
    idle = "--until-idle=pause" if pause else "--until-idle"
    source = f"Sales=jsonl:{place / 'in'}?max_files=2"
    return [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(APP),
        "--runs",
        str(place / "runs"),
        "--name",
        "moved",
        "--source",
        source,
        "--master",
        "local[2]",
        "--conf",
        "spark.driver.memory=3g",
        idle,
        *wanted,
    ]


def finish(place: Path, wanted: list[str], *, pause: bool) -> None:
    """Run to the end of what there is."""
    subprocess.run(command(place, wanted, pause=pause), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


Stage = tuple[str, Callable[[Path], bool]]


def _manifest(run: Path) -> dict[str, int]:
    layout: dict[str, int] = json.loads((run / "manifest.json").read_text())["layout"]
    return layout


def _made(run: Path) -> list[Path]:
    """The checkpoints of a layout that is not yet in force."""
    number = _manifest(run)["moves"] + 1
    return list((run / "checkpoint").glob(f"*@{number}"))


STAGES: list[Stage] = [
    ("Spark is up", lambda run: True),
    ("pages are written anew", lambda run: (run / "moving" / "pages").exists()),
    ("new pages are there", lambda run: (run / "moving" / "pages" / "_SUCCESS").exists()),
    ("state is written", lambda run: bool(_made(run))),
    ("a new checkpoint is whole", lambda run: any((one / "commits" / "0").exists() for one in _made(run))),
]
"""What a move is doing, and how one sees it from outside."""


def killed(place: Path, wanted: list[str], stage: Stage, delay: float) -> str:
    """Start a move, and kill it some seconds after it has come to a stage; returns the stage, or that the move was over."""
    run = place / "runs" / "moved"
    before = _manifest(run)["moves"]
    with (place / "killed.log").open("ab") as log:
        process = subprocess.Popen(
            command(place, wanted, pause=True), stdout=log, stderr=log, start_new_session=True, env=os.environ
        )
    time.sleep(6)  # Spark starts
    while process.poll() is None and _manifest(run)["moves"] == before and not stage[1](run):
        time.sleep(0.05)
    time.sleep(delay)
    over = _manifest(run)["moves"] != before
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return "it is over, and the run goes on" if over else stage[0]


def table(place: Path, rows: list[tuple[str, Counter[str], float]]) -> list[str]:
    """A line a move."""
    records = [json.loads(line) for line in (place / "runs" / "moved" / "moves.jsonl").read_text().splitlines()]
    lines = ["| move | instances | seconds | assumed | killed while |", "| --- | --- | --- | --- | --- |"]
    for (name, kills, _), record in zip(rows, records, strict=True):
        stages = "; ".join(f"{stage} ({times})" for stage, times in kills.items())
        lines.append(f"| {name} | {record['instances']:,} | {record['took_s']:.1f} | {record['expected_s']:.1f} | {stages} |")
    return lines


def verdict(place: Path, sales: Sales) -> str:
    """What the results say beside what must be."""
    output = place / "runs" / "moved" / "output"
    closed: Counter[int] = Counter()
    last = np.zeros(len(sales.counts), np.int64)
    disorder = fired = 0
    for path in sorted((output / "Closed").glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            one = msgspec.json.decode(line)
            fired += 1
            closed[one["item"]] += 1
            last[one["item"]] = one["sales"]
            disorder += one["disorder"]
    report = json.loads((place / "runs" / "moved" / "report.json").read_text())
    wrong = int((last != sales.counts).sum())
    counts = report["counts"]
    return (
        f"{counts['accepted']:,} sales of {len(last):,} items: accepted {counts['accepted'] - int(sales.counts.sum()):+,} "
        f"against what was written, lost {counts['lost']}, duplicated {counts['duplicated']}; items with another count: "
        f"{wrong}; events out of order: {disorder}; timers that fired: {fired:,}, twice: "
        f"{sum(times > 1 for times in closed.values())}."
    )


if __name__ == "__main__":
    main()
