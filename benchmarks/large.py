"""Large files of JSON lines: read by Spark, and divided between our own workers. A micro-batch is a file.

    python benchmarks/large.py [--rows 230000] [--batches 12] [--rounds 3] [--output FILE.md]

Runs a keyless application over the same files both ways in turn, in a session of its own each. The later half of the
micro-batches counts. CPU is that of all processes: the JVM, and the Python workers under it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from harness import HERE, MASTER, tell

WORK = Path("data/benchmarks/large")
WAYS = {"read by Spark": 1 << 62, "divided": 0}
"""By name, from which mean size files are divided."""
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=230_000, help="of a file")
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.way:
        print(json.dumps(measured(WAYS[options.way])), flush=True)
        return
    write(options.rows, options.batches)
    results: dict[str, list[dict[str, float]]] = defaultdict(list)
    for _ in range(options.rounds):
        for way in WAYS:
            command = [sys.executable, __file__, "--way", way]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            results[way].append(json.loads(said.splitlines()[-1]))
            print(way, results[way][-1], file=sys.stderr)
    rows = [
        [
            way,
            *(
                f"{median(each):,.0f} ({min(each):,.0f} to {max(each):,.0f})"
                for each in zip(*map(dict.values, of), strict=True)
            ),
        ]
        for way, of in results.items()
    ]
    about = f"{options.batches} files of {options.rows:,} lines; median of {options.rounds} rounds (least to greatest)."
    tell(about, ["lines", *next(iter(results.values()))[0]], rows, options.output)


def write(rows: int, batches: int) -> None:
    """Write the files, each later than the one before."""
    shutil.rmtree(WORK, ignore_errors=True)
    (WORK / "in").mkdir(parents=True)
    for number in range(batches):
        file = WORK / "in" / f"{number:03d}.jsonl"
        with file.open("w") as lines:
            lines.writelines(f'{{"key": {key}, "text": "{key * 7919 % 1000:0180d}"}}\n' for key in range(rows))
        os.utime(file, (1_700_000_000 + number,) * 2)


def measured(large: int) -> dict[str, float]:
    """Run the application, and return milliseconds of a micro-batch, and of CPU in the JVM and in the workers for each."""
    from penstock.app.loader import load_app
    from penstock.connectors.files import source
    from penstock.engine import RunOptions, run
    from penstock.engine.session.checkpoint import DISK
    from penstock.engine.session.spark import start_session

    source.LARGE = large
    app, reference = load_app(HERE / "apps" / "keyless.py")
    with (WORK / "spark.log").open("ab") as log:
        spark = start_session("large", MASTER, log, DISK)
    assert spark._jvm is not None
    java = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    before = cpu_of(java)
    shutil.rmtree(WORK / "runs", ignore_errors=True)
    done = run(
        app,
        RunOptions(
            runs=WORK / "runs", spark=spark, sources={"Words": f"jsonl:{WORK / 'in'}?max_files=1"}, until_idle=True, quiet=True
        ),
        application=reference,
    )
    jvm, workers = (after - at_first for after, at_first in zip(cpu_of(java), before, strict=True))
    told: list[dict[str, Any]] = [json.loads(line) for line in (done.directory / "progress.jsonl").read_text().splitlines()]
    took = [one["durationMs"]["triggerExecution"] for one in told if one["numInputRows"]]
    spark.stop()
    return {
        "ms a micro-batch": median(took[len(took) // 2 :]),
        "CPU ms in the JVM": 1000 * jvm / len(took),
        "CPU ms in workers": 1000 * workers / len(took),
    }


def cpu_of(java: int) -> tuple[float, float]:
    """Seconds of CPU of a process, and of those under it."""
    parents, seconds = {}, {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(place.parent.name)] = int(fields[1])
        seconds[int(place.parent.name)] = sum(map(int, fields[11:15])) / TICKS

    def is_under(process: int) -> bool:
        while process in parents and process != java:
            process = parents[process]
        return process == java

    return seconds[java], sum(each for process, each in seconds.items() if process != java and is_under(process))


if __name__ == "__main__":
    main()
