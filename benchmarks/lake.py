"""Kills a run that writes two tables of a lake, again and again, while two other programs read them.

    python benchmarks/lake.py [--to delta|iceberg] [--source files|delta] [--events 1000000] [--kills 20] [--batches 200]
                              [--keys 1000] [--seed 1] [--output FILE.json]

One table gets each event as a row, the other the sum of each key by merging. The run is killed with kill -9, its JVM too, at
random moments, and started again. The events come from files, or are the rows of a Delta table. All the while DuckDB and Polars
count the first table's rows: a micro-batch has as many as its file has lines, or its version rows, so another number is a part
of a micro-batch. In the end both tables must be exact.
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
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

ROOT = Path(__file__).parent.parent
WORK = Path("data/benchmarks/lake")


class Delta:
    """How a Delta table is written, and read by others."""

    def uri(self, name: str) -> str:
        return f"delta:{WORK / name}?compact=25"

    def is_there(self, name: str) -> bool:
        return (WORK / name / "_delta_log" / f"{0:020}.json").exists()

    def rows(self, name: str) -> pa.Table:
        return DeltaTable(WORK / name).to_pyarrow_table()

    def by_duckdb(self, name: str) -> int:
        rows = DeltaTable(WORK / name).to_pyarrow_dataset()  # noqa: F841 - the query's
        [(count,)] = duckdb.connect().execute("SELECT count(value) FROM rows").fetchall()
        return int(count)

    def by_polars(self, name: str) -> int:
        return int(polars.scan_delta(str(WORK / name)).select(polars.col("value").count()).collect().item())

    def commits(self, name: str) -> int:
        return DeltaTable(WORK / name).version() + 1

    def files(self, name: str) -> int:
        return len(DeltaTable(WORK / name).file_uris())


class Iceberg:
    """The same of an Iceberg table, in a catalog in SQLite."""

    def __init__(self) -> None:
        self._at = {"uri": f"sqlite:///{WORK.absolute()}/lake.sqlite", "warehouse": f"file://{WORK.absolute()}/lake"}
        load_catalog("lake", **self._at)  # makes the catalog's own tables, which several readers may not do at once

    def uri(self, name: str) -> str:
        return f"iceberg:lake/results.{name}?" + "&".join(f"catalog.{key}={value}" for key, value in self._at.items())

    def is_there(self, name: str) -> bool:
        try:
            self._table(name)
        except NoSuchTableError:
            return False
        return True

    def rows(self, name: str) -> pa.Table:
        return self._table(name).scan().to_arrow()

    def by_duckdb(self, name: str) -> int:
        rows = self._table(name).scan().to_arrow_batch_reader()  # noqa: F841 - the query's
        [(count,)] = duckdb.connect().execute("SELECT count(value) FROM rows").fetchall()
        return int(count)

    def by_polars(self, name: str) -> int:
        rows = polars.scan_iceberg(self._table(name).metadata_location)
        return int(rows.select(polars.col("value").count()).collect().item())

    def commits(self, name: str) -> int:
        return len(self._table(name).snapshots())

    def files(self, name: str) -> int:
        return len(list(self._table(name).scan().plan_files()))

    def _table(self, name: str) -> Table:
        return load_catalog("lake", **self._at).load_table(f"results.{name}")


LAKES = {"delta": Delta, "iceberg": Iceberg}
Lake = Delta | Iceberg


def write_table(events: int, batches: int, keys: int) -> str:
    """A Delta table of numbers in order, a version for each micro-batch."""
    each = events // batches
    for number in range(batches):
        values = range(number * each, (number + 1) * each)
        rows = pa.table({"key": [value % keys for value in values], "value": list(values)})
        write_deltalake(WORK / "numbers", rows, mode="append")
    return f"delta:{WORK / 'numbers'}?max_rows={each}"


def write_files(events: int, batches: int, keys: int) -> str:
    """Files of numbers in order, the oldest first."""
    directory = WORK / "numbers"
    directory.mkdir(parents=True)
    each = events // batches
    for number in range(batches):
        lines = (f'{{"key":{value % keys},"value":{value}}}' for value in range(number * each, (number + 1) * each))
        file = directory / f"{number:05d}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (1_700_000_000 + number,) * 2)
    return f"jsonl:{WORK.absolute() / 'numbers'}?max_files=1"


def start(lake: Lake, source: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(ROOT / "benchmarks/apps/lake.py"),
        "--until-idle",
        "--source",
        f"Numbers={source}",
        "--runs",
        str(WORK),
        "--name",
        "run",
        "--sink",
        f"Rows={lake.uri('rows')}",
        "--sink",
        f"Totals={lake.uri('totals')}",
    ]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)


def with_kills(kills: int, chance: random.Random, begin: Callable[[], subprocess.Popen[bytes]]) -> int:
    """Run to the end, with kills in between; returns how many there were. A start is killed once it has committed something."""
    ledger = WORK / "run" / "batches-main.jsonl"
    done = 0
    while True:
        before = len(ledger.read_bytes()) if ledger.exists() else 0
        process = begin()
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

    def __init__(self, name: str, lake: Lake, count: Callable[[str], int]) -> None:
        super().__init__(name=name, daemon=True)
        self.seen: list[int] = []
        self.failures: list[str] = []
        self.ended = threading.Event()
        self._lake, self._count = lake, count

    def run(self) -> None:
        while not self.ended.wait(0.2):
            try:
                if self._lake.is_there("rows"):
                    self.seen.append(self._count("rows"))
            except Exception as error:
                self.failures.append(repr(error))


def verdict(lake: Lake, events: int, keys: int, each: int, readers: list[Reader]) -> dict[str, Any]:
    rows = Counter(lake.rows("rows")["value"].to_pylist())
    wanted: dict[int, list[int]] = {}
    for value in range(events):
        wanted.setdefault(value % keys, []).append(value)
    totals = {row["key"]: row for row in lake.rows("totals").to_pylist()}
    counts = json.loads((WORK / "run" / "report.json").read_text())["counts"]
    return {
        "rows_missing": len(set(range(events)) - set(rows)),
        "rows_twice": sum(count - 1 for count in rows.values()),
        "totals_wrong": sum(
            totals.get(key) != {"key": key, "count": len(values), "total": sum(values)} for key, values in wanted.items()
        ),
        "totals_too_many": len(totals) - len(wanted),
        "counts": counts,
        "reads": {reader.name: len(reader.seen) for reader in readers},
        "partial_reads": {reader.name: sum(seen % each != 0 for seen in reader.seen) for reader in readers},
        "failed_reads": [failure for reader in readers for failure in reader.failures],
        "commits": lake.commits("rows"),
        "files": lake.files("rows"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", choices=LAKES, default="delta")
    parser.add_argument("--source", choices=("files", "delta"), default="files")
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
    WORK.mkdir(parents=True)
    write = {"files": write_files, "delta": write_table}[options.source]
    lake, source = LAKES[options.to](), write(options.events, options.batches, options.keys)
    readers = [Reader("DuckDB", lake, lake.by_duckdb), Reader("Polars", lake, lake.by_polars)]
    for reader in readers:
        reader.start()
    began = time.monotonic()
    kills = with_kills(options.kills, random.Random(options.seed), lambda: start(lake, source))
    for reader in readers:
        reader.ended.set()
        reader.join()
    found = verdict(lake, options.events, options.keys, options.events // options.batches, readers)
    wrong = ("rows_missing", "rows_twice", "totals_wrong", "totals_too_many", "failed_reads")
    good = not any(found[name] for name in wrong) and not any(found["partial_reads"].values())
    good = good and found["counts"]["lost"] == found["counts"]["duplicated"] == 0
    told = {
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count(),
        "to": options.to,
        "source": options.source,
        "events": options.events,
        "kills": kills,
        "seconds": round(time.monotonic() - began),
        "exact": good,
        **found,
    }
    text = json.dumps(told, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n")
    sys.exit(not good)


if __name__ == "__main__":
    main()
