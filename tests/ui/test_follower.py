"""A run is followed as it grows, and what is said of it is what its files say."""

import fcntl
import json
import math
import os

import msgspec
import pytest

from penstock.errors import ConfigurationError, SourceError
from penstock.planner import calibrate, observe
from penstock.planner.setting import Setting
from penstock.planner.verdict import Verdict
from penstock.runs.batches import BatchRecord, records_in
from penstock.runs.follower import Follower
from penstock.runs.overview import overview
from penstock.runs.report import EventCounts, Report
from penstock.runs.tail import FileTail
from penstock.runtime.tally import ElementTally
from penstock.ui.causes import causes
from penstock.ui.forecast import QUICK, Forecast, _shown
from penstock.ui.metrics import exposition
from penstock.ui.snapshot import snapshot
from penstock.ui.whatif import SliderPositions


def test_a_tail_reads_each_whole_line_once(tmp_path):
    path, tail = tmp_path / "lines", FileTail(tmp_path / "lines")
    assert list(tail.lines()) == []
    path.write_bytes(b"one\ntwo\nthr")
    assert list(tail.lines()) == [b"one", b"two"]
    with path.open("ab") as file:
        file.write(b"ee\n")
    assert list(tail.lines()) == [b"three"]
    path.write_bytes(b"new\n")
    assert list(tail.lines()) == [b"new"]


def test_counts_and_rates_are_those_of_the_ledger(runs):
    run = runs / "keyed"
    records = list(records_in(run / "batches-main.jsonl"))
    shown = snapshot(Follower(run), Forecast())
    accepted = sum(record.sources["Readings"].accepted for record in records)
    assert shown["counts"]["processed"] == accepted
    assert shown["counts"]["dead_lettered"] == 0
    span = (records[-1].committed_us - records[-16].committed_us) / 1e6  # some half minute of them
    lately = sum(record.sources["Readings"].accepted for record in records[-15:]) / span
    assert shown["lately"]["rate"] == pytest.approx(lately, rel=0.1)
    assert shown["lately"]["streams"]["Counts"] == pytest.approx(shown["lately"]["rate"])
    assert shown["series"][0]["rows"][-1][0] == records[-1].committed_us / 1e6
    assert shown["series"][0]["rows"][-1][2] == pytest.approx(records[-1].latency_ms.quantile(0.95) / 1e3)
    assert [mark["kind"] for mark in shown["marks"]] == ["start", "apply"]


def test_what_a_run_adds_is_taken_in(runs):
    run = runs / "keyed"
    follower = Follower(run)
    before = follower.totals.batches
    assert not follower.read()
    last = list(records_in(run / "batches-main.jsonl"))[-1]
    more = msgspec.structs.replace(last, batch=last.batch + 1, committed_us=last.committed_us + 10**6)
    with (run / "batches-main.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(more) + b"\n")
    assert follower.read()
    assert follower.totals.batches == before + 1


def test_a_report_counts_for_a_run_that_has_stopped(runs):
    counts = {"accepted": 10, "processed": 7, "dead_lettered": 1, "queued": 2, "lost": 0, "duplicated": 0, "late": 0}
    report(runs / "keyed", EventCounts(**counts), batches=80)
    shown = snapshot(Follower(runs / "keyed"), Forecast())["counts"]
    assert {name: shown[name] for name in counts} == counts


def test_the_models_say_what_came(runs):
    follower, forecast = Follower(runs / "keyed"), Forecast()
    forecast.refresh(follower, wait=True)
    assert forecast.why_not == ""
    rows = snapshot(follower, forecast)["series"][0]["rows"]
    measured = sorted(row[2] for row in rows)[len(rows) // 2]
    low, high = forecast.today["bands"]["p95"]
    assert 0.9 * low < measured < 1.1 * high
    surface = forecast.what_if.surface()
    assert surface["cells"][3][0][1] < surface["cells"][3][-1][1]
    assert surface["cores"] in surface["offered"]
    fewer = forecast.what_if.surface(SliderPositions(cores=surface["offered"][0]))
    assert fewer["cells"][0][8][1] > surface["cells"][3][8][1]
    gated = forecast.what_if.surface(SliderPositions(min_rows=5000.0, max_delay=5.0))
    assert gated["cells"][0][0][1] == pytest.approx(5.45, rel=0.1)  # up to 5 s at the gate, and 0.7 s


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (SliderPositions(cores=1234.0), "1234 cores"),
        (SliderPositions(times=7.0), "7 times the rate"),
        (SliderPositions(min_rows=3.0), "3 rows"),
        (SliderPositions(max_delay=7.0), "7 seconds"),
    ],
)
def test_a_place_without_a_slider_is_refused(runs, place, said):
    follower, forecast = Follower(runs / "keyed"), Forecast()
    forecast.refresh(follower, wait=True)
    with pytest.raises(ConfigurationError, match=f"{said}.*ask for"):
        forecast.what_if.surface(place)


def changed(run, change):
    """The run with its last ten micro-batches changed."""
    records = list(records_in(run / "batches-main.jsonl"))
    for record in records[-10:]:
        change(record)
    (run / "batches-main.jsonl").write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))


