"""A calibration that follows a run."""

import math
from dataclasses import replace

import numpy as np
import pytest
from planner.queries import BEGAN, progress, written

from penstock.errors import ConfigurationError
from penstock.planner import Setting, calibrate, observe
from penstock.planner import speed as module
from penstock.planner.durations import durations_of
from penstock.planner.speed import follow


def recorded(tmp_path, run, **given):
    told, latencies = progress(run=run, **given)
    return written(tmp_path / f"{run}.jsonl", told), latencies


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    place = tmp_path_factory.mktemp("speed")
    paths = [
        recorded(place, f"c{seed}", trigger=trigger, rate=rate, seed=seed)[0]
        for seed, (trigger, rate) in enumerate([(1.0, 1000), (0, 500), (2.0, 2000)])
    ]
    return calibrate(observe(*paths))


def test_a_slower_run_is_followed_and_predicted(calibrated, tmp_path):
    path, latencies = recorded(tmp_path, "slow", fixed=0.39, per_row=1.3e-4, rate=1500, seed=7)
    running = calibrated.following(observe(path))
    speed = running.queries[0].speed
    assert speed.factor == pytest.approx(1.3, rel=0.03)
    assert speed.error < 0.03
    setting = Setting(trigger=1, rate=1500)
    asleep, awake = calibrated.predict(setting), running.predict(setting)
    assert awake.mean == pytest.approx(latencies.mean(), rel=0.03)
    assert abs(awake.mean / latencies.mean() - 1) < 0.5 * abs(asleep.mean / latencies.mean() - 1)
    low, high = awake.band("mean")
    assert (high - low) / awake.mean < np.subtract(*asleep.band("mean")[::-1]) / asleep.mean
    assert any("at the speed of its last micro-batches" in text for text in awake.assumptions)


def test_what_is_known_of_the_speed_fades(calibrated, tmp_path):
    path, _ = recorded(tmp_path, "slow", fixed=0.39, per_row=1.3e-4, seed=7)
    observed = observe(path)
    end = observed.queries[0].cold[-1].ended[-1]
    assert end > BEGAN
    soon, late, never = (calibrated.following(observed, now=end + age).queries[0].speed for age in (0.0, 100.0, 1e7))
    assert soon.factor > late.factor > never.factor == pytest.approx(1.0)
    assert soon.error < late.error < never.error == pytest.approx(never.usual)


def test_the_filter_agrees_with_the_whole_posterior():
    """A Gaussian process with the same covariance, conditioned at once, says the same as the filter step by step."""
    random = np.random.default_rng(3)
    times = np.cumsum(random.exponential(2.0, 25))
    usual, noise, relaxation = 0.2, 0.1, 15.0
    covariance = usual**2 * np.exp(-np.abs(times[:, None] - times) / relaxation)
    logs = random.multivariate_normal(np.zeros(25), covariance + noise**2 * np.eye(25))
    module_far, module.FAR = module.FAR, math.inf  # nothing is cut off, as in the Gaussian process
    try:
        mean, variance, _ = module._filtered(logs, times, usual, noise, relaxation)
    finally:
        module.FAR = module_far
    gain = np.linalg.solve(covariance + noise**2 * np.eye(25), covariance[-1])
    assert mean == pytest.approx(gain @ logs, abs=1e-12)
    assert variance == pytest.approx(usual**2 - gain @ covariance[-1], abs=1e-12)


def test_one_pause_is_not_a_speed(calibrated, tmp_path):
    told, _ = progress(seed=9, run="pause", seconds=40)
    told[-1]["durationMs"]["triggerExecution"] *= 5
    told[-1]["durationMs"]["addBatch"] += 0.8 * told[-1]["durationMs"]["triggerExecution"]
    path = written(tmp_path / "pause.jsonl", told)
    assert calibrated.following(observe(path)).queries[0].speed.factor < 1.1


def test_a_query_without_a_name_is_recognised(calibrated, tmp_path):
    path, _ = recorded(tmp_path, "other", name=None, fixed=0.39, per_row=1.3e-4, seed=7)
    assert calibrated.following(observe(path)).queries[0].speed.factor == pytest.approx(1.3, rel=0.04)


def test_a_run_that_shows_no_speed_is_refused(calibrated, tmp_path):
    path, _ = recorded(tmp_path, "short", seconds=2, seed=7)
    observed = observe(path)
    alone = replace(observed, queries=tuple(replace(one, cold=(one.cold[0][:1],)) for one in observed.queries))
    with pytest.raises(ConfigurationError, match="at least two micro-batches"):
        calibrated.following(alone)


def test_a_run_that_was_resumed_has_a_cold_start_too(calibrated, tmp_path):
    path, _ = recorded(tmp_path, "resumed", first=57, warm_up=8.0, seconds=4, seed=3)
    speed = calibrated.following(observe(path)).queries[0].speed
    assert speed.batches == len(observe(path).queries[0].cold[-1]) - 1


def test_queries_that_hold_each_other_up_have_the_speed_of_their_recording(tmp_path):
    """Their ratios to what is fitted to calm recordings are above one; that is not a speed besides."""
    calm, _ = recorded(tmp_path, "calm", trigger=2.0, seed=1)
    second, _ = recorded(tmp_path, "calm2", trigger=4.0, seed=2)
    hurried, _ = recorded(tmp_path, "hurried", trigger=0, fixed=0.45, per_row=1.5e-4, seed=3)
    series = [observe(path).queries[0].series[0] for path in (calm, second)]
    own = observe(hurried).queries[0]
    durations = durations_of(series, np.random.default_rng(0)).beside(own.series)
    assert np.median(durations.ratios[0]) == pytest.approx(1.5, rel=0.05)
    assert follow(durations, own.cold[-1]).factor == pytest.approx(1.0, abs=0.03)
