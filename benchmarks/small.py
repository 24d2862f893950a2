"""What a micro-batch of one event takes: the latency that no trigger can go below.

    python benchmarks/small.py [--batches 50] [--rounds 3] [--only keyless|counter|divisibility] [--output FILE.md]

A file with one event comes as soon as the one before has been committed. The later half of the micro-batches counts. Each round
runs an application as it is, and with Spark's own choice of how a checkpoint's files are made on a disk, how Java starts
programs, and from what Python workers are forked.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from harness import HERE, MASTER, tell

WORK = Path("data/benchmarks/small")
APPLICATIONS = {
    "keyless": (HERE / "apps" / "keyless.py", "Words", '{"key": 1, "text": "33"}', "none"),
    "counter": (HERE / "apps" / "counter.py", "Words", '{"key": 1, "text": "33"}', "one"),
    "divisibility": (HERE.parent / "examples" / "divisibility" / "app.py", "RawWords", '{"text": "33"}', "two"),
}
"""Each with its source, an event, and its keyed hops."""
MANAGERS = "org.apache.spark.sql.execution.streaming.checkpointing"
SPARKS = (
    f"--conf=spark.sql.streaming.checkpointFileManagerClass={MANAGERS}.FileContextBasedCheckpointFileManager",
    "--conf=spark.driver.extraJavaOptions=-Djdk.lang.Process.launchMechanism=POSIX_SPAWN",
    "--conf=spark.python.daemon.module=pyspark.daemon",
)
PHASES = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")
PATIENCE_S, BETWEEN_S = 120.0, 0.15


def durations(name: str, number: int, given: tuple[str, ...]) -> list[dict[str, float]]:
    """Milliseconds of the phases of each warm micro-batch."""
    app, source, event, _ = APPLICATIONS[name]
    shutil.rmtree(WORK, ignore_errors=True)
    (WORK / "in").mkdir(parents=True)
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(app),
        "--name",
        "run",
        "--runs",
        str(WORK),
        "--master",
        MASTER,
        "--source",
        f"{source}=jsonl:{WORK / 'in'}",
        *given,
    ]
    told: list[dict[str, Any]] = []
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for place in range(number):
            draft = WORK / "draft"
            draft.write_text(event + "\n")
            draft.rename(WORK / "in" / f"{place:05d}.jsonl")
            deadline = time.monotonic() + PATIENCE_S
            while len(told := _told(WORK / "run" / "progress.jsonl")) <= place:
                if running.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the run does not go on; {WORK / 'run' / 'spark.log'} says why")
                time.sleep(0.01)
            time.sleep(BETWEEN_S)
    finally:
        running.send_signal(signal.SIGINT)
        running.wait()
    return [one["durationMs"] for one in told[number // 2 :]]


def _told(progress: Path) -> list[dict[str, Any]]:
    lines = progress.read_text().splitlines(keepends=True) if progress.exists() else []
    return [one for one in map(json.loads, filter(lambda line: line.endswith("\n"), lines)) if one["numInputRows"]]


def rows(names: list[str], batches: int, rounds: int) -> Iterator[tuple[str, ...]]:
    """The medians of each application, of all rounds and from round to round."""
    found: dict[tuple[str, str], list[list[dict[str, float]]]] = defaultdict(list)
    for number in range(rounds):
        for name in names:
            for settings, given in (("Penstock's", ()), ("Spark's own", SPARKS)):
                found[name, settings].append(durations(name, batches, given))
                print(f"    {number + 1}: {name}, {settings}", file=sys.stderr, flush=True)
    for (name, settings), trials in found.items():
        medians = sorted(median(one["triggerExecution"] for one in trial) for trial in trials)
        phases = [f"{median(one.get(phase, 0) for trial in trials for one in trial):.0f}" for phase in PHASES]
        yield (name, APPLICATIONS[name][3], settings, f"{median(medians):.0f} ({medians[0]:.0f} to {medians[-1]:.0f})", *phases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=APPLICATIONS)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    names = [options.only] if options.only else list(APPLICATIONS)
    columns = ("", "keyed hops", "settings", "ms a micro-batch", *PHASES)
    tell("micro-batches of one event, medians", columns, rows(names, options.batches, options.rounds), options.output)


if __name__ == "__main__":
    main()
