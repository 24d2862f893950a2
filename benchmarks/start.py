"""From the command to the first committed micro-batch: as it is, without Spark's classes kept between starts, and with methods
compiled when Java would by itself, in turn.

    python benchmarks/start.py [--rounds 5]

Each start is `penstock run` on a file of two lines. Prints medians: seconds until the first micro-batch is planned, until it is
committed, and until the command is over.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

APP = Path(__file__).parent / "apps" / "counter.py"
JAVAS = (
    "-XX:Tier4InvocationThreshold=5000 -XX:Tier4MinInvocationThreshold=600 "
    "-XX:Tier4CompileThreshold=15000 -XX:Tier4BackEdgeThreshold=40000"
)
"""When Java compiles a method with all its care, unless told."""
WAYS = {
    "as it is": [],
    "classes not kept": ["--conf", "spark.driver.extraJavaOptions=-Xshare:auto"],
    "compiled as by default": ["--conf", f"spark.driver.extraJavaOptions={JAVAS}"],
}
"""Options of a run; whoever says himself what the JVM shares is left alone."""
ENDS_S = 20.0
"""For the JVM of the last start to end, which may write the archive."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        (place / "in").mkdir()
        (place / "in" / "words.jsonl").write_text('{"key": 1, "text": "1"}\n{"key": 2, "text": "2"}\n')
        for _ in range(2):  # the first may write the archive, the second tries it
            start(place, [])
            time.sleep(ENDS_S)
        found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
        for number in range(options.rounds):
            for way, extra in WAYS.items():
                found[way].append(start(place, extra))
                print(f"round {number + 1}, {way}: {', '.join(f'{one:.1f} s' for one in found[way][-1])}", flush=True)
                time.sleep(2)
    print("| way | planned | committed | over |\n| --- | --- | --- | --- |")
    for way, times in found.items():
        columns = (
            f"{statistics.median(column):.1f} s ({min(column):.1f} to {max(column):.1f})" for column in zip(*times, strict=True)
        )
        print(f"| {way} | {' | '.join(columns)} |")


def start(place: Path, extra: list[str]) -> tuple[float, float, float]:
    """One start, timed."""
    run = place / "runs" / "start"
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(APP),
        "--name",
        "start",
        "--runs",
        str(place / "runs"),
        "--fresh",
        "--master",
        "local[2]",
        "--source",
        f"Words=jsonl:{place / 'in'}",
        "--until-idle",
        *extra,
    ]
    began = time.monotonic()
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    planned = committed = 0.0
    while running.poll() is None:
        past = time.monotonic() - began
        ledger = run / "batches-main.jsonl"
        if past > 1 and not planned and any(run.glob("checkpoint*/main/offsets/0")):
            planned = past
        if past > 1 and planned and not committed and ledger.exists() and ledger.stat().st_size:
            committed = past
        time.sleep(0.02)
    if running.returncode:
        raise SystemExit(f"The run failed ({running.returncode}).")
    return planned, committed, time.monotonic() - began


if __name__ == "__main__":
    main()
