"""What windows and joins cost an event, beside what is plainer.

    python benchmarks/timed.py [--only windows|join] [--keys 10000] [--rounds 3] [--output FILE.md]

Windows: sliding ones of 1 hour each minute against tumbling ones of 1 minute, over the same readings. The first file holds an
hour of each key, so that all parts of the windows are there; each other file is a minute more. Join: readings with settings,
after the state has come to hold a million events, against a counter per key over the same readings. In turn, local[2]; the
figure of a round is the median over its warm micro-batches.
"""

import argparse
import datetime
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from harness import HERE, contend, tell

WORK = Path("data/benchmarks")
APP = str(HERE / "apps/timed.py")
COUNTER = str(HERE / "apps/counter.py")
NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
PER_MINUTE = 10
"""Readings of a key."""
MINUTES = 8
HELD = 1_000_000
Row = tuple[str, ...]


def write(directory: Path, files: list[list[str]]) -> Path:
    """Files of lines, the oldest first."""
    if not directory.exists():
        draft = directory.with_suffix(".draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        for number, lines in enumerate(files):
            (draft / f"{number:03d}.jsonl").write_text("\n".join(lines) + "\n")
            os.utime(draft / f"{number:03d}.jsonl", (1_700_000_000 + number,) * 2)
        draft.rename(directory)
    return directory.absolute()


def line(key: int, second: float, field: str = "value") -> str:
    """A reading, or a setting, at a second after noon; with a text for the counter."""
    at = (NOON + datetime.timedelta(seconds=second)).isoformat()
    return f'{{"key":{key},"{field}":{key % 97},"at":"{at}","text":""}}'


def minutes(keys: int) -> list[list[str]]:
    """An hour with a reading of each key a minute, then minutes with ten each."""
    chance = random.Random(7)
    hour = [line(key, 60 * minute + chance.uniform(0, 60)) for minute in range(60) for key in range(keys)]
    rest = []
    for minute in range(60, 60 + MINUTES):
        times = [(60 * minute + chance.uniform(0, 60), key) for key in range(keys) for _ in range(PER_MINUTE)]
        rest.append([line(key, second) for second, key in sorted(times)])
    return [hour, *rest]


def windows(keys: int, rounds: int) -> Iterator[Row]:
    """Sliding against tumbling windows."""
    source = write(WORK / f"minutes-{keys}", minutes(keys) if not (WORK / f"minutes-{keys}").exists() else [])
    sides: dict[str, list[float]] = {"sliding": [], "tumbling": []}
    for _ in range(rounds):
        for shape, found in sides.items():
            given = f"Words=jsonl:{source}?max_files=1"
            found.append(
                contend("penstock", APP, given, WORK / "out" / shape, "--shape", shape, "--fresh", warm_up=3)["median"]
            )
    yield (f"sliding, 1 h each minute, {keys:,} keys", "tumbling, 1 minute", *_told(*sides.values()))


def join(keys: int, rounds: int) -> Iterator[Row]:
    """A join that holds a million events, against a counter."""
    readings, settings = WORK / f"readings-{keys}", WORK / f"settings-{keys}"
    per_file = 100_000
    if not settings.exists():
        chance = random.Random(7)
        times = sorted((chance.uniform(0, 5), key % keys) for key in range(HELD))
        held = [line(key, second, "level") for second, key in times]
        write(readings, [[line(n % keys, 6 + (n % per_file) * 1e-6) for n in range(per_file)] for _ in range(MINUTES)])
        write(settings, [held, *([line(0, 6, "level")] for _ in range(MINUTES - 1))])
    sides: dict[str, list[float]] = {"join": [], "counter": []}
    for _ in range(rounds):
        given = f"Words=jsonl:{readings.absolute()}?max_files=1"
        more = ("--shape", "join", "--source", f"Settings=jsonl:{settings.absolute()}?max_files=1")
        sides["join"].append(contend("penstock", APP, given, WORK / "out" / "join", *more, "--fresh", warm_up=3)["median"])
        sides["counter"].append(contend("penstock", COUNTER, given, WORK / "out" / "count", "--fresh", warm_up=3)["median"])
    yield (f"interval join, {HELD:,} events held, {keys:,} keys", "a counter per key", *_told(*sides.values()))


def _told(ours: list[float], others: list[float]) -> Row:
    def show(found: list[float]) -> str:
        return f"{median(found):,.0f} ({min(found):,.0f} to {max(found):,.0f})"

    ratios = [other / mine for mine, other in zip(ours, others, strict=True)]
    return show(ours), show(others), f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


PARTS = {"windows": windows, "join": join}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = [row for name in options.only or PARTS for row in PARTS[name](options.keys, options.rounds)]
    about = f"{options.rounds} rounds in turn; rows per second of warm micro-batches: median (least to most)."
    tell(about, ("what", "against", "rows/s", "the other's", "times the cost"), rows, options.output)
    shutil.rmtree(WORK / "out", ignore_errors=True)


if __name__ == "__main__":
    main()
