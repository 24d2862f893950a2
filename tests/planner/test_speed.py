"""A calibration that follows a run."""

import math

import numpy as np
import pytest
from planner.queries import BEGAN, progress, written

from penstock.planner import Setting, calibrate, observe
from penstock.planner import speed as module


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
    assert high - low < np.subtract(*asleep.band("mean")[::-1])
    assert any("at the speed of its last micro-batches" in text for text in awake.assumptions)


def test_what_is_known_of_the_speed_fades(calibrated, tmp_path):
    path, _ = recorded(tmp_path, "slow", fixed=0.39, per_row=1.3e-4, seed=7)
    observed = observe(path)
    end = observed.queries[0].cold[-1].ended[-1]
    assert end > BEGAN
    soon, late, never = (
        calibrated.following(observed, now=end + age).queries[0].speed for age in (0.0, 100.0, 1e7)
    )  # fmt: skip
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


def test_a_run_of_another_query_changes_nothing(calibrated, tmp_path):
    path, _ = recorded(tmp_path, "other", name="another", seed=7)
    assert calibrated.following(observe(path)) == calibrated
