"""Runs one contender of a comparison in a process of its own, and says how long each micro-batch took.

    python harness.py plain QUERY SOURCE WORKDIR          hand-written PySpark of plain.py
    python harness.py penstock APP.py SOURCE WORKDIR      an application, --source Words=SOURCE

Prints one JSON object: rows and milliseconds of every micro-batch, first to last.
"""

import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).parent
MASTER = "local[2]"


def main() -> None:
    kind, what, source, workdir = sys.argv[1:5]
    directory = Path(workdir)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    batches = _plain(what, source, directory) if kind == "plain" else _penstock(what, source, directory, sys.argv[5:])
    print(json.dumps(batches))


def _plain(name: str, source: str, directory: Path) -> list[dict[str, Any]]:
    sys.path.insert(0, str(HERE))
    from plain import QUERIES, UPDATES

    from penstock.engine.session.spark import settle, start_session

    query, form = QUERIES[name]
    with (directory / "spark.log").open("ab") as log:
        spark = start_session(name, MASTER, log, {})
        settle(spark, None)
    writer = query(spark, source).writeStream.option("checkpointLocation", str(directory / "checkpoint"))
    out = str(directory / "out")
    if form == UPDATES:
        writer = writer.outputMode("update").foreachBatch(lambda frame, batch: frame.write.mode("append").json(out))
    else:
        writer = writer.format(form).option("path", out)
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    progress = [json.loads(entry.json) for entry in running.recentProgress]
    spark.stop()
    return _batches(progress)


def _penstock(app: str, source: str, directory: Path, options: list[str]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "penstock", "run", app, "--until-idle", "--master", MASTER, "--name", "run"]
    command += ["--source", source, "--runs", str(directory), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    lines = (directory / "run" / "progress.jsonl").read_text().splitlines()
    batches: list[dict[str, Any]] = []
    for group in (directory / "run").glob("batches-*.jsonl"):  # Spark counts a file that Penstock reads as one row
        own = [json.loads(line) for line in lines if json.loads(line).get("name") == group.stem.removeprefix("batches-")]
        took = {one["batchId"]: one["durationMs"]["triggerExecution"] for one in own if one["numInputRows"]}
        for record in map(json.loads, group.read_text().splitlines()):
            rows = sum(source["accepted"] for source in record.get("sources", {}).values())
            if rows and record.get("batch") in took:
                batches.append({"rows": rows, "ms": took[record["batch"]]})
    return batches


def _batches(progress: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"rows": batch["numInputRows"], "ms": batch["durationMs"]["triggerExecution"]}
        for batch in progress
        if batch["numInputRows"]
    ]


def contend(
    kind: str, what: str, source: str, workdir: Path, *options: str, warm_up: int = 2, root: Path = HERE.parent
) -> dict[str, Any]:
    """Run a contender; its throughput in rows per second over the batches after the warm-up.

    Args:
        root: the clone whose Penstock runs.
    """
    began = time.monotonic()
    command = [sys.executable, str(HERE / "harness.py"), kind, what, source, str(workdir), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(root)]), "PYTHONSAFEPATH": "1"}
    answer = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    batches = json.loads(answer.stdout.splitlines()[-1])
    warm = sorted(batch["rows"] / batch["ms"] * 1000 for batch in batches[warm_up:])
    result = {"median": median(warm), "least": warm[0], "most": warm[-1], "batches": len(warm)}
    print(f"    {what}: {result['median']:,.0f} rows/s ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
    return result


def parquet_files(directory: Path, tables: Iterable[pa.Table], pieces: int = 1) -> Path:
    """A directory with a file for each table, in their order; made once.

    Args:
        pieces: row groups of a file, by which several tasks can read it.
    """
    if not directory.exists():
        draft = directory.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for place, table in enumerate(tables):
            pq.write_table(table, draft / f"{place:03d}.parquet", row_group_size=-(-table.num_rows // pieces))
            time.sleep(0.01)  # Spark takes files by their age
        draft.rename(directory)
    return directory.absolute()


def tell(about: str, columns: Sequence[str], rows: Iterable[Sequence[str]], output: Path | None) -> None:
    """Print a comparison as a table, with the day and the machine, and write it where that is wanted."""
    lines = [
        f"{datetime.date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}; {about}",
        "",
        f"| {' | '.join(columns)} |",
        f"|{' --- |' * len(columns)}",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    print("\n".join(lines))
    if output:
        output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
