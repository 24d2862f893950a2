"""NEXMark's queries on Penstock, beside Spark's Structured Streaming in SQL, Flink SQL and Bytewax, each alone.

    python benchmarks/nexmark/beside.py [--only flink] [--query q05] [--events 300000] [--rounds 2] [--output DIRECTORY]

Bytewax and Flink get an environment of their own below data/nexmark, which needs the network for the first time, and Flink a
Java. What has been measured, an engine at a time, is kept in DIRECTORY, so that the same command goes on after Ctrl-C.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pyarrow.parquet as pq
from lines import lines_of_entry, lines_of_module
from model import events
from oracle import HERE, QUERIES, found, module_of, wanted
from run import write

from penstock import Event

ENGINES = HERE / "engines"
ENVIRONMENTS = Path("data/nexmark/environments")
TITLES = {"penstock": "Penstock", "spark": "Structured Streaming SQL", "flink": "Flink SQL 2.3.0", "bytewax": "Bytewax 0.21.1"}
REQUIREMENTS = {"flink": ["apache-flink==2.3.0"], "bytewax": ["bytewax==0.21.1", "msgspec"]}
UNORDERED = {"flink"}
"""Engines that read several files in no order, so that most of their events would be late: they get one."""
UPSERTED = {"q09": "id"}
"""Queries whose updates Flink writes without what they replace, and by what."""
FEWEST = 3000
FILES = 6
WARM_UP = 2
"""Micro-batches that are left out."""
Result = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=TITLES)
    parser.add_argument("--query", action="append", choices=QUERIES)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("data/nexmark/beside"))
    options = parser.parse_args()
    if options.events < FEWEST:
        sys.exit(f"--events must be at least {FEWEST:,}, so that each of the {FILES} micro-batches has persons.")
    options.output.mkdir(parents=True, exist_ok=True)
    engines = options.only or list(TITLES)
    pythons = {engine: python_of(engine) for engine in engines}
    inputs = options.output / f"input-{options.events}"
    given = list(events(options.events))
    whole = inputs.with_name(f"{inputs.name}-whole")
    write(inputs, given, FILES)
    write(whole, given, 1)
    for number in range(1, options.rounds + 1):
        for engine in engines:  # in turn, so that what the machine does besides strikes all of them
            queries = [one for one in options.query or QUERIES if one in expressed(engine)]
            left = [query for query in queries if not _kept(options.output, engine, query, number).exists()]
            place = options.output / "run"
            shutil.rmtree(place, ignore_errors=True)
            for query, said in contend(engine, pythons[engine], given, whole if engine in UNORDERED else inputs, place, left):
                _kept(options.output, engine, query, number).write_text(json.dumps(said) + "\n")
                print(f"{number} {engine} {query}: {said}", file=sys.stderr, flush=True)
    table = "\n".join(tell(options.output, options.events))
    (options.output / "table.md").write_text(table + "\n")
    print(table)


def python_of(engine: str) -> str:
    """The interpreter of an engine's environment, which is made unless it is there."""
    if engine not in REQUIREMENTS:
        return sys.executable
    directory = ENVIRONMENTS / engine
    python, done = directory.absolute() / "bin" / "python", directory / "done"
    if not done.exists():
        venv.create(directory, clear=True, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *REQUIREMENTS[engine]], check=True)
        done.touch()
    return str(python)


def expressed(engine: str) -> dict[str, int]:
    """The queries that an engine has, and how long each is."""
    if engine == "penstock":
        return {query: lines_of_module(HERE / f"{query}.py") for query in QUERIES if query != "q12"}  # by the clock
    return lines_of_entry(ENGINES / f"in_{engine}.py")


