"""Predictions beside a simulated truth, of which `benchmarks/truth.py` has the whole: what once was far off, and must not
be.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import truth
from penstock.planner import Setting, Target, calibrate, observe, tune, verdicts
from penstock.planner.arrivals import arrivals_of

PROCESSES = {one.name: one for one in truth.processes()}


def recorded(name: str, where: Path, seed: int = 1):
    """The process, and what calibration its recordings lead to."""
    process, random, files = PROCESSES[name], np.random.default_rng(seed), []
    for number, setting in enumerate(process.recorded):
        done = truth.run(process, setting, random, process.arrivals, warm=False)
        files.append(where / f"{number}.jsonl")
        files[-1].write_text("\n".join(truth.progress(process, done, number)))
    return process, calibrate(observe(*files)), random


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "pause a 200th batch, two recordings",
        "peaks beyond capacity",
        "peaks, at 10 s",
        "planning, two recordings",
        "even, switching",
        "landing by 500, at 2 s",
        "a file a minute, at 1 s",
        "a wave of a day",
        "a step up",
        "a step down",
        "knee, two recordings",
    ],
)
def test_the_truth_lies_in_the_band(tmp_path, name):
    process, calibration, random = recorded(name, tmp_path)
    for asked in process.asked[:3]:
        found = calibration.predict(Setting(trigger=asked.trigger, rate=asked.rate))
        runs = truth.truth(process, asked, random, 6)
        low, high = found.band("p95")
        inside = [low <= one["p95"] <= high for one in runs[:-1]]
        assert sum(inside) >= 3, (asked, found.p95, (low, high), [one["p95"] for one in runs])


def test_pauses_are_a_time_of_their_own_where_recordings_say_so(tmp_path):
    _, calibration, _ = recorded("pause a 200th batch, two recordings", tmp_path)
    pauses = calibration.queries[0].durations.pauses
    assert pauses.kind == "own"
    assert 10 < pauses.which.sum() < 30
    assert np.median(pauses.lasting[pauses.which]) == pytest.approx(20.0, rel=0.05)


def test_what_one_size_of_micro_batch_does_not_tell_is_in_the_band(tmp_path):
    """Row cost of 85% of the capacity, recorded at 10 s: what would one micro-batch after the other be, and what the limit?"""
    process, calibration, random = recorded("85% of capacity, at 10 s", tmp_path)
    assert not calibration.is_identified
    found = calibration.predict(Setting(trigger=0))
    limit = 1 / process.per_row
    low, high = found.band("throughput_limit")
    assert low < limit < high
    low, high = found.band("mean")
    assert low < truth.truth(process, process.asked[1], random, 4)[-1]["mean"] < high
    assert any("does not tell" in text for text in found.assumptions)


def test_a_rate_that_has_changed_once_is_the_last_one(tmp_path):
    for name, before in (("a step up", 200), ("a step down", 800)):
        _, calibration, _ = recorded(name, tmp_path)
        assert calibration.arrivals.kind == "poisson"
        assert calibration.arrivals.rate == pytest.approx(400, rel=0.02)
        assert calibration.arrivals.changed == pytest.approx(before, rel=0.03)


@pytest.mark.parametrize(
    ("name", "kind", "even"),
    [
        ("landing by 500, at 2 s", "bursty", True),
        ("gaps of scv 200, at 2 s", "bursty", None),
        ("peaks, at 10 s", "recorded", None),
        ("a file a minute, at 10 s", "recorded", None),
        ("few rows", "poisson", None),
        ("regular, at 0 s", "regular", None),
    ],
)
def test_arrivals_are_told_apart_by_what_triggers_found(tmp_path, name, kind, even):
    _, calibration, _ = recorded(name, tmp_path)
    assert calibration.arrivals.kind == kind
    assert even is None or calibration.arrivals.even is even


def test_a_trigger_that_finds_nothing_tells_the_latency(tmp_path):
    """A file a minute at a trigger of a second: nothing waits a minute."""
    process, calibration, random = recorded("a file a minute, at 1 s", tmp_path)
    query = calibration.observation.queries[0]
    true = truth.truth(process, process.asked[0], random, 3)[-1]
    assert query.setting.trigger == 1.0
    assert query.latency()["p95"] == pytest.approx(true["p95"], rel=0.1)


@pytest.mark.parametrize("grid", [0.0, 1.0])
def test_a_gate_that_holds_rows_back_is_no_proof_that_none_was_there(tmp_path, grid):
    """Micro-batches of 500 rows or a few more, whenever so many are there (minOffsetsPerTrigger, which no progress tells)."""
    random = np.random.default_rng(2)
    born = np.cumsum(random.exponential(1 / 50, 60_000))
    starts, ends = list[float](), [0]
    while ends[-1] + 500 <= len(born):
        opened = born[ends[-1] + 499]
        starts.append(float(np.ceil(opened / grid) * grid) if grid else float(opened))
        ends.append(int(np.searchsorted(born, starts[-1], side="right")))
    done = truth.Run(starts, [0.4] * len(starts), ends[1:], ends[1:], [0.01] * len(starts), born=born)
    (tmp_path / "held.jsonl").write_text("\n".join(truth.progress(PROCESSES["even, once at 2 s"], done, 0)))
    latency = observe(tmp_path / "held.jsonl").queries[0].latency()
    assert latency["mean"] == pytest.approx(done.latencies().mean(), rel=0.1)


@pytest.mark.parametrize("trigger", [0.0, 2.0])
def test_reports_that_nothing_was_there_are_no_grid(tmp_path, trigger):
    process, random = PROCESSES["a file a minute, at 1 s"], np.random.default_rng(3)
    done = truth.run(process, truth.Setting(trigger, 20), random, truth.dripping(60), warm=True)
    (tmp_path / "files.jsonl").write_text("\n".join(truth.progress(process, done, 0)))
    query = observe(tmp_path / "files.jsonl").queries[0]
    assert query.setting.trigger == trigger
    true = float(np.quantile(done.latencies(), 0.95))
    assert true - 0.2 < query.latency()["p95"] < true + trigger + 0.2  # when within an interval a file landed is not told


@pytest.mark.parametrize("size", [500, 2000])
def test_bursts_are_no_change_of_the_rate(size):
    found = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        born = truth.landing(size)(random, 500.0, 900.0)
        counts = np.histogram(born, np.arange(0, 901, 5))[0].astype(float)
        model = arrivals_of([(np.full(180, 5.0), counts)])
        found += model is not None and model.changed is not None
    assert found <= 2


def test_a_maximum_that_bursts_reach_is_one(tmp_path):
    _, calibration, _ = recorded("a maximum that bursts reach", tmp_path)
    assert calibration.today.max_rows == 4000
    assert calibration.throughput_limit() == pytest.approx(2000, rel=0.01)


def test_what_a_maximum_hides_is_not_known(tmp_path):
    _, calibration, _ = recorded("the same without lag", tmp_path)
    answer = tune(calibration.observation, Target("p95", 20.0))
    assert answer.feasible is None
    assert "does not say what waits behind it" in answer.reason


def test_micro_batches_far_beyond_those_recorded_are_said_to_be(tmp_path):
    process, calibration, _ = recorded("one after the other, 60% busy with rows", tmp_path)
    found = calibration.predict(Setting(trigger=0, rate=process.asked[0].rate))
    assert any("far beyond those recorded" in text for text in found.assumptions)


def test_an_interval_that_changes_proves_nothing(tmp_path):
    """As under --adapt: a trigger of a second, then of ten, in one run."""
    process, random = PROCESSES["even, once at 2 s"], np.random.default_rng(4)
    first, second = (
        truth.run(replace(process, seconds=seconds), truth.Setting(trigger, 50), random, truth.poisson, warm=True)
        for seconds, trigger in ((100.0, 1.0), (1000.0, 10.0))
    )
    both = truth.Run(
        started=[*first.started, *(at + 100.0 for at in second.started)],
        lasted=first.lasted + second.lasted,
        taken=[*first.taken, *(first.taken[-1] + rows for rows in second.taken)],
        there=[*first.there, *(first.taken[-1] + rows for rows in second.there)],
        planned=first.planned + second.planned,
    )
    (tmp_path / "adapted.jsonl").write_text("\n".join(truth.progress(process, both, 0)))
    assert observe(tmp_path / "adapted.jsonl").queries[0].latency()["mean"] > 3.0  # of nine rows in ten it is 5.3


def test_the_limit_has_pauses_as_they_come(tmp_path):
    _, calibration, _ = recorded("pause a 200th batch, two recordings", tmp_path)
    durations = calibration.queries[0].durations
    assert durations.mean_ratio > 1.1
    assert calibration.throughput_limit() == pytest.approx(1 / durations.per_row, rel=0.05)  # rare in large micro-batches


def test_equal_micro_batches_at_a_maximum_are_not_of_real_time_mode(tmp_path):
    process = truth.Process("capped", (truth.Setting(0, 300, 1000),), (), fixed=6.0, per_row=0.0, noise=0.003, speed=0.0)
    done = truth.run(process, process.recorded[0], np.random.default_rng(1), truth.poisson, warm=True)
    (tmp_path / "capped.jsonl").write_text("\n".join(truth.progress(process, done, 0)))
    assert verdicts(observe(tmp_path / "capped.jsonl"))[0].kind == "saturated"
