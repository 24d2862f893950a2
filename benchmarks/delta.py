"""Kills a run that writes two Delta tables, again and again, while two other programs read them.

    python benchmarks/delta.py [--events 1000000] [--kills 20] [--batches 200] [--keys 1000] [--seed 1] [--output FILE.json]

One table gets each event as a row, the other the sum of each key by merging. The run is killed with kill -9, its JVM too, at
random moments, and started again. All the while DuckDB and Polars count the first table's rows: a micro-batch has as many as
its file has lines, so another number is a part of a micro-batch. In the end both tables must be exact.
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
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
from deltalake import DeltaTable

ROOT = Path(__file__).parent.parent
WORK = Path("data/benchmarks/delta")


def write(events: int, batches: int, keys: int) -> None:
    """Files of numbers in order, the oldest first."""
    directory = WORK / "numbers"
    directory.mkdir(parents=True)
    each = events // batches
    for number in range(batches):
        lines = (f'{{"key":{value % keys},"value":{value}}}' for value in range(number * each, (number + 1) * each))
        file = directory / f"{number:05d}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (1_700_000_000 + number,) * 2)


def start() -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "penstock", "run", str(ROOT / "benchmarks/apps/lake.py"), "--until-idle",
        "--source", f"Numbers=jsonl:{WORK.absolute() / 'numbers'}?max_files=1", "--runs", str(WORK), "--name", "run",
        "--sink", f"Rows=delta:{WORK / 'rows'}?compact=25", "--sink", f"Totals=delta:{WORK / 'totals'}?compact=25",
    ]  # fmt: skip
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)


def with_kills(kills: int, chance: random.Random) -> int:
    """Run to the end, with kills in between; returns how many there were. A start is killed once it has committed something."""
    ledger = WORK / "run" / "batches-main.jsonl"
    done = 0
    while True:
        before = len(ledger.read_bytes()) if ledger.exists() else 0
        process = start()
        while done < kills and process.poll() is None:
            time.sleep(0.05)
            if ledger.exists() and len(ledger.read_bytes()) > before:
                time.sleep(chance.uniform(0, 3))
                break
        if done == kills or process.poll() is not None:
            assert process.wait() == 0
            return done
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        done += 1
        print(f"  killed {done} times", file=sys.stderr, flush=True)


class Reader(threading.Thread):
    """Counts the rows of a table again and again."""

    def __init__(self, name: str, count: Callable[[str], int]) -> None:
        super().__init__(name=name, daemon=True)
        self.seen: list[int] = []
        self.failures: list[str] = []
        self.ended = threading.Event()
        self._count = count

    def run(self) -> None:
        while not self.ended.wait(0.2):
            if not (WORK / "rows" / "_delta_log" / f"{0:020}.json").exists():
                continue
            try:
                self.seen.append(self._count(str(WORK / "rows")))
            except Exception as error:
                self.failures.append(repr(error))


def by_duckdb(table: str) -> int:
    rows = DeltaTable(table).to_pyarrow_dataset()  # noqa: F841 - the query's
    [(count,)] = duckdb.connect().execute("SELECT count(value) FROM rows").fetchall()
    return int(count)


def by_polars(table: str) -> int:
    return int(polars.scan_delta(table).select(polars.col("value").count()).collect().item())


def verdict(events: int, keys: int, each: int, readers: list[Reader]) -> dict[str, Any]:
    rows = Counter(DeltaTable(WORK / "rows").to_pyarrow_table()["value"].to_pylist())
    wanted: dict[int, list[int]] = {}
    for value in range(events):
        wanted.setdefault(value % keys, []).append(value)
    totals = {row["key"]: row for row in DeltaTable(WORK / "totals").to_pyarrow_table().to_pylist()}
    counts = json.loads((WORK / "run" / "report.json").read_text())["counts"]
    return {
        "rows_missing": len(set(range(events)) - set(rows)),
        "rows_twice": sum(count - 1 for count in rows.values()),
        "totals_wrong": sum(
            totals.get(key) != {"key": key, "count": len(values), "total": sum(values)}
            for key, values in wanted.items()
        ),
        "totals_too_many": len(totals) - len(wanted),
        "counts": counts,
        "reads": {reader.name: len(reader.seen) for reader in readers},
        "partial_reads": {reader.name: sum(seen % each != 0 for seen in reader.seen) for reader in readers},
        "failed_reads": [failure for reader in readers for failure in reader.failures],
        "versions": DeltaTable(WORK / "rows").version() + 1,
        "files": len(DeltaTable(WORK / "rows").file_uris()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.events % options.batches or options.batches < 1:
        parser.error("--events must be a multiple of --batches, so that each micro-batch has as many.")
    shutil.rmtree(WORK, ignore_errors=True)
    write(options.events, options.batches, options.keys)
    readers = [Reader("DuckDB", by_duckdb), Reader("Polars", by_polars)]
    for reader in readers:
        reader.start()
    began = time.monotonic()
    kills = with_kills(options.kills, random.Random(options.seed))
    for reader in readers:
        reader.ended.set()
        reader.join()
    found = verdict(options.events, options.keys, options.events // options.batches, readers)
    wrong = ("rows_missing", "rows_twice", "totals_wrong", "totals_too_many", "failed_reads")
    good = not any(found[name] for name in wrong) and not any(found["partial_reads"].values())
    good = good and found["counts"]["lost"] == found["counts"]["duplicated"] == 0
    told = {
        "date": datetime.date.today().isoformat(), "cores": os.cpu_count(), "events": options.events, "kills": kills,
        "seconds": round(time.monotonic() - began), "exact": good, **found,
    }  # fmt: skip
    text = json.dumps(told, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")
    sys.exit(not good)


if __name__ == "__main__":
    main()
