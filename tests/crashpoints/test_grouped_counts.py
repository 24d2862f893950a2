"""What is counted of a run does not depend on how its elements are grouped."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
EVENTS, BAD = 50, 4
ELEMENTS = ("split", "Left", "Right", "last")
FAILED = 4 * (EVENTS // 10) + BAD
"""Numbers that end in 0 to 3, however many elements refuse them, and what is no number."""


def partitions_of(items):
    """All ways to divide items into groups, as names of groups by item."""
    for names in itertools.product(range(len(items)), repeat=len(items)):
        if all(name <= max(names[:place], default=-1) + 1 for place, name in enumerate(names)):
            yield {item: f"g{name}" for item, name in zip(items, names, strict=True)}


def is_possible(groups):
    """Whether no two groups feed each other: the last element may not be with the first one where Left is not, too."""
    return groups["last"] != groups["split"] or groups["Left"] == groups["split"]


def reports_of(place, groupings, *spoilt, empty=False):
    """The report of a run for each grouping."""
    files = place / "in"
    files.mkdir()
    for number in range(0 if empty else 5):
        lines = [json.dumps({"value": value}) for value in range(number, EVENTS, 5)] + ["{"] * (BAD if number == 3 else 0)
        (files / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "crashpoints.grouped", str(place / "runs"), f"jsonl:{files}?max_files=1", *spoilt]
    environment = {**os.environ, "PYTHONPATH": f"{TESTS.parent}{os.pathsep}{TESTS}"}
    done = subprocess.run(
        command, input=json.dumps(groupings), env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(zip(groupings, map(json.loads, done.stdout.splitlines()), strict=True))


def test_counts_are_the_same_for_every_grouping(tmp_path):
    groupings = [groups for groups in partitions_of(ELEMENTS) if is_possible(groups)]
    assert len(groupings) > 10
    for groups, report in reports_of(tmp_path, groupings):
        counts = report["counts"]
        assert counts["processed"] == EVENTS + BAD - FAILED, groups
        assert (counts["dead_lettered"], counts["queued"], counts["accepted"]) == (FAILED, 0, EVENTS + BAD), groups
        assert (counts["lost"], counts["duplicated"]) == (0, 0), groups
        assert counts["dead_letters"] == (1 + 4 + 2 + 2) * (EVENTS // 10) + BAD, groups
        assert report["sinks"] == {"Lasts": 2 * 7 * EVENTS // 10, "Rights": 2 * 7 * EVENTS // 10}, groups


APART = {name: name for name in ELEMENTS}


@pytest.mark.parametrize(
    ("how", "count"),
    [
        pytest.param("lose", "missing", marks=pytest.mark.slow),
        pytest.param("double", "extra", marks=pytest.mark.slow),
        ("swap", "differs"),
    ],
)
def test_what_is_lost_or_doubled_between_groups_is_found_for_each_group_that_reads_it(tmp_path, how, count):
    [(_, report)] = reports_of(tmp_path, [APART], how)
    kinds = ("missing", "extra", "differs")
    wrong = {name: kind for name, place in report["places"].items() for kind in kinds if place[kind]}
    assert wrong == dict.fromkeys(("read from Halves by Left", "read from Halves by Right", "read from Lefts by last"), count)
    assert (report["counts"]["lost"] > 0, report["counts"]["duplicated"] > 0) == (how != "double", how != "lose")


def test_a_group_that_has_read_nothing_counts_nothing(tmp_path):
    [(_, report)] = reports_of(tmp_path, [APART], empty=True)
    assert not any(report["counts"].values())
    assert report["places"]["read from Halves by Left"]["events"] == 0
