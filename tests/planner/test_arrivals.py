"""Arrivals are taken for what they are, and made again like it at another rate."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.arrivals import arrivals_of
from penstock.queueing.distribution import HyperExponential


def windows(times, width=1.0):
    edges = np.arange(0, times[-1], width)
    return np.diff(edges), np.histogram(times, edges)[0].astype(float)


def two_rates(random, seconds=320):
    cells = np.arange(0, seconds, 0.1)
    counts = random.poisson(np.where((cells // 8) % 2, 150.0, 50.0))
    return np.repeat(cells, counts) + random.random(int(counts.sum())) * 0.1


@pytest.mark.parametrize("kind", ["poisson", "regular", "bursty", "recorded"])
def test_arrivals_are_told_apart(kind):
    random = np.random.default_rng(4)
    times = {
        "poisson": lambda: np.cumsum(random.exponential(1e-3, 200_000)),
        "regular": lambda: np.arange(200_000) * 1e-3,
        "bursty": lambda: np.cumsum(HyperExponential(1e-3, 10.0).sample(random, 200_000)),
        "recorded": lambda: np.sort(two_rates(random)),
    }[kind]()
    model = arrivals_of([windows(times)])
    assert model.kind == kind
    assert abs(model.rate - 1000) < 5 * model.error + 1


@given(rate=st.floats(50, 5000), kind=st.sampled_from([None, "poisson", 0.0, 8.0]), seed=st.integers(0, 50))
def test_a_flow_has_the_rate_that_is_asked_for(rate, kind, seed):
    random = np.random.default_rng(seed)
    model = arrivals_of([windows(np.sort(two_rates(random)))])
    flow = model.flow(rate, 320.0, random, kind)
    scv = {None: 60.0, "poisson": 1.0}.get(kind, kind)
    assert flow.count(300.0) == pytest.approx(rate * 300, abs=6 * np.sqrt(max(scv, 0.1) * rate * 300) + rate * 8)


def test_what_was_recorded_comes_again_with_its_bursts():
    random = np.random.default_rng(1)
    model = arrivals_of([windows(np.sort(two_rates(random)))])
    flow = model.flow(3000.0, 320.0, random)
    per_second = np.diff([flow.count(float(second)) for second in range(320)])
    assert np.quantile(per_second, 0.9) / np.quantile(per_second, 0.1) == pytest.approx(3.0, rel=0.2)


def test_given_times_are_replayed_at_the_rate():
    random = np.random.default_rng(2)
    model = arrivals_of([windows(np.cumsum(random.exponential(1e-2, 20_000)))])
    flow = model.flow(10.0, 100.0, random, (0.0, 1.0, 1.1, 5.0))
    assert flow.count(90.0) == pytest.approx(900, abs=5)


def test_nothing_can_be_said_of_one_window():
    assert arrivals_of([(np.array([1.0]), np.array([5.0]))]) is None
    assert arrivals_of([(np.ones(20), np.zeros(20))]) is None
