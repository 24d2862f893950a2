"""What a driver that was paused, and that another has followed, leaves alone once it wakes."""

import time
from types import SimpleNamespace

import pytest

from penstock.app.description import Description
from penstock.engine.moving.move import Move
from penstock.engine.running.recording import Recording
from penstock.errors import RunLockedError
from penstock.runs.layout import Layout
from penstock.runs.manifest import Manifest
from penstock.runs.overview import state_of
from penstock.runs.report import report_of_run
from penstock.runs.starts import last_start


def manifest():
    topology = Description("held", [], [], [])
    nothing = {"state": {}, "sources": {}, "identities": {}, "parameters": {}, "groups": {}, "hops": {}, "reads": {}}
    return Manifest(
        application="held", mode="micro-batches", topology=topology, partitions=2, layout=Layout(begun=1), **nothing
    )


def driver(directory, *, fresh=False):
    recording = Recording(directory, take_over=True)
    recording.prepare(manifest(), fresh=fresh, inspect=lambda *_: None)
    return recording


@pytest.fixture
def paused(tmp_path):
    """A driver that another one has followed, and the other one."""
    drivers = driver(tmp_path / "run"), driver(tmp_path / "run")
    yield drivers
    for recording in drivers:
        recording.release()


def test_it_removes_nothing_that_the_other_has_moved(paused):
    woken, other = paused
    new = [other.checkpoint("main@1") / "offsets", other.hops / "Timed", other.directory / "moving" / "0123abcd-1"]
    for directory in new:
        directory.mkdir(parents=True)
    with pytest.raises(RunLockedError):
        Move.tidy(SimpleNamespace(recording=woken, layout=Layout(moves=2, begun=2), groups=[]))
    assert all(directory.exists() for directory in new)
    Move.tidy(SimpleNamespace(recording=other, layout=Layout(moves=2, begun=2), groups=[]))
    assert not any(directory.exists() for directory in new)


def test_it_writes_back_no_layout_that_the_other_has_changed(tmp_path):
    """A start that had read the layout when another driver began a move, which noted its number."""
    first = driver(tmp_path / "run")
    late = Recording(tmp_path / "run", take_over=True)
    assert late.stored() is not None
    first.keep(layout=Layout(begun=2))
    with pytest.raises(RunLockedError, match="at this moment"):
        late.prepare(manifest(), fresh=False, inspect=lambda *_: None)
    assert first.stored().layout.begun == 2
    for recording in (first, late):
        recording.release()


def test_a_run_that_was_moved_away_under_a_driver_is_said_to_be_gone(tmp_path):
    recording = driver(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    with pytest.raises(RunLockedError, match="is gone"):
        recording.keep()
    (tmp_path / "elsewhere").rename(tmp_path / "run")
    recording.release()


def test_it_notes_no_start_and_reports_nothing(paused):
    woken, other = paused
    with pytest.raises(RunLockedError):
        woken.note_start(lambda time, environment: pytest.fail("a start was made"))
    with pytest.raises(RunLockedError):
        woken.write_report(SimpleNamespace(write=lambda path: pytest.fail("a report was written")), None)
    assert report_of_run(other.directory) is None
    assert last_start(other.directory) is None


def test_a_run_that_is_begun_anew_has_checkpoints_of_its_own(tmp_path):
    """A Spark that still runs for the earlier run writes into the earlier ones."""
    earlier = driver(tmp_path / "run")
    planned = earlier.checkpoint("main") / "offsets" / "0"
    planned.parent.mkdir(parents=True)
    planned.write_text("v1")
    anew = driver(tmp_path / "run", fresh=True)
    assert not planned.exists()
    assert anew.checkpoint("main") != earlier.checkpoint("main")
    assert driver(tmp_path / "run").checkpoint("main") == anew.checkpoint("main")  # the next start goes on there
    anew.checkpoint("main").mkdir(parents=True)
    (anew.checkpoint("main") / "metadata").write_text("{}")
    last = driver(tmp_path / "run", fresh=True)
    assert not anew.checkpoints.exists()
    assert last.checkpoints not in (anew.checkpoints, earlier.checkpoints)


def test_who_has_taken_a_run_over_holds_it_as_others_do(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.engine.running.recording.LOCK_PATIENCE", 0.3)
    first = Recording(tmp_path / "run")
    first.prepare(manifest(), fresh=False, inspect=lambda *_: None)
    other = driver(tmp_path / "run")
    assert state_of(tmp_path / "run", other.manifest) == "running"
    first.release()
    deadline = time.monotonic() + 10
    while state_of(tmp_path / "run", other.manifest) != "running" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state_of(tmp_path / "run", other.manifest) == "running"
    with pytest.raises(RunLockedError, match="Another process is running run"):
        Recording(tmp_path / "run")
    other.release()
    assert state_of(tmp_path / "run", other.manifest) == "stopped"
    Recording(tmp_path / "run").release()
