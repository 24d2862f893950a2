"""Rows that come seldom, in pieces at even or random moments, or in rare loads: what is said of their latency."""

import numpy as np
import pytest
from planner.queries import progress, written

from penstock.errors import ConfigurationError
from penstock.planner import Setting, Target, calibrate, make_plan, observe, tune, verdicts

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


SOON = ("a row each 20 s", "a file a minute, at 10 s")
"""Those that are tried before each commit."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in SOON else pytest.mark.slow) for name in PIECES])
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
    with pytest.raises(ConfigurationError, match=r"cannot be met"):  # a plan is made for what is expected to keep the bound
        make_plan(observe(tmp_path / "a"), Target("p95", 2.5))


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


def stretches(apart, lasting, rate, seconds):
    """Rows that come for a while, at random moments."""
    return np.sort(np.concatenate([at + RANDOM.random(int(rate * lasting)) * lasting for at in moments(apart, seconds)]))


@pytest.mark.slow
def test_rows_that_come_for_a_while_are_no_burst_at_once(tmp_path):
    births = stretches(300.0, 60.0, 50, 2 * HOUR)
    told, _ = progress(trigger=10.0, births=births, fixed=0.5, per_row=1e-3, seconds=2 * HOUR)
    answer = tune(observe(written(tmp_path / "a", told)), Target("p95", 2.0))
    _, latencies = progress(trigger=1.0, births=births, fixed=0.5, per_row=1e-3, seconds=2 * HOUR)
    assert np.quantile(latencies, 0.95) < 2.0
    assert answer.feasible


@pytest.mark.slow
def test_pieces_are_seen_through_a_longer_trigger(tmp_path):
    """Micro-batches have one piece or two, in turn: at a short trigger none takes less than a piece takes."""
    births = np.sort(np.concatenate([at + RANDOM.random(1000) * 0.2 for at in np.arange(3.3, 2 * HOUR, 20)]))
    told, _ = progress(trigger=30.0, births=births, fixed=0.5, per_row=4e-3, seconds=2 * HOUR)
    answer = tune(observe(written(tmp_path / "a", told)), Target("p95", 3.0))
    assert answer.feasible is False
    found = calibrate(observe(tmp_path / "a")).predict(Setting(trigger=1.0))
    _, latencies = progress(trigger=1.0, births=births, fixed=0.5, per_row=4e-3, seconds=2 * HOUR)
    assert found.p95 == pytest.approx(float(np.quantile(latencies, 0.95)), rel=0.15)


@pytest.mark.slow
def test_an_answer_that_misses_what_was_recorded_is_not_sure(tmp_path, monkeypatch):
    told, _ = progress(trigger=10.0, births=loads(600.0, 20_000, 20, 2 * HOUR), fixed=0.5, per_row=5e-4, seconds=2 * HOUR)
    observation = observe(written(tmp_path / "a", told))
    target = Target("p95", 40.0)
    assert tune(observation, target).headline == "A p95 of 40 s can be met."
    monkeypatch.setattr(type(observation.queries[0]), "latency", lambda self: {"mean": 90.0, "p95": 99.0})
    for what_if in (None, Setting()):
        answer = tune(observation, target, what_if)
        assert answer.headline == "A p95 of 40 s may be met."
        assert "the p95 of the recorded setting is 99.00 s" in answer.reason
    assert tune(observation, Target("p95", 0.1)).feasible is None


def test_a_short_start_leaves_the_trigger_as_it_was(tmp_path):
    told, _ = progress(trigger=10.0, rate=60, seconds=1200)
    again, _ = progress(trigger=10.0, rate=60, seconds=20, first=len(told), run="again")
    again = [{**one, "timestamp": one["timestamp"].replace("2025-06-15", "2025-06-16")} for one in again]
    assert observe(written(tmp_path / "a", told + again)).queries[0].setting.trigger == 10.0


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("at capacity", {"trigger": 5.0, "rate": 100, "fixed": 0.5, "per_row": 9.3e-3, "noise": 0.1, "seconds": 3600}),
        ("slowing", {"trigger": 5.0, "rate": lambda at: 100 * (1 + 0.3 * np.sin(at / 40)), "fixed": 0.5, "per_row": 5e-3}),
    ],
)
def test_what_grows_or_is_near_its_end_is_said(tmp_path, kind, options):
    told, _ = progress(**{"seconds": 1800, **options})
    if kind == "slowing":
        for number, one in enumerate(told):
            for phase in ("addBatch", "triggerExecution"):
                one["durationMs"][phase] = round(one["durationMs"][phase] * (1 + 0.8 * number / len(told)))
    assert kind in [verdict.kind for verdict in verdicts(observe(written(tmp_path / "a", told)))]


def test_recordings_at_two_speeds_leave_a_micro_batch_some_cost(tmp_path):
    """The slower recording has the longer trigger, so that the line through both begins below zero."""
    paths = []
    for name, trigger, slower in (("a", 5.0, 1.0), ("b", 15.0, 1.15)):
        told, _ = progress(trigger=trigger, rate=100, fixed=0.5 * slower, per_row=2e-3 * slower, seconds=900, run=name)
        paths.append(written(tmp_path / name, told))
    assert 0.1 < calibrate(observe(*paths)).queries[0].durations.fixed < 1.0
