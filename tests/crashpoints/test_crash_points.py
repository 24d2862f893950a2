"""A slice of all crash points, another one each time; that faults which are put in are found; and two drivers, or two
directories.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from crashpoints.points import KILL, PAUSE, POWER
from crashpoints.runner import Place, Start, points_of, tried
from crashpoints.standin import Session
from crashpoints.workloads import WORKLOADS
from msgspec import structs

from penstock.connectors.files.hop import HopSource
from penstock.engine.running.ledger import Ledger
from penstock.engine.running.recording import Recording
from penstock.runtime.output import FileOutput
from penstock.storage import durable, journal
from penstock.storage.place import path_of

pytestmark = [pytest.mark.servers, pytest.mark.timeout(600)]

ROOT = Path(__file__).parent.parent.parent
BY_NAME = {workload.name: workload for workload in WORKLOADS}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def first_wrong(place, name, how, points=None):
    """What the first point finds at which something is wrong."""
    workload = BY_NAME[name]
    known = points_of(place, workload)
    for at in range(len(known)) if points is None else [at for at, point in enumerate(known) if points in point]:
        verdict = tried(place, workload, (Start(at, how, at),))
        if verdict.wrong:
            return verdict
    return None


def campaign(*options):
    """The command, in a process of its own: of those that others here have begun, not all may be forked."""
    command = [sys.executable, "-m", "crashpoints", "--without-servers", "--jobs", "2", *options]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_slice_of_all_points_and_pairs():
    said = campaign("--share", "0.01", "--pairs", "100")
    assert said.startswith("Seed ")
    [row] = [line for line in said.splitlines() if line.startswith("| all |")]
    *_, pairs, wrong = (int(cell) for cell in row.replace(",", "").strip("| ").split("|")[1:])
    assert pairs > 80
    assert wrong == 0


def test_a_point_that_there_is_not_is_no_success():
    with pytest.raises(AssertionError, match="The point has not come"):
        campaign("--only", "jsonl", "--at", "kill@99999")
    with pytest.raises(AssertionError, match="'kill' is no HOW@POINT"):
        campaign("--only", "jsonl", "--at", "kill")


@pytest.mark.parametrize("name", ["sqlite", "log", "two-groups", "windows-two-groups"])
def test_every_workload_is_right_where_nothing_befalls_it(place, name):
    assert len(points_of(place, BY_NAME[name])) > 200


# --- faults that are put in -------------------------------------------------------------------------------


def test_a_batch_that_is_delivered_before_it_is_committed_is_found(place, monkeypatch):
    commit = Ledger.commit

    def last(self, record):
        moved = [path_of(file.staged) for file in record.files if "output" in file.staged]
        for path in moved:
            path.rename(path.parent.parent / path.name)
        return commit(self, structs.replace(record, files=[file for file in record.files if "output" not in file.staged]))

    monkeypatch.setattr(Ledger, "commit", last)
    found = first_wrong(place, "jsonl", KILL, "batches-main")
    assert found is not None
    assert found.line.startswith("scripts/crashpoints --only jsonl --at kill@")


def test_a_batch_that_is_repeated_and_committed_twice_is_found(place, monkeypatch):
    commit = Ledger.commit

    def twice(self, record):
        self.last = None
        return commit(self, record)

    monkeypatch.setattr(Ledger, "commit", twice)
    assert first_wrong(place, "sqlite-key", KILL, "commits") is not None


def test_staged_files_that_are_not_synced_are_found(place, monkeypatch):
    monkeypatch.setattr(durable, "sync", lambda file: file.flush())
    assert first_wrong(place, "parquet", POWER, "batches-main") is not None


def test_names_that_are_not_synced_are_found(place, monkeypatch):
    monkeypatch.setattr(durable, "sync_names", lambda directory: None)
    assert first_wrong(place, "sqlite", POWER, "commits") is not None


def test_a_driver_that_is_not_fenced_is_found(place, monkeypatch):
    monkeypatch.setattr(journal._DiskJournal, "_is_ours", lambda self: True)
    monkeypatch.setattr(Recording, "refuse_taken_over", lambda self: None)
    assert first_wrong(place, "two-groups", PAUSE, "batches-") is not None


def test_files_between_groups_that_only_one_of_them_has_read_are_found_missing(place, monkeypatch):
    def removed(self, run, positions):
        for position in positions:
            for file in self._divide(position)[0]:
                file.unlink(missing_ok=True)

    monkeypatch.setattr(HopSource, "note_progress", removed)
    with pytest.raises(AssertionError, match="missing|No such file"):
        points_of(place, BY_NAME["two-readers"])


def test_random_graphs_in_random_groups():
    said = campaign("--graphs", "4", "--share", "0.01", "--pairs", "20")
    assert said.startswith("Seed ")


def test_an_output_that_loses_a_row_is_found(place, monkeypatch):
    write = FileOutput.write_lines
    monkeypatch.setattr(FileOutput, "write_lines", lambda self, sink, lines: write(self, sink, lines[1:]))
    with pytest.raises(AssertionError, match="missing"):
        points_of(place, BY_NAME["jsonl"])


# --- two directories ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("name", ["sqlite", "csv"])
def test_a_copy_of_a_run_knows_that_it_is_one(place, name, fresh):
    workload = BY_NAME[name]
    points = points_of(place, workload)
    half = next(at for at, point in enumerate(points) if "commits/1" in point)
    place.anew(workload)
    assert place.start(workload, Start(half)).killed
    runs = place.world / "runs"
    shutil.copytree(runs / "run", runs / "copy")
    refused = place.apart(lambda: workload.start(place.world, Session(), name="copy", fresh=fresh)).error
    assert "copy is a copy of the run in" in refused
    assert "IncompatibleStateError" in refused
    assert not place.to_the_end(workload).error


def test_a_run_that_was_moved_is_no_copy(place):
    workload = BY_NAME["jsonl"]
    place.anew(workload)
    assert not place.start(workload, Start()).error
    runs = place.world / "runs"
    (runs / "run").rename(runs / "moved")
    refused = place.apart(lambda: workload.start(place.world, Session(), name="moved")).error
    assert "moved was " in refused
    assert "is a copy" not in refused
