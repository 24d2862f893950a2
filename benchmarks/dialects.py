"""Compares each dialect with the best PySpark one would write by hand, on the same input, in one run.

    python benchmarks/dialects.py [--only keys|batch|query|columns|state|divisibility] [--quick] [--output FILE.md]

Each contender runs in a process of its own, local[2]; a file of input is one micro-batch; the first
two to six micro-batches are warm-up and left out; throughput is the median over the rest.
"""

import argparse
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import HERE, contend, tell

WORK = Path("data/benchmarks")
Row = tuple[str, ...]


def keyed_words(keys: int, batches: int, rows: int, name: str) -> Path:
    """JSON Lines of words of 100 characters, every key about equally often."""
    directory = WORK / name
    if not directory.exists():
        directory.mkdir(parents=True)
        random_ = random.Random(7)
        for number in range(batches):
            ids = list(range(keys)) * max(1, rows // keys)
            random_.shuffle(ids)
            text = "".join(random_.choices("0123456789", k=100))
            lines = [f'{{"key":{key},"text":"{text}"}}' for key in ids[:rows]]
            (directory / f"{number:03d}.jsonl").write_text("\n".join(lines) + "\n")
    return directory


def parquet_words(batches: int, rows: int) -> Path:
    """Parquet files of words of 100 characters."""
    directory = WORK / f"parquet-{rows}-{batches}"
    if not directory.exists():
        directory.mkdir(parents=True)
        random_ = random.Random(7)
        texts = ["".join(random_.choices("0123456789", k=100)) for _ in range(5000)]
        for number in range(batches):
            table = pa.table({"key": pa.array(range(rows)), "text": [texts[n % 5000] for n in range(rows)]})
            pq.write_table(table, directory / f"{number:03d}.parquet")
    return directory


def readings(keys: int, batches: int, rows: int) -> tuple[Path, Path]:
    """The same readings as JSON Lines and as Parquet: each key about equally often, in no order."""
    lines, columns = (WORK / f"readings-{rows}-{batches}-{kind}" for kind in ("lines", "columns"))
    if not columns.exists():
        random_ = np.random.default_rng(7)
        for directory in (lines, columns):
            shutil.rmtree(directory, ignore_errors=True)
            directory.mkdir(parents=True)
        for number in range(batches):
            table = pa.table({"key": random_.permutation(rows) % keys, "value": random_.integers(0, 1000, rows)})
            pairs = zip(*(column.to_pylist() for column in table.columns), strict=True)
            (lines / f"{number:03d}.jsonl").write_text("".join(f'{{"key":{key},"value":{value}}}\n' for key, value in pairs))
            pq.write_table(table, columns / f"{number:03d}.parquet")
    return lines.absolute(), columns.absolute()


def compare_keys(quick: bool) -> Iterator[Row]:
    """(a) The event dialect against plain transformWithState, by distinct keys per micro-batch."""
    for keys in (10, 1_000, 100_000):
        batches, warm_up = (4, 2) if quick else (9, 4)
        source = keyed_words(keys, batches, 100_000, f"keyed-{keys}-{batches}").absolute()
        few = keyed_words(keys, 3, 100_000, f"keyed-{keys}-3").absolute()
        rows = contend("plain", "rows", str(source), WORK / "out" / "rows", warm_up=warm_up)
        slow = keys == 100_000  # a micro-batch takes the better part of a minute
        pandas = contend(
            "plain", "pandas", str(few if slow else source), WORK / "out" / "pandas", warm_up=1 if slow else warm_up
        )
        ours = contend(
            "penstock",
            str(HERE / "apps/counter.py"),
            f"Words=jsonl:{source}?max_files=1",
            WORK / "out" / "event",
            warm_up=warm_up,
        )
        for name, other in (("transformWithState (rows)", rows), ("transformWithStateInPandas", pandas)):
            yield (f"(a) event dialect, {keys:,} keys", name, *_ratio(ours, other))


def compare_batch(quick: bool) -> Iterator[Row]:
    """(b) The batch dialect against mapInArrow."""
    source = parquet_words(5 if quick else 14, 1_000_000).absolute()
    ours = contend(
        "penstock",
        str(HERE / "apps/lengths.py"),
        f"Words=parquet:{source}?max_files=1",
        WORK / "out" / "batch",
        "--sink",
        f"Out=parquet:{WORK / 'out' / 'batch-sink'}",
        "--fresh",
        warm_up=2 if quick else 6,
    )
    plain = contend("plain", "mapInArrow", str(source), WORK / "out" / "mapInArrow", warm_up=2 if quick else 6)
    yield ("(b) batch dialect", "mapInArrow", *_ratio(ours, plain))


def compare_query(quick: bool) -> Iterator[Row]:
    """(c) The query dialect against the same DataFrame code."""
    source = parquet_words(5 if quick else 14, 1_000_000).absolute()
    ours = contend(
        "penstock",
        str(HERE / "apps/lengths_query.py"),
        f"Words=parquet:{source}?max_files=1",
        WORK / "out" / "query",
        "--sink",
        f"Out=parquet:{WORK / 'out' / 'query-sink'}",
        "--fresh",
        warm_up=2 if quick else 6,
    )
    plain = contend("plain", "DataFrame", str(source), WORK / "out" / "DataFrame", warm_up=2 if quick else 6)
    yield ("(c) query dialect", "DataFrame", *_ratio(ours, plain))


def compare_columns(quick: bool) -> Iterator[Row]:
    """(f) The batch dialect by key against the event dialect, and against Spark's own aggregation."""
    keys, batches, warm_up = 100_000, 5 if quick else 9, 2 if quick else 4
    lines, columns = readings(keys, batches, 1_000_000)
    for kind, given in (("JSON", f"jsonl:{lines}"), ("Parquet", f"parquet:{columns}")):
        ours, event = (
            contend("penstock", str(HERE / "apps" / app), f"Words={given}?max_files=1", WORK / "out" / "sums", warm_up=warm_up)
            for app in ("sums_batch.py", "sums.py")
        )
        plain = contend("plain", f"sum, {kind}", given.partition(":")[2], WORK / "out" / "plain", warm_up=warm_up)
        others = [("event dialect", event), ("groupBy().agg(sum)", plain)]
        if kind == "Parquet":
            source = given.partition(":")[2]
            others.append(
                (
                    "mapInArrow that reads only",
                    contend("plain", "reading, Parquet", source, WORK / "out" / "plain", warm_up=warm_up),
                )
            )
        for name, other in others:
            yield (f"(f) batch dialect by key, {keys:,} keys, {kind}", name, *_ratio(ours, other))


def compare_state(quick: bool) -> Iterator[Row]:
    """(d) 10,000 instances touched per batch, of 1,000,000 stored and of 10,000 stored."""
    results = {}
    for stored in (10_000, 1_000_000):
        directory = WORK / f"state-{stored}"
        if not directory.exists():
            directory.mkdir(parents=True)
            random_ = random.Random(7)
            batches = [range(start, start + 100_000) for start in range(0, stored, 100_000)] if stored > 10_000 else []
            batches = [list(batch) for batch in batches] + [random_.sample(range(stored), 10_000) for _ in range(8)]
            for number, keys in enumerate(batches):
                lines = [f'{{"key":{key},"text":"{"1" * 100}"}}' for key in keys]
                (directory / f"{number:03d}.jsonl").write_text("\n".join(lines) + "\n")
        loading = 10 if stored > 10_000 else 0
        results[stored] = contend(
            "penstock",
            str(HERE / "apps/counter.py"),
            f"Words=jsonl:{directory.absolute()}?max_files=1",
            WORK / "out" / "state",
            warm_up=loading + 3,
        )
    yield ("(d) 10,000 touched of 1,000,000", "of 10,000 stored", *_ratio(results[1_000_000], results[10_000]))


def compare_divisibility(quick: bool) -> Iterator[Row]:
    """(e) Example 1 against its best hand-written version."""
    source = (WORK / "words").absolute()
    example = HERE.parent / "examples/divisibility"
    subprocess.run([sys.executable, str(example / "words.py"), str(source), "--count", "400000", "--files", "8"], check=True)
    ours = contend("penstock", str(example / "app.py"), f"RawWords=text:{source}?max_files=1", WORK / "out" / "example")
    plain = contend("plain", "divisibility", str(source), WORK / "out" / "by-hand")
    yield ("(e) divisibility, 4 keys", "one transformWithStateInPandas", *_ratio(ours, plain))


def _ratio(ours: dict[str, float], other: dict[str, float]) -> Row:
    def show(result: dict[str, float]) -> str:
        return f"{result['median']:,.0f} ({result['least']:,.0f} to {result['most']:,.0f})"

    return show(ours), show(other), f"{ours['median'] / other['median']:.2f}"


PARTS = {
    "keys": compare_keys,
    "batch": compare_batch,
    "query": compare_query,
    "columns": compare_columns,
    "state": compare_state,
    "divisibility": compare_divisibility,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--quick", action="store_true", help="fewer micro-batches")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = [row for name in options.only or PARTS for row in PARTS[name](options.quick)]
    about = "rows per second of warm micro-batches: median (least to most)."
    tell(about, ("comparison", "against", "Penstock", "the other", "ratio"), rows, options.output)
    shutil.rmtree(WORK / "out", ignore_errors=True)


if __name__ == "__main__":
    main()
