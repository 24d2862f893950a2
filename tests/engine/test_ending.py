"""The end of the input: all windows close, once, however the run came to it."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import APPS

from penstock.engine.running import ending
from penstock.engine.running.ending import has_ended
from penstock.errors import ConfigurationError, RunLockedError

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def write(directory, parts, seed=1):
    """Files of bids, each a micro-batch, in order of their times within the lateness; returns all of them."""
    chance = random.Random(seed)
    every = []
    directory.mkdir(exist_ok=True)
    for number in parts:
        rows = [
            {"item": chance.choice("abc"), "price": chance.randrange(100), "at": T0 + timedelta(seconds=10 * number + second)}
            for second in sorted((chance.uniform(0, 10) for _ in range(20)), key=lambda second: second + chance.uniform(0, 3))
        ]
        lines = "".join(json.dumps({**row, "at": row["at"].isoformat()}) + "\n" for row in rows)
        (directory / f"{number:03d}.jsonl").write_text(lines)
        os.utime(directory / f"{number:03d}.jsonl", (1_700_000_000 + number,) * 2)  # Spark takes them by their age
        every += rows
    return every


def windows(bids, size=10, every=5):
    """By definition: item, start and number of bids of each window that has any."""
    found = {}
    for bid in bids:
        second = (bid["at"] - T0).total_seconds()
        for start in range(-size, 1000, every):
            if start <= second < start + size:
                found[bid["item"], start] = found.get((bid["item"], start), 0) + 1
    return sorted((item, start, bids) for (item, start), bids in found.items())


def told(result):
    return sorted((s.item, (s.start - T0).total_seconds(), s.bids) for s in result.output("Out"))


def best(bids):
    top = {}
    for item, start, count in windows(bids):
        top[start] = max(top.get(start, (0, "")), (count, item))
    return sorted((start, item, count) for start, (count, item) in top.items())


def told_best(result):
    return sorted(((m.start - T0).total_seconds(), m.item, m.bids) for m in result.output("Top"))


def test_all_windows_close_and_then_no_event_can_come(run_app, tmp_path):
    bids = write(tmp_path / "in", range(4))
    options = {"sources": {"Bids": f"jsonl:{tmp_path / 'in'}?max_files=1"}}
    result = run_app("ending", **options)
    assert told(result) == windows(bids)
    assert told_best(result) == best(bids)
    assert result.report["counts"]["late"] == 0
    with pytest.raises(ConfigurationError, match="has ended.*--until-idle=pause"):
        run_app("ending", **options)


@pytest.mark.slow
def test_a_run_killed_before_its_report_of_the_end_makes_it_when_started_again(run_app, tmp_path):
    write(tmp_path / "in", range(2))
    options = {"sources": {"Bids": f"jsonl:{tmp_path / 'in'}?max_files=1"}}
    first = run_app("ending", **options)
    (first.directory / "report.json").unlink()
    more = write(tmp_path / "in", range(2, 3), seed=2)
    again = run_app("ending", **options)
    assert again.report == json.loads((again.directory / "report.json").read_text())
    counts = {**first.report["counts"], "queued": len(more), "accepted": first.report["counts"]["accepted"] + len(more)}
    assert again.report["counts"] == counts  # what has come after the end is not read
    assert told(again) == told(first)
    with pytest.raises(ConfigurationError, match="has ended"):
        run_app("ending", **options)


@pytest.mark.slow
def test_an_input_that_pauses_goes_on_and_ends_without_another_event(run_app, tmp_path):
    bids = write(tmp_path / "in", range(2))
    options = {"sources": {"Bids": f"jsonl:{tmp_path / 'in'}?max_files=1"}}
    paused = told(run_app("ending", until_idle="pause", **options))
    assert 0 < len(paused) < len(windows(bids))
    bids += write(tmp_path / "in", range(2, 4), seed=2)
    run_app("ending", until_idle="pause", **options)
    result = run_app("ending", **options)  # nothing new: only the end comes
    assert told(result) == windows(bids)
    assert told_best(result) == best(bids)
    counts = result.report["counts"]
    assert (counts["lost"], counts["duplicated"], counts["queued"]) == (0, 0, 0)


@pytest.mark.slow
def test_a_run_that_has_ended_can_be_begun_afresh(run_app, tmp_path):
    bids = write(tmp_path / "in", range(2))
    options = {"sources": {"Bids": f"jsonl:{tmp_path / 'in'}?max_files=1"}}
    run_app("ending", **options)
    assert told(run_app("ending", fresh=True, **options)) == windows(bids)


@pytest.mark.slow
def test_windows_of_groups_joined_by_hops_close_one_after_the_other(run_app, tmp_path):
    bids = write(tmp_path / "in", range(3))
    options = {"sources": {"Bids": f"jsonl:{tmp_path / 'in'}?max_files=1"}}
    with_hops = run_app("sequel", **options)
    assert told(with_hops) == windows(bids)


@pytest.mark.slow
@pytest.mark.parametrize(("files", "pauses"), [(3, False), (3, True), (1, True)])
def test_windows_of_the_query_dialect_close(run_app, tmp_path, files, pauses):
    """Also where all had been read before: by a start that has paused, or was killed before the end."""
    (tmp_path / "in").mkdir()
    for number in range(files):
        at = [T0 + timedelta(seconds=10 * number + second) for second in (1, 5)]
        table = pa.table({"item": ["a", "b"], "price": [1, 2], "at": pa.array(at, pa.timestamp("us", tz="UTC"))})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet")
        os.utime(tmp_path / "in" / f"{number}.parquet", (1_700_000_000 + number,) * 2)
    options = {"sources": {"Bids": f"parquet:{tmp_path / 'in'}?max_files=1"}}
    if pauses:
        run_app("closing", until_idle="pause", **options)
    result = run_app("closing", **options)
    assert sorted((c.item, c.bids) for c in result.output("Out")) == [(item, 1) for item in "ab" for _ in range(files)]


@pytest.mark.slow
def test_an_application_without_event_time_has_no_end(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"text": "a"}\n')
    options = {"sources": {"Words": f"jsonl:{tmp_path / 'in'}"}}
    run_app("passing", **options)
    (tmp_path / "in" / "2.jsonl").write_text('{"text": "b"}\n')
    assert run_app("passing", **options).report["counts"]["accepted"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["planned", "committed"])
def test_a_kill_between_the_end_of_the_input_and_of_the_run_changes_nothing(run_app, tmp_path, moment):
    bids = write(tmp_path / "in", range(4))
    command = [
        sys.executable,
        "-m",
        "penstock",
        "run",
        f"{APPS}:ending",
        "--source",
        f"Bids=jsonl:{tmp_path / 'in'}?max_files=1",
        "--runs",
        str(tmp_path / "runs"),
        "--until-idle",
        "--master",
        "local[2]",
    ]
    root = Path(__file__).parent.parent.parent
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(root)}, start_new_session=True)
    run = tmp_path / "runs" / "ending"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        checkpoint = run / "checkpoint" / "main"
        if has_ended(checkpoint):
            ledger = (run / "batches-main.jsonl").read_text().splitlines()
            planned = max(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*"))
            if moment == "planned" or len(ledger) > planned:
                break
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if moment == "planned":
        assert len(ledger) <= planned
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "report.json").unlink(missing_ok=True)  # a slow machine may come here after the run's very end
    result = run_app("ending", sources={"Bids": f"jsonl:{tmp_path / 'in'}?max_files=1"}, partitions=manifest["partitions"])
    assert told(result) == windows(bids)
    assert told_best(result) == best(bids)


@pytest.mark.slow
def test_a_silent_source_holds_the_others_back_unless_it_is_idle(run_app, tmp_path):
    bids = write(tmp_path / "in", range(4))
    (tmp_path / "beats").mkdir()
    (tmp_path / "beats" / "1.jsonl").write_text(json.dumps({"at": T0.isoformat()}) + "\n")
    sources = {"Bids": f"jsonl:{tmp_path / 'in'}?max_files=1", "Beats": f"jsonl:{tmp_path / 'beats'}"}
    assert run_app("patient", sources=sources, until_idle="pause").output("Out") == []
    result = run_app("impatient", sources=sources, until_idle="pause")
    assert set(told(result)) < set(windows(bids))  # the last micro-batch closes what the one before has let pass
    assert told(result)
    held, *_ = result.report["watermarks"]
    assert held == "Beats"


@pytest.mark.slow
def test_timers_on_processing_time_keep_no_run_from_its_end(run_app, tmp_path):
    """Spark runs micro-batches for them one after the other; the run ends all the same, and can be started again."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n{"text": "a"}\n')
    options = {"sources": {"Words": f"jsonl:{tmp_path / 'in'}"}}
    first = run_app("ticking", **options)
    assert first.report["counts"]["processed"] == 3
    (tmp_path / "in" / "2.jsonl").write_text('{"text": "c"}\n')
    again = run_app("ticking", **options)
    assert (again.report["counts"]["processed"], again.report["counts"]["queued"]) == (4, 0)