def fail(record: BatchRecord):
    record.dead_lettered = 5
    record.elements["Counter"] = ElementTally(events=5, dead_letters=5)


def delay(record: BatchRecord):
    record.elements["Counter"].late = 50


@pytest.mark.parametrize(
    ("change", "kind", "evidence"), [(fail, "dead letters", "most in Counter"), (delay, "late events", "most at Counter")]
)
def test_what_the_ledger_shows_comes_first(runs, change, kind, evidence):
    changed(runs / "keyed", change)
    first = causes(Follower(runs / "keyed"), [Verdict("trigger too long", "rows wait")], "running")[0]
    assert (first.kind, first.fault) == (kind, True)
    assert evidence in first.evidence
    assert first.mend


@pytest.mark.parametrize(
    "kind",
    [
        "saturated",
        "source throttled",
        "rate rising",
        "state growing",
        "skewed",
        "slow sink",
        "garbage collection",
        "trigger too short",
        "trigger too long",
        "waiting at the gate",
    ],
)
def test_every_verdict_has_a_mend(runs, kind):
    first = causes(Follower(runs / "keyed"), [Verdict(kind, "so it is")], "running")[0]
    assert (first.kind, first.fault, bool(first.mend)) == (kind, True, True)


def test_a_healthy_run_says_so(runs):
    follower, forecast = Follower(runs / "keyed"), Forecast()
    forecast.refresh(follower, wait=True)
    shown = snapshot(follower, forecast)
    assert shown["healthy"]
    assert causes(follower, forecast.verdicts, "running")[0].kind == "healthy"
    assert causes(follower, forecast.verdicts, "stopped")[0].kind == "stopped"


def test_no_run_is_a_sentence(tmp_path):
    with pytest.raises(SourceError, match="not the directory of a run"):
        Follower(tmp_path)


def test_a_run_started_afresh_is_another(runs):
    run = runs / "keyed"
    follower = Follower(run)
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "run": "another", "discarding": True}))
    before = follower.totals.batches
    assert not follower.read()
    assert not follower.is_another
    (run / "batches-main.jsonl").unlink()
    (run / "manifest.json").write_text(json.dumps({**manifest, "run": "another"}))
    assert follower.is_another
    assert (before, Follower(run).totals.batches) == (80, 0)


def report(run, counts, batches=None):
    Report(application="keyed", engine="", master="", counts=counts, units={}, batches=batches).write(run / "report.json")


def test_a_report_of_an_earlier_stop_does_not_count(runs):
    report(runs / "keyed", EventCounts(10, 10, 0, 0), batches=3)
    assert snapshot(Follower(runs / "keyed"), Forecast())["counts"]["processed"] > 10


def test_a_report_of_a_run_in_real_time_has_no_losses_to_tell(runs):
    report(runs / "keyed", EventCounts(10, 10, 0, 0))
    assert snapshot(Follower(runs / "keyed"), Forecast())["counts"]["lost"] is None


def test_a_run_in_real_time_is_shown_as_one(runs):
    """Without a ledger there is nothing to count while it is on, and after that what its report says, if that is the last
    word.
    """
    run = runs / "keyed"
    for ledger in run.glob("batches-*.jsonl"):
        ledger.unlink()
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "mode": "real time", "sources": {"Words": "kafka:b:1/in"}}))
    counts = {"accepted": 10, "processed": 9, "dead_lettered": 1, "queued": 0}
    report(run, EventCounts(**counts))
    follower, forecast = Follower(run), Forecast()
    forecast.refresh(follower, wait=True)
    shown = snapshot(follower, forecast)
    assert {name: shown["counts"][name] for name in counts} == counts
    assert shown["letters_in"] == ["kafka:b:1/in-dead-letters"]
    assert "in real time" in shown["why_not"]
    with (run / "spark.log").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        shown = snapshot(follower, forecast)
    assert (shown["counts"]["accepted"], shown["causes"][0]["kind"]) == (None, "real time")
    samples = [line for line in exposition({"keyed": "running"}, [shown]).decode().splitlines() if not line.startswith("#")]
    assert [line for line in samples if line.startswith(("penstock_running", "penstock_trigger"))]
    assert not [line for line in samples if line.startswith(("penstock_batches", "penstock_source_events", "penstock_events"))]
    commits = run / "checkpoint/sink-Out/commits"
    commits.mkdir(parents=True)
    (commits / "7").write_text("v1")
    os.utime(run / "report.json", (1, 1))
    assert (overview(run).accepted, overview(run).batches) == (None, 8)


def test_what_is_not_finite_is_not_said(runs):
    calibration = calibrate(observe(runs / "keyed"))
    near = calibration.predict(Setting(rate=0.9 * calibration.throughput_limit()), replicates=QUICK)
    near.replicates["p95"][0] = math.inf
    json.dumps(_shown(near, bands=True), allow_nan=False)


def test_a_run_that_hangs_is_no_healthy_one(runs, monkeypatch):
    follower = Follower(runs / "keyed")
    os.utime(runs / "keyed" / "progress.jsonl", (1, 1))
    with (runs / "keyed" / "spark.log").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert follower.state == "running"
        first = causes(follower, [], "running")[0]
    assert (first.kind, first.fault) == ("silent", True)


