"""The detector of changes: silent while nothing changes, quick when something does, deaf to what does not matter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.planner.change import level_change, local_dispersion, rate_change


def windows(random, rate, count=60, width=1.0, dispersion=1.0):
    """Poisson's rows, or in bursts of a size."""
    counts = random.poisson(np.full(count, 1.0) * rate * width / dispersion) * dispersion
    return np.full(count, width), counts.astype(float)


def test_it_is_silent_while_the_rate_stays():
    random = np.random.default_rng(1)
    for _ in range(2000):
        assert rate_change(*windows(random, 50.0), 50.0) is None


def test_bursts_are_no_change():
    random = np.random.default_rng(2)
    false = sum(rate_change(*windows(random, 50.0, dispersion=10), 50.0) is not None for _ in range(500))
    assert false <= 5


@given(st.floats(150, 5000), st.floats(1.5, 4.0), st.booleans(), st.integers(0, 100))
@settings(max_examples=60, deadline=None)
def test_a_step_is_seen_and_measured(rate, factor, up, seed):
    random = np.random.default_rng(seed)
    after = rate * factor if up else rate / factor
    widths, counts = windows(random, rate, 40)
    later, more = windows(random, after, 20)
    found = rate_change(np.append(widths, later), np.append(counts, more), rate)
    assert found is not None
    assert found.after == pytest.approx(after, rel=0.1, abs=4 * found.error)
    assert 15 <= found.windows <= 25


def test_one_large_sample_is_no_change():
    random = np.random.default_rng(3)
    widths, counts = windows(random, 100.0)
    assert rate_change(widths[:2], counts[:2] * 4, 100.0) is None


def test_a_change_that_does_not_matter_is_not_told():
    random = np.random.default_rng(4)
    assert rate_change(*windows(random, 1_100_000.0, 200), 1_000_000.0) is None


def test_silence_is_a_change():
    found = rate_change(np.full(20, 1.0), np.zeros(20), 100.0)
    assert found is not None
    assert found.after == 0


def test_a_drift_is_no_dispersion():
    random = np.random.default_rng(5)
    counts = random.poisson(np.linspace(500, 1500, 100)).astype(float)
    assert local_dispersion(np.full(100, 1.0), counts) < 2
    assert np.var(counts) / np.mean(counts) > 50


@pytest.mark.parametrize("count", range(0, 45))
def test_a_recording_of_any_length_is_asked_for_a_change_of_level(count):
    assert level_change(np.full(count, 1.0), np.full(count, 100.0)) is None