@pytest.mark.slow
def test_timers_on_processing_time_behind_windows_fire_when_the_run_is_started_again(run_app, tmp_path):
    (tmp_path / "in").mkdir()
    line = json.dumps({"item": "a", "at": T0.isoformat()})
    (tmp_path / "in" / "1.jsonl").write_text(f"{line}\n{line}\n")
    options = {"file": Path(__file__).parent / "apps_clocks.py", "sources": {"Bids": f"jsonl:{tmp_path / 'in'}"}}
    first = run_app("clocks", **options)
    assert [one.bids for one in first.output("Counted")] == [2]
    time.sleep(21)
    (tmp_path / "in" / "2.jsonl").write_text(f"{line}\n")  # of a window that has closed, but Spark runs a micro-batch for it
    again = run_app("clocks", **options)
    assert [(one.item, one.bids) for one in again.output("Said")] == [("a", 2)]
    counts = again.report["counts"]
    assert (counts["processed"], counts["dead_lettered"], counts["lost"]) == (2, 1, 0)


def test_a_driver_that_wakes_plans_nothing_in_place_of_another(tmp_path, monkeypatch):
    """The other has planned the batch meanwhile, after this one has looked."""
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / "0").write_text('v1\n{"batchWatermarkMs":0,"batchTimestampMs":1}\n{}')
    seen = ending._last_planned(tmp_path)
    (offsets / "1").write_text("of the other")
    monkeypatch.setattr(ending, "_last_planned", lambda checkpoint: seen)
    with pytest.raises(RunLockedError, match="Another driver has planned batch 1"):
        ending.plan_last(tmp_path)
    assert (offsets / "1").read_text() == "of the other"
