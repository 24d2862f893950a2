"""Rows that come seldom, in pieces at even or random moments, or in rare loads: what is said of their latency."""

import numpy as np
import pytest
from planner.queries import progress, written

from penstock.planner import Setting, Target, calibrate, observe, tune

RANDOM = np.random.default_rng(3)
HOUR = 3600.0


def moments(apart, seconds=HOUR):
    return np.cumsum(RANDOM.exponential(apart, int(seconds / apart)))


def loads(each, rows, base, seconds):
    """A steady rate, and now and then many rows within a second."""
    steady = np.sort(RANDOM.random(int(base * seconds)) * seconds)
    return np.sort(np.concatenate([steady, *(at + RANDOM.random(rows) for at in np.arange(each / 2 + 3.7, seconds, each))]))


PIECES = {
    "a row a minute": ({"trigger": 0.0, "births": moments(60.0, 4 * HOUR), "seconds": 4 * HOUR}, 2.0),
    "a row each 20 s": ({"trigger": 0.0, "births": moments(20.0), "seconds": HOUR}, 2.0),
    "a row now and then, at 5 s": ({"trigger": 5.0, "births": moments(90.0, 4 * HOUR), "seconds": 4 * HOUR}, 8.0),
    "twenty rows at once": ({"trigger": 0.0, "births": np.repeat(moments(20.0), 20), "seconds": HOUR}, 2.0),
    "pieces at 10 s": ({"trigger": 10.0, "births": np.repeat(moments(30.0), 300), "seconds": HOUR}, 16.0),
    "a file a minute, at 10 s": (
        {"trigger": 10.0, "births": np.repeat(np.arange(7.3, HOUR, 60) + RANDOM.random(60) * 3, 500), "seconds": HOUR},
        16.0,
    ),
    "a job each minute, at 10 s": ({"trigger": 10.0, "births": loads(60.0, 2000, 5, 1500), "seconds": 1500}, 5.0),
}


@pytest.mark.parametrize("name", PIECES)
def test_the_recorded_setting_is_predicted_and_derived_as_it_was(tmp_path, name):
    options, _ = PIECES[name]
    told, latencies = progress(fixed=0.5, per_row=5e-4, seed=1, **options)
    if "file" in name:
        told = [
            {**each, "sources": [{"description": "FileStreamSource[in]", "numInputRows": each["numInputRows"]}]}
            for each in told
        ]
    seen = observe(written(tmp_path / "a", told))
    assert seen.queries[0].setting.trigger == options["trigger"]
    true = float(np.quantile(latencies, 0.95))
    low, high = calibrate(seen).predict().band("p95")
    assert low / 1.05 <= true <= high * 1.05
    if "job" not in name:  # whether its rows come at once is not to be seen
        assert seen.queries[0].latency()["p95"] == pytest.approx(true, rel=0.25)


@pytest.mark.slow
@pytest.mark.parametrize("name", PIECES)
def test_what_is_promised_is_kept(tmp_path, name):
    options, target = PIECES[name]
    told, _ = progress(fixed=0.5, per_row=5e-4, seed=1, **options)
    answer = tune(observe(written(tmp_path / "a", told)), Target("p95", target))
    assert answer.feasible
    _, latencies = progress(fixed=0.5, per_row=5e-4, seed=2, **{**options, "trigger": answer.chosen.setting.trigger})
    assert not answer.sure or float(np.quantile(latencies, 0.95)) <= target * 1.05


def test_what_a_band_allows_is_not_denied(tmp_path):
    """All micro-batches have about the same rows: a row may cost all, and then a shorter trigger helps, or nothing."""
    told, _ = progress(trigger=5.0, rate=150, fixed=0.5, per_row=3e-3, seconds=1200)
    answer = tune(observe(written(tmp_path / "a", told)), Target("p95", 2.5))
    assert answer.chosen.p95 > 2.5
    assert "may be met" in answer.headline
    assert "More cores" not in answer.reason


def test_what_is_far_beyond_the_recording_is_not_sure(tmp_path):
    told, _ = progress(trigger=5.0, rate=100, fixed=0.3, per_row=1e-4, seconds=1800)
    told += progress(trigger=1.0, rate=100, fixed=0.3, per_row=1e-4, seconds=300, first=len(told), run="another")[0]
    answer = tune(observe(written(tmp_path / "a", told)), Target("p95", 30.0), Setting(rate="4x"))
    assert (answer.feasible, answer.sure) == (True, False)
    assert "straight line" in answer.reason


def test_a_rare_load_tells_what_a_row_costs(tmp_path):
    births = loads(600.0, 20_000, 20, 2 * HOUR)
    told, _ = progress(trigger=10.0, births=births, fixed=0.5, per_row=5e-4, seconds=2 * HOUR)
    calibration = calibrate(observe(written(tmp_path / "a", told)))
    assert calibration.is_identified
    assert calibration.queries[0].durations.per_row == pytest.approx(5e-4, rel=0.2)
    assert calibration.arrivals.spikes is not None


def test_few_pauses_may_be_more(tmp_path):
    """A recording with one pause may be of a query that has three as often, or a third of it."""
    told, _ = progress(trigger=5.0, rate=50, fixed=0.4, per_row=3e-3, seconds=2400)
    told[100]["durationMs"]["addBatch"] += 30_000
    told[100]["durationMs"]["triggerExecution"] += 30_000
    pauses = calibrate(observe(written(tmp_path / "a", told))).queries[0].durations.pauses
    often = [pauses.drawn(RANDOM).often for _ in range(200)]
    assert min(often) < 0.4
    assert max(often) > 3
