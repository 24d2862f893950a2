"""Sets two commits side by side on one machine: the same applications, in turn, and whether one is faster.

    python benchmarks/compare.py BEFORE [AFTER] [--only counter] [--rounds 6] [--output FILE.json]

BEFORE and AFTER are what git calls commits; AFTER is the work tree as it is where it is left out. Each round runs an
application once with each, the one that came second first in the next. A round's figure is the median of its warm
micro-batches, in rows per second. The ratio of two commits is the median of the rounds' ratios; its interval is that of the
signs of the ratios, so it assumes nothing of how noise is distributed. Calls and bytes an event are counted besides
(counted.py). FILE.json has all figures.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from harness import HERE, contend, tell
from scipy.stats import binom

ROOT = HERE.parent
WORK = Path("data/benchmarks")
CONFIDENCE = 0.95
APPLICATIONS = {"counter": "apps/counter.py", "batch": "apps/lengths.py", "query": "apps/lengths_query.py"}
"""One of each dialect; they read the same words."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after", nargs="?")
    parser.add_argument("--only", action="append", choices=APPLICATIONS)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--output", type=Path, default=WORK / "compare.json")
    options = parser.parse_args()
    if options.rounds < 1:
        sys.exit("--rounds must be at least 1.")
    roots = {"before": clone(options.before), "after": clone(options.after) if options.after else ROOT}
    source = words()
    results: dict[str, Any] = {
        "commits": {name: described(root) for name, root in roots.items()},
        "counted": {name: counted(root) for name, root in roots.items()},
        "rows_per_s": {name: {side: [] for side in roots} for name in options.only or APPLICATIONS},
    }
    for number in range(options.rounds):
        for name, rates in results["rows_per_s"].items():
            for side in list(roots)[:: -1 if number % 2 else 1]:
                measured = contend(
                    "penstock",
                    str(HERE / APPLICATIONS[name]),
                    f"Words=jsonl:{source}?max_files=1",
                    WORK / "compare",
                    root=roots[side],
                )
                rates[side].append(measured["median"])
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(json.dumps(results, indent=1) + "\n")
    rows = [*_timed(results["rows_per_s"]), *_counts(results["counted"])]
    tell(f"{options.rounds} rounds, local[2].", ("what", "before", "after", "ratio", "what that says"), rows, None)


def clone(commit: str) -> Path:
    """A work tree of a commit, made unless it is there."""
    asked = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"], capture_output=True, text=True
    )
    if asked.returncode:
        sys.exit(f"{commit} is no commit of this clone: name one as git does, main~3 for example.")
    place = (WORK / "commits" / asked.stdout.strip()).absolute()
    if not place.exists():
        subprocess.run(["git", "-C", ROOT, "worktree", "prune"], check=True)
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", place, asked.stdout.strip()], check=True)
    return place


def described(root: Path) -> str:
    """What git calls the commit of a work tree."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def counted(root: Path) -> dict[str, dict[str, float]]:
    """Calls and bytes an event with a work tree's Penstock."""
    command = [sys.executable, str(HERE / "counted.py"), "--root", str(root)]
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}
    found: dict[str, dict[str, float]] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    )
    return found


def words() -> Path:
    """JSON Lines of words with 1,000 keys, eight files of 100,000."""
    directory = WORK / "compare-words"
    if not directory.exists():
        draft = directory.with_suffix(".draft")
        draft.mkdir(parents=True, exist_ok=True)
        for number in range(8):
            lines = [f'{{"key":{row * 7919 % 1000},"text":"{row * 104729:0100d}"}}\n' for row in range(100_000)]
            (draft / f"{number:03d}.jsonl").write_text("".join(lines))
            os.utime(draft / f"{number:03d}.jsonl", (1_700_000_000 + number,) * 2)  # Spark takes them by their age
        draft.rename(directory)
    return directory.absolute()


def interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    """Between which of the ratios their median lies, with at least 95%; None if they are too few to say."""
    ordered, count = sorted(ratios), len(ratios)
    for place in reversed(range(count // 2)):
        if 1 - 2 * binom.cdf(place, count, 0.5) >= CONFIDENCE:
            return ordered[place], ordered[-1 - place]
    return None


def _timed(rates: dict[str, dict[str, list[float]]]) -> list[tuple[str, ...]]:
    rows = []
    for name, sides in rates.items():
        ratios = [after / before for before, after in zip(sides["before"], sides["after"], strict=True)]
        between = interval(ratios)
        said = "too few rounds to say: six at least" if between is None else verdict(*between)
        spread = "" if between is None else f" ({between[0]:.2f} to {between[1]:.2f})"
        before, after = (f"{median(sides[side]):,.0f}" for side in ("before", "after"))
        rows.append((f"{name}, rows/s", before, after, f"{median(ratios):.2f}{spread}", said))
    return rows


def verdict(least: float, greatest: float) -> str:
    """What an interval of ratios of throughputs says."""
    return "faster" if least > 1 else "slower" if greatest < 1 else "no difference seen"


def _counts(counts: dict[str, dict[str, dict[str, float]]]) -> list[tuple[str, ...]]:
    rows = []
    for name, before in counts["before"].items():
        for kind, count in before.items():
            after = counts["after"][name][kind]
            ratio = f"{after / count:.2f}" if count else "-"
            said = "the same" if abs(after - count) <= 0.01 * count else "dearer" if after > count else "cheaper"
            rows.append((f"{name}, {kind} an event", f"{count}", f"{after}", ratio, said))
    return rows


if __name__ == "__main__":
    main()