def heat(record: BatchRecord):
    tally = record.elements["Counter"]
    tally.hottest.counts = {"7": int(0.9 * tally.events)}


def test_the_hottest_keys_are_shown(runs):
    changed(runs / "keyed", heat)
    follower, forecast = Follower(runs / "keyed"), Forecast()
    [(key, share)] = snapshot(follower, forecast)["lately"]["elements"]["Counter"]["hottest"]
    assert (key, share > 0.5) == ("7", True)


def test_dead_letters_that_were_late_are_called_late(runs):
    def late(record: BatchRecord):
        record.dead_lettered = 50
        record.elements["Counter"].late = record.elements["Counter"].dead_letters = 50

    changed(runs / "keyed", late)
    found = causes(Follower(runs / "keyed"), [], "running")
    assert [one.kind for one in found if one.fault] == ["late events"]


def test_late_events_that_were_dropped_hide_no_dead_letters(runs):
    def both(record: BatchRecord):
        record.dead_lettered = record.elements["Counter"].dead_letters = 10
        record.elements["Counter"].late = 50

    changed(runs / "keyed", both)
    manifest = json.loads((runs / "keyed" / "manifest.json").read_text())
    manifest["topology"]["streams"][0]["event_time"] = {"field": "at", "lateness_s": 0.0, "late": "drop"}
    (runs / "keyed" / "manifest.json").write_text(json.dumps(manifest))
    found = causes(Follower(runs / "keyed"), [], "running")
    assert [one.kind for one in found if one.fault] == ["dead letters", "late events"]


@pytest.mark.parametrize(
    ("latest", "waits", "is_cause"),
    [
        ({"0": 31_000, "1": 28_000}, "waiting at Readings: 38,000, of them 20,000 in partition 0", False),
        ({"0": 11_010, "1": 22_380}, "waiting at Readings: 12,390, of them 12,380 in partition 1", True),
        ({"0": 11_000, "1": 10_050}, "waiting at Readings: 50, of them 50 in partition 1", False),
        ({"0": 11_000, "1": 10_000}, "", False),
    ],
)
def test_it_says_which_partition_lags_and_names_one_that_lags_alone(runs, lag, latest, waits, is_cause):
    lag(latest)
    follower = Follower(runs / "keyed")
    assert snapshot(follower, Forecast())["lately"]["waits"] == waits
    found = [one for one in causes(follower, [], "running") if one.kind == "skewed partition"]
    assert [waits in one.evidence for one in found] == [True] * is_cause
    assert "skewed partition" not in [one.kind for one in causes(follower, [], "stopped")]


def test_a_saturated_run_names_its_element(runs):
    first = causes(Follower(runs / "keyed"), [Verdict("saturated", "It does not keep up.")], "running")[0]
    assert first.evidence == "It does not keep up. Counter takes 100% of the elements' time."


def test_a_damaged_ledger_is_told_at_each_look_until_it_is_put_back(runs):
    path = runs / "keyed" / "batches-main.jsonl"
    kept = path.read_bytes()
    follower = Follower(runs / "keyed")
    last = list(records_in(path))[-1]
    more = [msgspec.structs.replace(last, batch=last.batch + n, committed_us=last.committed_us + n) for n in (1, 2)]
    lines = [msgspec.json.encode(more[0]), b"\0" * 30, msgspec.json.encode(more[1])]
    with path.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in lines))
    for _ in range(2):
        with pytest.raises(SourceError, match="A line of the ledger of .* is damaged"):
            follower.read()
    draft = path.with_name("draft")
    draft.write_bytes(kept)
    draft.replace(path)
    assert follower.read()
    assert follower.totals.batches == len(list(records_in(path)))


def set_back(record: BatchRecord):
    record.committed_us -= 3_600_000_000


def stop_the_clock(record: BatchRecord):
    record.committed_us = 1_700_000_000_000_000


def test_rates_are_of_the_time_since_the_clock_was_set_back(runs):
    run = runs / "keyed"
    before = snapshot(Follower(run), Forecast())["lately"]
    changed(run, set_back)
    shown = snapshot(Follower(run), Forecast())
    assert shown["lately"]["rate"] == pytest.approx(before["rate"], rel=0.3)
    assert all(one["rate"] > 0 for one in shown["lately"]["elements"].values())
    assert all(row[4] is None or row[4] >= 0 for row in shown["series"][0]["rows"])
    changed(run, stop_the_clock)
    assert snapshot(Follower(run), Forecast())["lately"]["elements"] == {}


def test_damage_in_one_place_leaves_the_rest_of_the_page(runs):
    run = runs / "keyed"
    changed(run, fail)
    (run / "dead-letters").mkdir(exist_ok=True)
    (run / "dead-letters" / "0.jsonl").write_text('{"torn": ')
    with (run / "progress.jsonl").open("a") as file:
        file.write("null\n5\n")
    shown = snapshot(Follower(run), Forecast())
    [letter] = shown["letters"]
    assert "is no dead letter" in letter["error"]
    assert shown["batches"] > 10