def contend(
    engine: str, python: str, given: Sequence[Event], inputs: Path, place: Path, queries: Sequence[str]
) -> Iterator[tuple[str, Result]]:
    """Run queries on an engine, compare what each has said with what DuckDB finds, and say how fast it was."""
    if not queries:
        return
    command = [python, str(ENGINES / f"in_{engine}.py"), str(inputs), str(place), *queries]
    with (inputs.parent / f"{engine}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        answers = [json.loads(line) for line in process.stdout if line.startswith("{")]
        if process.wait():
            sys.exit(f"{engine} has failed; {inputs.parent / f'{engine}.log'} has the reason.")
    for said in answers:  # only now, as comparing takes a core for as long as a query
        query = said["query"]
        want, have = wanted(query, given), rows_of(query, place / query)
        rate = warm(said["progress"]) if "progress" in said else read_by(query, given) / said["seconds"]
        yield query, {"missing": (want - have).total(), "extra": (have - want).total(), "rows_per_s": rate}


def warm(progress: Sequence[dict[str, Any]]) -> float:
    """Rows per second of the micro-batches after those that warm up, of Spark's progress."""
    batches = [one for one in progress if one["numInputRows"]][WARM_UP:]
    taken = sum(one["durationMs"]["triggerExecution"] for one in batches)
    return 1000 * sum(one["numInputRows"] for one in batches) / taken


def read_by(query: str, given: Sequence[Event]) -> int:
    """How many events a query reads."""
    kinds = {source.event_type for source in module_of(query).app.topology().sources}
    return sum(type(event) in kinds for event in given)


def rows_of(query: str, place: Path) -> Counter[tuple[Any, ...]]:
    """What a query has left in a file, or in the files of a directory, the oldest first."""
    kind = next(sink for sink in module_of(query).app.topology().sinks if sink.name == "Out").stream.event_type
    files = sorted(one for one in place.rglob("*") if one.is_file()) if place.is_dir() else [place]
    shown = [one for one in files if not any(part.startswith(("_", ".")) for part in one.relative_to(place).parts)]
    rows = [row for one in shown for row in _rows(one)]
    if rows and "op" in rows[0] and query in UPSERTED:
        rows = list({row["after"][UPSERTED[query]]: row["after"] for row in rows}.values())
    elif rows and "op" in rows[0]:  # changes, as Debezium writes them
        left = Counter[bytes]()
        for change in rows:
            for part, sign in (("before", -1), ("after", 1)):
                if change[part] is not None:
                    left[msgspec.json.encode(change[part])] += sign
        rows = [msgspec.json.decode(row) for row, count in left.items() for _ in range(count)]
    return found(query, [msgspec.convert(row, kind) for row in rows])


def _rows(file: Path) -> list[Any]:
    if file.suffix == ".parquet":
        return pq.read_table(file, coerce_int96_timestamp_unit="us").to_pylist()
    return [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]


def tell(directory: Path, count: int) -> Iterator[str]:
    """The table: for each engine rows per second, lines, and rows that are missing or too many."""
    yield (
        f"{datetime.date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}; {count:,} events; "
        "rows per second (lines of code), median of the rounds; rows that are missing or too many."
    )
    yield ""
    yield f"| query | {' | '.join(TITLES.values())} |"
    yield f"| --- |{' --- |' * len(TITLES)}"
    lines = {engine: expressed(engine) for engine in TITLES}
    for query in QUERIES:
        yield f"| {query} | {' | '.join(_cell(directory, engine, query, lines[engine].get(query)) for engine in TITLES)} |"


def _cell(directory: Path, engine: str, query: str, lines: int | None) -> str:
    if lines is None:
        return "-"
    results = [json.loads(one.read_text()) for one in sorted(directory.glob(f"{engine}-{query}-*.json"))]
    if not results:
        return f"({lines})"
    text = f"{median(one['rows_per_s'] for one in results):,.0f} ({lines})"
    wrong = [f"{-results[-1]['missing']:,}"] if results[-1]["missing"] else []
    return ", ".join([text, *wrong, *([f"+{results[-1]['extra']:,}"] if results[-1]["extra"] else [])])


def _kept(directory: Path, engine: str, query: str, number: int) -> Path:
    return directory / f"{engine}-{query}-{number}.json"


if __name__ == "__main__":
    main()
