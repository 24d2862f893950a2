"""Measures the S4 application on other engines and on Penstock, each alone; see README.md.

python benchmarks/peers/run.py [--only NAME] [--times 3] [--bulk 250000] [--output DIRECTORY]
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from contender import Contender, read_contenders
from trial import Trial, median

from penstock.bench.s4.workload import words_file
from penstock.bench.servers.broker import KafkaBroker

WORDS = 1 << 18


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[contender.name for contender in read_contenders()])
    parser.add_argument("--times", type=int, default=3, help="trials of each")
    parser.add_argument("--bulk", type=int, default=250_000, help="words that wait when throughput is measured")
    parser.add_argument("--output", type=Path, default=Path("data/peers/results"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    contenders = [one for one in read_contenders() if options.only is None or one.name in options.only]
    for contender in contenders:
        contender.prepare()
    words = words_file(options.output, WORDS).read_text().split()
    for number in range(1, options.times + 1):
        for contender in contenders:  # in turn, so that what the machine does besides strikes all of them
            path = options.output / f"{contender.name}-{number}.json"
            if not path.exists():
                _measure(contender, words, options.bulk, path)
    table = "\n".join(_table(read_contenders(), options.output))
    (options.output / "table.md").write_text(table + "\n")
    print(table)


def _measure(contender: Contender, words: list[str], bulk: int, path: Path) -> None:
    place = path.parent / "trial"
    shutil.rmtree(place, ignore_errors=True)
    try:
        with KafkaBroker(place / "kafka") as broker:
            result = Trial(contender, broker, words, bulk, place / contender.name).measure()
    except TimeoutError as error:
        print(f"{path.stem}: {error}", file=sys.stderr, flush=True)
        return
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{path.stem}: {result['words_per_s']:,.0f} words/s, lost {result['lost']}, doubled {result['doubled']}",
        file=sys.stderr,
        flush=True,
    )


def _table(contenders: Iterable[Contender], directory: Path) -> Iterable[str]:
    yield (
        f"{datetime.date.today()}, {os.cpu_count()} cores, Python {platform.python_version()}; medians (least to greatest) of "
        "trials."
    )
    yield ""
    head = (
        "",
        "words/s",
        "CPU-s per million words",
        "cold start (s)",
        "memory (GB)",
        "p99 at half the rate (s)",
        "lost",
        "counted twice",
        "first count after the kill (s)",
        "trials",
    )
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join(['---'] * len(head))} |"
    for contender in contenders:
        trials = [json.loads(path.read_text()) for path in sorted(directory.glob(f"{contender.name}-[0-9]*.json"))]
        if trials:
            yield f"| {' | '.join(_row(contender, trials))} |"


def _row(contender: Contender, trials: list[dict[str, Any]]) -> list[str]:
    def shown(name: str, form: str, scale: float = 1.0) -> str:
        middle, least, most = (format(value * scale, form) for value in median(trials, name))
        return f"{middle} ({least} to {most})"

    return [
        contender.title,
        shown("words_per_s", ",.0f"),
        shown("processor_s_per_million", ".0f"),
        shown("cold_start_s", ".1f"),
        shown("memory_bytes", ".2f", 1e-9),
        shown("p99_s", ".2f"),
        *(", ".join(f"{trial[name]:,}" for trial in trials) for name in ("lost", "doubled")),
        shown("recovery_s", ".0f"),
        str(len(trials)),
    ]


if __name__ == "__main__":
    main()
