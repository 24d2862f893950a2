"""Simulations against results that are known from elsewhere."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from penstock.errors import ConfigurationError
from penstock.queueing import (
    Deterministic,
    Empirical,
    Exponential,
    Gamma,
    HyperExponential,
    LogNormal,
    Recorded,
    StreamServer,
    simulate,
    with_scv,
)
from penstock.queueing.estimate import ENOUGH, Estimate, independent, mean_estimate, quantile_estimate, ratio_estimate, warm_up

KINDS = [Exponential(2.0), Deterministic(2.0), Gamma(2.0, 0.3), LogNormal(2.0, 1.5), HyperExponential(2.0, 6.0)]


@pytest.mark.parametrize("distribution", KINDS, ids=lambda d: type(d).__name__)
def test_draws_have_the_mean_variation_and_quantiles_that_are_claimed(distribution):
    draws = distribution.sample(np.random.default_rng(1), 1_000_000)
    assert draws.mean() == pytest.approx(distribution.mean, rel=0.01)
    assert draws.var() / draws.mean() ** 2 == pytest.approx(distribution.scv, rel=0.03, abs=1e-12)
    p = np.array([0.1, 0.5, 0.99])
    assert np.quantile(draws, p) == pytest.approx(distribution.quantile(p), rel=0.02)


def test_a_distribution_is_chosen_by_its_variation():
    assert [type(with_scv(1.0, scv)).__name__ for scv in (0, 0.5, 1, 7)] == [
        "Deterministic",
        "Gamma",
        "Exponential",
        "HyperExponential",
    ]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Exponential(0), "mean is 0"),
        (lambda: HyperExponential(1.0, 0.5), "use Gamma"),
        (lambda: Empirical([]), "one or more finite numbers"),
        (lambda: Empirical([1.0, -1.0]), "zero or more"),
        (lambda: Empirical([0.0]), "all zero"),
        (lambda: Recorded.from_times([3.0, 1.0]), "ascending"),
    ],
)
def test_wrong_distributions_are_refused_in_words(make, words):
    with pytest.raises(ConfigurationError, match=words):
        make()


@pytest.mark.parametrize("scv", [0.0, 0.5, 4.0])
def test_general_service_times_obey_pollaczek_and_khinchine(scv):
    run = simulate(StreamServer(0.6, 1, 1, 0), jobs=2_000_000, seed=5, service=with_scv(1.0, scv))
    assert run.mean_jobs.covers(0.6 + 0.36 * (1 + scv) / (2 * 0.4), 4)


def test_regular_arrivals_obey_the_gi_m_1_formula():
    # D/M/1: L = rho / (1 - s) with s the root of s = exp(-(1 - s) / rho).
    load, root = 0.6, 0.5
    for _ in range(200):
        root = math.exp(-(1 - root) / load)
    run = simulate(StreamServer(load, 1, 1, 0), jobs=2_000_000, seed=5, interarrival=Deterministic(1 / load))
    assert run.mean_jobs.covers(load / (1 - root), 4)


def test_littles_law_holds_in_the_simulation():
    run = simulate(StreamServer(0.7, 1, 9, 0.4, 2.0), jobs=1_000_000, seed=2)
    assert run.mean_jobs.value == pytest.approx(0.7 * run.mean_response_time.value, rel=0.01)
    assert run.events > 2 * 1_000_000
    assert len(run.response_times) == len(run.departures) == 1_000_000 - run.warm_up_jobs


def test_equal_seeds_give_equal_runs_and_others_differ():
    server = StreamServer(0.7, 1, 9, 0.4)
    first, again, other = (simulate(server, jobs=20_000, seed=seed) for seed in (1, 1, 2))
    assert first.mean_jobs == again.mean_jobs
    assert first.mean_jobs != other.mean_jobs


def test_recorded_arrivals_are_played_in_their_order():
    # Bursts of ten: the same gaps drawn independently would wait far less.
    gaps = np.tile(np.append(np.zeros(9), 20.0), 20_000)
    server = StreamServer(0.5, 1, 1, 0)
    recorded = simulate(server, jobs=190_000, interarrival=Recorded(gaps), service=Deterministic(1.0))
    assert recorded.mean_response_time.value == pytest.approx(5.5, rel=1e-4)
    with pytest.raises(ConfigurationError, match="interarrival distribution has mean 2 s"):
        simulate(StreamServer(0.7, 1, 1, 0), jobs=2000, interarrival=Recorded(gaps))


def test_too_few_jobs_are_refused():
    with pytest.raises(ConfigurationError, match="jobs is 5; give an integer from 1,600 to 1,000,000,000"):
        simulate(StreamServer(0.5, 1, 1, 0), jobs=5)
    with pytest.raises(ConfigurationError, match="confidence is 2"):
        simulate(StreamServer(0.5, 1, 1, 0), confidence=2)


def test_the_warm_up_is_found_and_left_out():
    random = np.random.default_rng(4)
    series = random.normal(10, 1, 2000)
    assert warm_up(series) < 400
    series[:300] += np.linspace(50, 0, 300)
    assert 200 <= warm_up(series) <= 500


@pytest.mark.parametrize(("correlation", "length"), [(0.0, 1600), (0.5, 1600), (0.9, 1600), (0.99, 160_000)])
def test_observations_that_depend_on_each_other_are_worth_fewer(correlation, length):
    random, worth = np.random.default_rng(1), length * (1 - correlation) / (1 + correlation)
    counted = [independent(lfilter([1.0], [1.0, -correlation], random.normal(0, 1, length))) for _ in range(20)]
    assert 0.65 * worth < np.median(counted) < 1.1 * worth  # too few rather than too many
    assert independent(np.ones(1600)) == 1600


def test_too_few_jobs_near_saturation_are_worth_few():
    loads = {load: simulate(StreamServer(load, 1, 1, 0), jobs=100_000) for load in (0.5, 0.99)}
    assert loads[0.5].mean_jobs.independent > ENOUGH > 40 > loads[0.99].mean_jobs.independent
    assert loads[0.5].mean_response_time.independent > ENOUGH > 40 > loads[0.99].mean_response_time.independent
    assert loads[0.99].quantile(0.99).independent < ENOUGH
    with pytest.raises(ConfigurationError, match="p is 2; give a fraction between 0 and 1"):
        loads[0.5].quantile(2)


@pytest.mark.parametrize(("load", "jobs", "least", "most"), [(0.9, 100_000, 0.85, 1.0), (0.999, 1_000_000, 0.0, 0.6)])
def test_intervals_cover_the_truth_less_often_where_the_jobs_are_worth_few(load, jobs, least, most):
    runs = [simulate(StreamServer(load, 1, 1, 0), jobs=jobs, seed=seed).mean_jobs for seed in range(60)]
    assert least <= np.mean([run.covers(load / (1 - load)) for run in runs]) <= most
    assert (np.median([run.independent for run in runs]) > ENOUGH) == (least > 0)


def test_a_handful_of_values_has_no_interval():
    assert mean_estimate(np.arange(5.0), 0.95) == Estimate(2.0, math.inf, 0.95, 5)
    assert quantile_estimate(np.arange(5.0), 0.5, 0.95) == Estimate(2.0, math.inf, 0.95, 5)


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 0.9), st.integers(0, 10**6))
def test_intervals_cover_the_truth_about_as_often_as_they_say(correlation, seed):
    random = np.random.default_rng(seed)
    hits = 0
    for _ in range(60):
        series = lfilter([1.0], [1.0, -correlation], random.normal(0, 1, 6400))
        hits += ratio_estimate(series + 3, np.ones(6400), 0.95).covers(3.0)
        hits += quantile_estimate(series, 0.5, 0.95).covers(0.0)
    assert hits >= 96  # of 120; 114 expected, and fewer than 97 once in 10^8
