"""NEXMark's queries over a long input with ten million keys: rows a second and memory, from the first micro-batch to the last.

    python benchmarks/nexmark/scale.py [--query q17] [--rate 100] [--events 50000000] [--files 100] [--output DIRECTORY]

The events are as model.py has them, but of 50 events 10 are persons and 10 auctions, so that 50 million events are of ten
million auctions; DuckDB writes them, and says what must come out. RATE is the events of a second of event time, and so says
how many keys there are at once: at 100, query 17, which counts by day, has 1.7 million auctions a day, and at 600 all of them
are of one day. A file is a micro-batch. What was measured is kept in DIRECTORY, so that the same command goes on after Ctrl-C;
scale.svg and scale.md are made of all that is there. 50 million events take 7 GB of disk, and the results up to 4 GB for a
query.
"""

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from oracle import HERE, module_of

sys.path.append(str(HERE.parent / "peers"))

from tree import memory_of

from penstock.engine.session.descendants import descendants

QUERIES = ("q05", "q11", "q17", "q20")
EVERY_S = 2.0
TENTHS = 10
COLUMNS = {
    "Auctions": "id BIGINT, item VARCHAR, initial_bid BIGINT, reserve BIGINT, expires TIMESTAMP, seller BIGINT, "
    "category BIGINT, ts TIMESTAMP",
    "Bids": "auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR, extra VARCHAR, ts TIMESTAMP",
}
MACROS = """
CREATE MACRO chance(n, salt) AS hash(n, salt) / 18446744073709551616.0;
CREATE MACRO moment(n) AS TIMESTAMP '2026-01-01' + to_microseconds((n * 1000000.0 / getvariable('rate'))::BIGINT);
CREATE MACRO stamp(t) AS strftime(t, '%Y-%m-%dT%H:%M:%S.%fZ');
CREATE MACRO price(n, salt) AS round(10 ** (chance(n, salt) * 6) * 100)::BIGINT;
CREATE MACRO letters(n, salt, from_, size) AS substr(translate(md5(n || salt), '0123456789', 'ghijklabcd'), from_, size);
CREATE MACRO one_of(last, hot, shift, n, salt) AS 1000 + CASE WHEN hash(n, salt) % 4 > 0 THEN last // 100 * 100 + shift
    ELSE greatest(0, last - hot + (chance(n, salt || 'own') * (hot + 1))::BIGINT) END;
"""
"""Half of the bids go to a hot auction, three quarters are of a hot bidder."""
GENERATED = {
    "Auctions": """
SELECT 1000 + n // 50 * 10 + n % 50 - 10 AS id, 'item ' || n AS item, price(n, 'first') AS initial_bid,
    price(n, 'first') + price(n, 'reserve') AS reserve,
    stamp(moment(n) + to_microseconds((chance(n, 'length') * 2e7)::BIGINT)) AS expires,
    one_of(n // 50 * 10, 1000, 0, n, 'seller') AS seller, 10 + hash(n, 'category') % 5 AS category, stamp(moment(n)) AS ts
FROM range({first}, {last}) AS given(n) WHERE n % 50 BETWEEN 10 AND 19 ORDER BY n
""",
    "Bids": """
SELECT CASE WHEN hash(n, 'auction') % 2 > 0 THEN 1000 + (n // 50 * 10 + 9) // 100 * 100
        ELSE 1000 + greatest(0, n // 50 * 10 + 9 - (chance(n, 'any') * 100)::BIGINT) END AS auction,
    one_of(n // 50 * 10, 1000, 1, n, 'bidder') AS bidder, price(n, 'price') AS price,
    CASE WHEN hash(n, 'known') % 2 > 0 THEN ['Google', 'Facebook', 'Baidu', 'Apple'][1 + (hash(n, 'channel') % 4)::INT]
        ELSE 'channel-' || hash(n, 'channel') % 10000 END AS channel,
    'https://www.nexmark.com/' || letters(n, 'url', 1, 4) || '/' || letters(n, 'url', 5, 4) || '/' || letters(n, 'url', 9, 4)
        || '/item.htm?query=1&channel_id=' || hash(n, 'id') % 100 AS url,
    letters(n, 'extra', 1, 20) AS extra, stamp(moment(n)) AS ts
FROM range({first}, {last}) AS given(n) WHERE n % 50 >= 20 ORDER BY n
""",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--query", action="append", choices=QUERIES)
    parser.add_argument("--rate", type=float, default=100.0, help="events of a second of event time")
    parser.add_argument("--events", type=int, default=50_000_000)
    parser.add_argument("--files", type=int, default=100, help=f"{TENTHS} at least")
    parser.add_argument("--output", type=Path, default=Path("data/nexmark/scale"))
    options = parser.parse_args()
    if options.files < TENTHS:
        parser.error(f"--files {options.files}: give {TENTHS} at least, as the table is of tenths of them.")
    options.output.mkdir(parents=True, exist_ok=True)
    about = f"{options.events}-{options.files}-{options.rate:g}"
    inputs = options.output / f"input-{about}"
    write(inputs, options.events, options.files, options.rate)
    for query in options.query or QUERIES:
        kept = options.output / f"{query}-{about}.json"
        if not kept.exists():
            measured = measure(query, inputs, options.output / query)
            print(f"{query}: {measured['rows']:,} rows, now compared", file=sys.stderr, flush=True)
            measured |= compared(query, inputs, options.output / query)
            kept.write_text(json.dumps(measured) + "\n")
            shutil.rmtree(options.output / query)
    found = {
        f"{query}, {path.stem.rpartition('-')[2]} a second": json.loads(path.read_text())
        for query in QUERIES
        for path in sorted(options.output.glob(f"{query}-{options.events}-{options.files}-*.json"))
    }
    draw(found, options.output / "scale.svg")
    table = "\n".join(tell(found, options.events))
    (options.output / "scale.md").write_text(table + "\n")
    print(table)


def write(directory: Path, count: int, files: int, rate: float) -> None:
    """Write the events of auctions and bids as JSON Lines, a file for each part of the time."""
    if directory.exists():
        return
    draft = directory.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    connection = duckdb.connect()
    connection.execute(f"SET VARIABLE rate = {rate}")
    connection.execute(MACROS)
    for source, query in GENERATED.items():
        (draft / source).mkdir(parents=True)
        for number in range(files):
            file = draft / source / f"{number:04d}.jsonl"
            part = query.format(first=number * count // files, last=(number + 1) * count // files)
            connection.execute(f"COPY ({part}) TO '{file}' (FORMAT json)")
            os.utime(file, (1_700_000_000 + number,) * 2)  # Spark takes them by their age
            print(f"\r{source} {number + 1}/{files}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    draft.rename(directory)


def measure(query: str, inputs: Path, runs: Path) -> dict[str, Any]:
    """Run a query to the end of its input; returns for each micro-batch its rows and seconds, and the memory as it went on."""
    shutil.rmtree(runs, ignore_errors=True)
    sources = [source.name for source in module_of(query).app.topology().sources]
    command = [sys.executable, "-m", "penstock", "run", str(HERE / f"{query}.py"), "--until-idle", "--master", "local[2]"]
    command += ["--name", "run", "--runs", str(runs)]
    command += [part for name in sources for part in ("--source", f"{name}=jsonl:{inputs / name}?max_files=1")]
    memory: list[tuple[float, int]] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None:
            memory.append((time.time(), sum(map(memory_of, [running.pid, *descendants(running.pid)]))))
            time.sleep(EVERY_S)
    if running.returncode:
        sys.exit(f"{query} has ended with {running.returncode}; {runs / 'run'} has what it left.")
    progress = [json.loads(line) for line in (runs / "run" / "progress.jsonl").read_text().splitlines()]
    batches = [one for one in progress if one["numInputRows"]]
    report = json.loads((runs / "run" / "report.json").read_text())
    records = [json.loads(line) for line in (runs / "run" / "batches-main.jsonl").read_text().splitlines()]
    held = {one["batch"]: sum(sum(each["instances"].values()) for each in one["elements"].values()) for one in records}
    return {
        "rows": sum(one["numInputRows"] for one in batches),
        "batches": [
            {
                "ended": _seconds(one["timestamp"]) + one["durationMs"]["triggerExecution"] / 1000,
                "rows": one["numInputRows"],
                "seconds": one["durationMs"]["triggerExecution"] / 1000,
                "instances": held.get(one["batchId"]),
            }
            for one in batches
        ],
        "memory": memory,
        "lost": report["counts"]["lost"],
        "duplicated": report["counts"]["duplicated"],
    }


def compared(query: str, inputs: Path, runs: Path) -> dict[str, Any]:
    """Compare the results with DuckDB's over the same files, by their number and the sum of their rows' hashes."""
    connection = duckdb.connect()
    connection.execute(f"SET temp_directory = '{runs / 'duckdb'}'; SET TimeZone = 'UTC'; SET preserve_insertion_order = false")
    for source, columns in COLUMNS.items():
        connection.execute(f"CREATE VIEW {source[:-1].lower()} AS SELECT * FROM {_read(inputs / source / '*.jsonl', columns)}")
    module = module_of(query)
    kind = next(sink for sink in module.app.topology().sinks if sink.name == "Out").stream.event_type
    fields = list(kind.__struct_fields__)
    types = {field: _sql_type(kind.__annotations__[field]) for field in fields}
    out = _read(runs / "run" / "output" / "Out" / "*.jsonl", ", ".join(f'"{name}" {text}' for name, text in types.items()))
    if hasattr(module, "LAST"):  # of updates the last, which has counted most
        key = ", ".join(f'"{name}"' for name in module.LAST)
        out = f"(SELECT * FROM {out} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY bids DESC) = 1)"
    shown = ", ".join(f"printf('%.9g', c{at})" if types[name] == "DOUBLE" else f"c{at}" for at, name in enumerate(fields))
    names = ", ".join(f"c{at}" for at in range(len(fields)))
    sums = [
        connection.execute(f"SELECT count(*), sum(hash({shown})::HUGEINT) FROM {rows} AS t({names})").fetchone()
        for rows in (f"({module.SQL})", out)
    ]
    assert all(sums)
    return {"results": sums[1][0], "wanted": sums[0][0], "equal": sums[0] == sums[1]}  # type: ignore[index]


def _read(files: Path, columns: str) -> str:
    kinds = ", ".join(f"{part.split()[0]}: '{part.split()[1]}'" for part in columns.split(", "))
    return f"read_json('{files}', format = 'newline_delimited', columns = {{{kinds}}})"


def _sql_type(kind: Any) -> str:
    return {int: "BIGINT", float: "DOUBLE", str: "VARCHAR", datetime.datetime: "TIMESTAMP"}[kind]


def _seconds(timestamp: str) -> float:
    return datetime.datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()


def draw(found: dict[str, Any], path: Path) -> None:
    """Rows a second of each micro-batch, the memory of all processes, and the instances with state, as rows go by."""
    figure, (above, below, held) = plt.subplots(3, 1, figsize=(8, 8), sharex=True, constrained_layout=True)
    for query, measured in found.items():
        batches = measured["batches"]
        done = [sum(one["rows"] for one in batches[: at + 1]) for at in range(len(batches))]
        ended = [one["ended"] for one in batches]
        above.plot([rows / 1e6 for rows in done], [one["rows"] / one["seconds"] / 1000 for one in batches], label=query)
        moments = [moment for moment in measured["memory"] if moment[0] <= ended[-1]]
        gone = [sum(one["rows"] for one in batches if one["ended"] <= at) / 1e6 for at, _ in moments]
        below.plot(gone, [size / 2**30 for _, size in moments], label=query)
        known = [(rows, one["instances"]) for rows, one in zip(done, batches, strict=True) if one["instances"]]
        held.plot([rows / 1e6 for rows, _ in known], [number for _, number in known], label=query)
    above.set(ylabel="thousand rows a second", ylim=(0, None), title="NEXMark with ten million keys, two cores (measured)")
    below.set(ylabel="memory of all processes (GiB)", ylim=(0, None))
    held.set(ylabel="instances with state", xlabel="million rows so far", yscale="log")
    above.legend()
    for axes in (above, below, held):
        axes.grid(alpha=0.3)
    figure.savefig(path)


def tell(found: dict[str, Any], count: int) -> list[str]:
    """The table: by tenths of the rows, how many a second; memory; and whether the results are right."""
    head = [f"{datetime.date.today()}, {os.cpu_count()} cores; {count:,} events, {count // 5:,} auctions.", ""]
    head.append(
        "| query, event time | rows | rows/s: first tenth | second | sixth | last | memory: second tenth (GiB) | last | "
        "instances, at most | results | equal |"
    )
    head.append("| --- |" + " ---: |" * 9 + " --- |")
    for query, measured in found.items():
        batches = measured["batches"]
        parts = [list(part) for part in np.array_split(np.array(batches, object), TENTHS)]
        rates = [sum(one["rows"] for one in part) / sum(one["seconds"] for one in part) for part in parts]
        most = [_most(measured["memory"], part[0]["ended"] - part[0]["seconds"], part[-1]["ended"]) for part in parts]
        equal = "yes" if measured["equal"] and not measured["lost"] and not measured["duplicated"] else "NO"
        cells = [f"{measured['rows']:,}", *(f"{rates[at]:,.0f}" for at in (0, 1, 5, 9)), f"{most[1]:.2f}", f"{most[9]:.2f}"]
        cells.append(f"{max(one['instances'] or 0 for one in batches):,}")
        head.append(f"| {query} | {' | '.join(cells)} | {measured['results']:,} | {equal} |")
    return head


def _most(memory: list[tuple[float, int]], since: float, until: float) -> float:
    return max((size for at, size in memory if since <= at <= until), default=0) / 2**30


if __name__ == "__main__":
    main()
