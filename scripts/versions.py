"""Run the tests that start Spark on each version of it: python scripts/versions.py [--only 4.1] [--part 1/4] [--write]
[PYTEST'S OPTIONS ...]

Each version has an environment below `.versions`, which is kept. With --write the table in docs/how-to/platforms.md is made
anew.
"""

import argparse
import datetime
import platform
import re
import subprocess
import sys
import venv
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parent))
from spark_tests import ON_SPARK

ROOT = Path(__file__).parent.parent
PLACE = ROOT / ".versions"
VERSIONS = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1", "4.3": "4.3.0"}
"""The newest patch of each minor version."""
TABLE = ROOT / "docs" / "how-to" / "platforms.md"
BEGIN, END = "<!-- versions -->\n", "<!-- /versions -->\n"


def environment(minor: str) -> Path:
    """The Python of a version's environment, made where it is not there: all that is pinned but Spark."""
    place = PLACE / minor
    pins = without((ROOT / "requirements.lock").read_text(), ("pyspark", "py4j"))
    made = sha256(f"{VERSIONS[minor]} {pins}".encode()).hexdigest()[:16]
    python, stamp = place / "bin" / "python", place / f".installed-{made}"
    if stamp.exists():
        return python
    print(f"Making {place.relative_to(ROOT)} ...", flush=True)
    venv.create(place, with_pip=True, clear=True)
    pinned = place / "pinned.txt"
    pinned.write_text(pins)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*pip, "--require-hashes", "-r", pinned], check=True)
    subprocess.run([*pip, f"pyspark=={VERSIONS[minor]}"], check=True)
    subprocess.run([*pip, "--no-deps", "-e", ROOT], check=True)
    stamp.touch()
    return python


def without(lock: str, names: tuple[str, ...]) -> str:
    """A file of pinned packages, without some."""
    entries = re.split(r"\n(?=[a-z0-9])", lock)
    return "\n".join(entry for entry in entries if not entry.startswith(tuple(f"{name}==" for name in names)))


def tried(minor: str, part: str, options: list[str]) -> tuple[str, int]:
    """A row of the table, and pytest's code."""
    report = PLACE / f"{minor}.xml"
    report.unlink(missing_ok=True)
    python = environment(minor)
    chosen = ON_SPARK if not part else share(ON_SPARK, *map(int, part.split("/")))
    command = [python, "-m", "pytest", "-q", "-m", "not servers and not slow", f"--junitxml={report}", *options, *chosen]
    code = subprocess.run(command, cwd=ROOT).returncode
    counts = ElementTree.parse(report).getroot().find("testsuite")
    assert counts is not None
    failed = int(counts.get("failures", 0)) + int(counts.get("errors", 0))
    refused = sum("needs Spark" in (skip.get("message") or "") for skip in counts.iter("skipped"))
    passed = int(counts.get("tests", 0)) - failed - int(counts.get("skipped", 0))
    return f"| {VERSIONS[minor]} | {passed} | {refused} | {failed} |", code


def share(files: list[str], number: int, of: int) -> list[str]:
    """A part of some files."""
    return files[number - 1 :: of]


def main() -> int:
    """Returns 1 where a test has failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=VERSIONS)
    parser.add_argument("--part", default="", help="as 1/4, of the files of tests")
    parser.add_argument("--write", action="store_true")
    given, options = parser.parse_known_args()
    PLACE.mkdir(exist_ok=True)
    results = [tried(minor, given.part, options) for minor in given.only or VERSIONS]
    rows = "\n".join(row for row, _ in results)
    when = f"{datetime.date.today()}, Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    head = "| Spark | passed | refused by capability | failed |\n| --- | ---: | ---: | ---: |"
    table = f"{head}\n{rows}\n\n{when}; `python scripts/versions.py --write`.\n"
    print(table)
    if given.write:
        text = TABLE.read_text()
        before, _, rest = text.partition(BEGIN)
        TABLE.write_text(before + BEGIN + table + END + rest.partition(END)[2])
    return int(any(code for _, code in results))


if __name__ == "__main__":
    sys.exit(main())
