"""What `penstock run --adapt` does with each application of the gallery while its rate rises and falls: a table.

    python benchmarks/adapting.py [--only sessions] [--p95 3s] [--seconds 25] [--output FILE.md]

Each runs on `local[2]` for three times so many seconds, at 50, then 500, then 50 lines a second of its own input, whose times
are those of writing. What has been measured is kept in data/adapting, so that the same command goes on after Ctrl-C.
"""

import argparse
import datetime
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
GALLERY = ROOT / "examples" / "gallery"
NAMES = sorted(path.stem for path in GALLERY.glob("*.py"))
WORK = Path("data/adapting")
RATES = (50, 500, 50)
"""Lines a second of all sources together."""
EVERY_S = 0.25
"""A file of each source."""
STARTS_S = 12.0
"""For Spark to start, before lines come."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=NAMES)
    parser.add_argument("--p95", default="3s")
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    for name in given.only or NAMES:
        kept = WORK / f"{name}.json"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(measured(name, given.p95, given.seconds)))
            print(kept.read_text(), file=sys.stderr, flush=True)
    table = "\n".join(tell(given.only or NAMES, given.p95))
    if given.output:
        given.output.write_text(table + "\n")
    print(table)


def measured(name: str, p95: str, seconds: float) -> dict[str, object]:
    """What a run has told and decided."""
    place = WORK / name
    shutil.rmtree(place, ignore_errors=True)
    sources = [directory.name for directory in sorted((GALLERY / "input" / name).iterdir())]
    for source in sources:
        (place / source).mkdir(parents=True)
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        str(GALLERY / f"{name}.py"),
        "--name",
        "run",
        "--runs",
        str(place / "runs"),
        "--master",
        "local[2]",
        "--adapt",
        "--p95",
        p95,
        "--duration",
        f"{STARTS_S + 3 * seconds:g}s",
        *(part for source in sources for part in ("--source", f"{source}=jsonl:{place / source}")),
    ]
    stop = threading.Event()
    writer = threading.Thread(target=write, args=(name, place, sources, seconds, stop))
    writer.start()
    ended = subprocess.run(command, capture_output=True, text=True)
    stop.set()
    writer.join()
    run = place / "runs" / "run"
    report = json.loads((run / "report.json").read_text())
    log = run / "decisions.jsonl"
    decisions = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    failed = [line for line in ended.stderr.splitlines() if "failed" in line or "internal" in line]
    return {"code": ended.returncode, "report": report, "decisions": decisions, "failed": failed}


def write(name: str, place: Path, sources: list[str], seconds: float, stop: threading.Event) -> None:
    """Lines of the application's own input, at the rates in turn."""
    lines = {
        source: itertools.cycle((GALLERY / "input" / name / source / "1.jsonl").read_text().splitlines()) for source in sources
    }
    time.sleep(STARTS_S)
    began, number = time.monotonic(), 0
    while not stop.is_set() and (at := time.monotonic() - began) < 3 * seconds:
        rate = RATES[min(2, int(at // seconds))]
        now = datetime.datetime.now(datetime.UTC).isoformat()
        for source in sources:
            rows = [json.loads(next(lines[source])) for _ in range(max(1, round(rate * EVERY_S / len(sources))))]
            rows = [{**row, "at": now} if "at" in row else row for row in rows]
            draft = place / source / f".{number:06d}.jsonl"
            draft.write_text("".join(json.dumps(row) + "\n" for row in rows))
            draft.rename(draft.with_name(draft.name[1:]))
        number += 1
        stop.wait(max(0.0, began + number * EVERY_S - time.monotonic()))


def tell(names: list[str], p95: str) -> list[str]:
    """The table."""
    rows = [
        f"{datetime.date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}; `--p95 {p95}`, lines a second "
        f"{', '.join(map(str, RATES))}. Latency: from an event's birth to the commit of its micro-batch; measured.",
        "",
        "| application | events | p50 | p95 | lost | decisions | checks: p95 expected and come (s) | failed |",
        "| --- | ---: | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for name in names:
        found = json.loads((WORK / f"{name}.json").read_text())
        counts, latency = found["report"]["counts"], found["report"]["latency_ms"]
        kinds = Counter(decision["kind"] for decision in found["decisions"])
        checks = [
            f"{decision['expected'].get('p95', 0):.2f}, {decision['came'].get('p95', 0):.2f}"
            for decision in found["decisions"]
            if decision["kind"] in ("check", "revert")
        ]
        decided = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "none"
        rows.append(
            f"| {name} | {counts['accepted']:,} | {_seconds(latency.get('p50'))} | {_seconds(latency.get('p95'))} | "
            f"{counts['lost']} | {decided} | {'; '.join(checks) or '-'} | {'; '.join(found['failed']) or 'no'} |"
        )
    return rows


def _seconds(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds / 1000:.2f} s"


if __name__ == "__main__":
    main()
