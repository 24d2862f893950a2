"""Do the tests see a small change to the code? Makes many of them by mutmut, and runs the tests that come by each.

    python scripts/mutants.py [--share 0.04] [--seed 42] [--only ledger] [--paths 'penstock/runtime/together/*']

Makes a copy in build/mutants, with an environment that has mutmut besides. A sample of each room's mutants is tried (all of
them, 13,000, would take a night). Prints a table by room, and each mutant that no test has seen. Only tests that need
neither Spark nor a server take part; lines that none of these executes are not changed.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLACE = ROOT / "build" / "mutants"
MUTMUT = "mutmut==3.8.1"
ROOMS = {
    "runtime": ("penstock/runtime/*",),
    "windows and joins": ("penstock/app/window/*", "penstock/app/joins.py"),
    "kinds": ("penstock/kinds/*",),
    "sinks": (
        "penstock/connectors/sink.py",
        "penstock/connectors/files/sink.py",
        "penstock/connectors/tables/*",
        "penstock/connectors/log/*",
    ),
    "ledger": ("penstock/engine/running/ledger.py", "penstock/runs/batches.py", "penstock/storage/journal.py"),
}
"""The modules that carry the promises, by room."""
TESTS = ("runtime", "kinds", "app", "storage", "connectors", "runs", "test_driver.py", "test_topologies.py", "schemas")
SETTINGS = f"""
[tool.mutmut]
source_paths = ["penstock"]
only_mutate = {json.dumps([path for paths in ROOMS.values() for path in paths])}
also_copy = ["examples", "benchmarks", "docs", "README.md", "CONTRIBUTING.md", "scripts", "deploy"]
# Words of messages are read by people, not by tests; a changed pattern of a `case` may be no Python.
do_not_mutate_patterns = ['^\\s*f?"', 'Error\\(', '^\\s*raise ', '^\\s*case ']
mutate_only_covered_lines = true
pytest_add_cli_args_test_selection = {json.dumps([f"tests/{name}" for name in TESTS])}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-m", "not servers and not slow and not spark", "-q", "-x"]
"""
SURVIVED, UNTRIED = 0, 33
"""Codes of mutmut: all tests have passed; none comes by."""


def main() -> None:
    """Make the mutants, try a sample, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=0.04, help="of a room's mutants")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--only", choices=ROOMS, help="one room")
    parser.add_argument("--paths", nargs="+", metavar="PATTERN", help="these modules, of any of the rooms")
    given = parser.parse_args()
    rooms = {" ".join(given.paths): tuple(given.paths)} if given.paths else ROOMS
    mutmut = prepared()
    subprocess.run([mutmut, "run", "--max-children", "1", "none of them"], cwd=PLACE, check=False)  # makes them all
    draw = random.Random(given.seed)
    drawn = {
        room: draw.sample(names, min(len(names), round(given.share * len(names)) or 1))
        for room, patterns in rooms.items()
        if given.only in (None, room) and (names := sorted(codes_in(patterns)))
    }
    subprocess.run([mutmut, "run", *(name for names in drawn.values() for name in names)], cwd=PLACE, check=False)
    print("| room | mutants | tried | seen | not seen |\n| --- | ---: | ---: | ---: | ---: |")
    unseen = list[str]()
    for room, names in drawn.items():
        codes = codes_in(rooms[room])
        counts = Counter(
            "not seen" if codes[name] == SURVIVED else "seen" for name in names if codes[name] not in (None, UNTRIED)
        )
        print(f"| {room} | {len(codes):,} | {counts.total():,} | {counts['seen']:,} | {counts['not seen']:,} |")
        unseen += [name for name in names if codes[name] == SURVIVED]
    for name in unseen:
        change = subprocess.run([mutmut, "show", name], cwd=PLACE, capture_output=True, text=True, check=False).stdout
        lines = (line for line in change.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---"))
        print(f"\n{name}", *lines, sep="\n    ")


def prepared() -> Path:
    """Return mutmut's command, in a fresh copy of what is committed."""
    shutil.rmtree(PLACE, ignore_errors=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(PLACE)], check=True)
    with (PLACE / "pyproject.toml").open("a") as settings:
        settings.write(SETTINGS)
    venv.create(PLACE / ".venv", with_pip=True)
    packages = PLACE / ".venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    own = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "own.pth").write_text(f"{own}\n")
    subprocess.run([PLACE / ".venv" / "bin" / "python", "-m", "pip", "install", "--quiet", MUTMUT], check=True)
    return PLACE / ".venv" / "bin" / "mutmut"


def codes_in(patterns: Sequence[str]) -> dict[str, int | None]:
    """Return the result of each mutant of some modules, by its name: pytest's code, or None."""
    metas = (
        meta
        for pattern in patterns
        for path in PLACE.glob(pattern)
        for meta in ((PLACE / "mutants" / path.relative_to(PLACE)).rglob("*.meta") if path.is_dir() else [_meta(path)])
    )
    return {
        name: code for meta in metas if meta.exists() for name, code in json.loads(meta.read_text())["exit_code_by_key"].items()
    }


def _meta(path: Path) -> Path:
    file = PLACE / "mutants" / path.relative_to(PLACE)
    return file.with_name(f"{file.name}.meta")


if __name__ == "__main__":
    main()
