"""Runs NEXMark's queries on Spark, kills them if asked to, and compares every row with DuckDB's.

    python benchmarks/nexmark/run.py [--query q05] [--events 100000] [--files 5] [--kills 3] [--late] [--output DIRECTORY]

A query's result is a file in DIRECTORY, so that the same command goes on after Ctrl-C; table.md has them all.
"""

import argparse
import datetime
import json
import os
import platform
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
from lines import lines_of_module
from model import LATENESS_S, Auction, Bid, Person, events
from oracle import HERE, QUERIES, found, module_of, wanted

from penstock import Event
from penstock.bench.servers.process import kill, spawn

SOURCES = {Person: "Persons", Auction: "Auctions", Bid: "Bids"}
PATIENCE_S = 600.0
KILLED_WITHIN_S = 4.0
"""After a start has begun its first micro-batch."""
BY_THE_CLOCK = {"q12": ("--duration", "40 s")}
"""Windows of processing time close when their time has come, and not with the input."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--query", action="append", choices=QUERIES)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=5, help="micro-batches in which the events come")
    parser.add_argument("--kills", type=int, default=0, help="kill -9 so often, at random moments")
    parser.add_argument("--late", action="store_true", help="events come out of order, within the lateness")
    parser.add_argument("--output", type=Path, default=Path("data/nexmark"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    given = list(events(options.events))
    if options.late:
        chance = random.Random(3)
        given.sort(key=lambda event: event.ts + timedelta(seconds=chance.uniform(0, LATENESS_S)))
    inputs = options.output / f"input-{options.events}-{options.files}{'-late' if options.late else ''}"
    write(inputs, given, options.files)
    for query in options.query or QUERIES:
        path = options.output / f"{query}-{inputs.name.removeprefix('input-')}-{options.kills}.json"
        if not path.exists():
            result = measure(query, given, inputs, options.kills, options.output / "run")
            path.write_text(json.dumps(result, indent=1) + "\n")
            said = (
                "right"
                if not (result["missing"] or result["extra"])
                else f"missing {result['missing']}, extra {result['extra']}"
            )
            print(
                f"{path.stem}: {result['rows']:,} rows, {said}, {result['events_per_s']:,.0f} events/s",
                file=sys.stderr,
                flush=True,
            )
    table = "\n".join(_table(options.output))
    (options.output / "table.md").write_text(table + "\n")
    print(table)


def write(directory: Path, given: Sequence[Event], files: int) -> None:
    """Write events as JSON Lines: for each source a directory with a file for each part of the time."""
    if directory.exists():
        return
    draft = directory.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    encode = msgspec.json.Encoder().encode
    for kind, source in SOURCES.items():
        (draft / source).mkdir(parents=True)
        for number in range(files):
            part = given[number * len(given) // files : (number + 1) * len(given) // files]
            lines = b"".join(encode(event) + b"\n" for event in part if type(event) is kind)
            file = draft / source / f"{number:03d}.jsonl"
            file.write_bytes(lines)
            os.utime(file, (1_700_000_000 + number,) * 2)  # Spark takes them by their age
    draft.rename(directory)


def measure(query: str, given: Sequence[Event], inputs: Path, kills: int, runs: Path) -> dict[str, Any]:
    """Run a query to the end of its input, and compare."""
    app = module_of(query).app
    shutil.rmtree(runs, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        f"{HERE / query}.py",
        "--name",
        "run",
        "--runs",
        str(runs),
        "--master",
        "local[2]",
        *BY_THE_CLOCK.get(query, ("--until-idle",)),
        *(
            part
            for source in app.topology().sources
            for part in ("--source", f"{source.name}=jsonl:{inputs / source.name}?max_files=1")
        ),
    ]
    if query == "q10":
        command += ["--sink", f"Out=parquet:{runs / 'log'}"]
    runs.mkdir(parents=True)
    chance = random.Random(query)
    for number in range(kills + 1):
        before = _planned(runs)
        process = spawn(command, runs / "said.log")
        deadline = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < deadline:
            if number < kills and _planned(runs) > before:
                time.sleep(chance.uniform(0, KILLED_WITHIN_S))
                break
            time.sleep(0.05)
        if process.poll() is None:
            kill(process)
            if number == kills:
                raise TimeoutError(f"{query} does not end; {runs / 'said.log'} may say why.")
        elif process.returncode == 0:
            break
        else:
            raise RuntimeError(f"{query} has failed; {runs / 'said.log'} has the reason.")
    report = json.loads((runs / "run" / "report.json").read_text())
    want, have = wanted(query, given), found(query, _results(app, runs))
    return {
        "query": query,
        "kills": number,
        "rows": want.total(),
        "missing": (want - have).total(),
        "extra": (have - want).total(),
        "events_per_s": report["throughput_events_per_s"] or 0.0,
        "counts": report["counts"],
        "lines": lines_of_module(HERE / f"{query}.py"),
    }


def _planned(runs: Path) -> int:
    """How many micro-batches a run has begun."""
    return sum(1 for path in runs.glob("run/checkpoint/*/offsets/*") if path.name.isdecimal())


def _results(app: Any, runs: Path) -> Iterable[Event]:
    kind = next(sink for sink in app.topology().sinks if sink.name == "Out").stream.event_type
    if (runs / "log").exists():
        for path in sorted((runs / "log").glob("*.parquet")):
            for row in pq.read_table(path).to_pylist():
                yield kind(**row)
        return
    decode = msgspec.json.Decoder(kind).decode
    for path in sorted((runs / "run" / "output" / "Out").glob("*.jsonl")):
        yield from map(decode, path.read_bytes().splitlines())


def _table(directory: Path) -> Iterable[str]:
    yield f"{datetime.date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}, local[2]."
    yield ""
    yield "| query | events, files | kills | rows | missing | extra | late | lost | events/s | lines of code |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for path in sorted(directory.glob("q*.json")):
        one = json.loads(path.read_text())
        counts = one["counts"]
        yield (
            f"| {one['query']} | {path.stem.partition('-')[2].rpartition('-')[0]} | {one['kills']} | {one['rows']:,} | "
            f"{one['missing']} | {one['extra']} | {counts['late']} | {counts['lost']} | {one['events_per_s']:,.0f} | "
            f"{one['lines']} |"
        )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
