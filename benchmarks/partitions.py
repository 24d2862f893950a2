"""What more partitions bring: 1 to 64 of them on one core, measured, and on a core each, by a simulated schedule.

    python benchmarks/partitions.py [--partitions 1,2,4,8,16,32,64] [--rows 1000000] [--only event|batch] [--output FILE.md]

A sum per key of 100,000 keys, in the event dialect and in the batch dialect by key; Parquet files, a micro-batch each. A run is
pinned to one core for each number of partitions, and Spark's event log kept; schedule.py says what a schedule is made of. The
same runs on two cores are measured and simulated, which says how far the schedule is to be trusted.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from harness import HERE, parquet_files, tell
from schedule import MicroBatch, micro_batches

WORK = Path("data/benchmarks/partitions")
APPLICATIONS = {"event": "sums.py", "batch": "sums_batch.py"}
KEYS, FILES, WARM_UP = 100_000, 7, 3
PIECES = 64
"""Row groups of a file: it can be read by as many tasks."""


def readings(rows: int) -> Path:
    """A file for each micro-batch."""
    chance = np.random.default_rng(7)
    tables = (pa.table({"key": chance.integers(0, KEYS, rows), "value": chance.integers(0, 1000, rows)}) for _ in range(FILES))
    return parquet_files(WORK / f"readings-{rows}", tables, PIECES)


def splitting(source: Path, partitions: int, log: Path) -> dict[str, str]:
    """Spark's settings by which each file is read by as many tasks as there are partitions, and the tasks are logged."""
    largest = max(file.stat().st_size for file in source.glob("*.parquet"))
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.sql.files.openCostInBytes": "1",
        "spark.sql.files.minPartitionNum": str(partitions),
        "spark.sql.files.maxPartitionBytes": str(-(-largest // partitions) + 1),
    }


def run(dialect: str, source: Path, partitions: int, cores: int) -> list[MicroBatch]:
    """The warm micro-batches of a run that has only so many cores."""
    place = (WORK / f"{dialect}-{partitions}-{cores}").absolute()
    shutil.rmtree(place, ignore_errors=True)
    (place / "events").mkdir(parents=True)
    command = [
        "taskset",
        "-c",
        ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores])),
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(HERE / "apps" / APPLICATIONS[dialect]),
        "--name",
        "run",
        "--runs",
        str(place),
        "--master",
        f"local[{cores}]",
        "--partitions",
        str(partitions),
        "--until-idle",
        "--source",
        f"Words=parquet:{source}?max_files=1",
        *(f"--conf={name}={value}" for name, value in splitting(source, partitions, place / "events").items()),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    log = next(path for path in (place / "events").iterdir() if path.is_file())
    batches = list(micro_batches(log, place / "run" / "progress.jsonl"))[WARM_UP:]
    shutil.rmtree(place)
    return batches


def row(dialect: str, source: Path, partitions: int) -> tuple[str, ...]:
    """What one number of partitions takes: measured on one core and two, and simulated."""
    alone, both = (run(dialect, source, partitions, cores) for cores in (1, 2))
    one, two, simulated, most = (
        median(seconds)
        for seconds in (
            [batch.seconds for batch in alone],
            [batch.seconds for batch in both],
            [batch.on(2) for batch in alone],
            [batch.on(partitions) for batch in alone],
        )
    )
    print(f"    {dialect}, {partitions}: {one:.2f}, {two:.2f}, {most:.2f} s", file=sys.stderr, flush=True)
    return (
        dialect,
        f"{partitions}",
        f"{one:.2f}",
        f"{two:.2f}",
        f"{simulated:.2f} ({simulated / two - 1:+.0%})",
        f"{most:.2f}",
        f"{alone[0].rows / most:,.0f}",
    )


def rows(dialects: Sequence[str], source: Path, partitions: Sequence[int]) -> Iterator[tuple[str, ...]]:
    for dialect in dialects:
        for number in partitions:
            yield row(dialect, source, number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="1,2,4,8,16,32,64")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of a micro-batch")
    parser.add_argument("--only", choices=APPLICATIONS)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    numbers = [int(number) for number in options.partitions.split(",")]
    source = readings(options.rows)
    columns = (
        "dialect",
        "partitions",
        "1 core, measured (s)",
        "2 cores, measured (s)",
        "2 cores, simulated (s)",
        "a core a partition, simulated (s)",
        "rows/s, simulated",
    )
    about = f"{options.rows:,} rows a micro-batch, {KEYS:,} keys"
    tell(about, columns, rows([options.only] if options.only else list(APPLICATIONS), source, numbers), options.output)


if __name__ == "__main__":
    main()
