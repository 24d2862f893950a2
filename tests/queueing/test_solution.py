"""The four methods and the simulation agree; every equation that the code uses holds for the chain."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from queueing.servers import stream_servers

from penstock.errors import ConfigurationError
from penstock.queueing import NotSolvableError, StreamServer, simulate, solve
from penstock.queueing.boundary import solve_boundary
from penstock.queueing.chain import Arrivals, truncated_chain
from penstock.queueing.factor import descent, expm1, log1p
from penstock.queueing.matrix_analytic import solve_matrix_analytic
from penstock.queueing.moments import moments
from penstock.queueing.ring import PhaseRing
from penstock.queueing.services import ArrivalsDuringServices


def close(left, right, tolerance=1e-9):
    return left == pytest.approx(right, rel=tolerance, abs=1e-300)


@settings(max_examples=120, deadline=None)
@given(stream_servers(finite_timer=True))
def test_auto_agrees_with_the_chain(server):
    auto, chain = solve(server), solve(server, "chain", 1e-12)
    assert close(auto.mean_jobs, chain.mean_jobs)
    assert close(auto.transfers_per_second, chain.transfers_per_second)
    assert close(auto.mean_external, chain.mean_external, 1e-8)
    assert close(auto.idle_probability, chain.idle_probability)
    kept = len(auto.boundary)
    assert auto.boundary == pytest.approx(chain.boundary[:kept], abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(stream_servers(finite_timer=True, timers=("idle",)))
def test_auto_agrees_with_the_papers_exact_solution(server):
    auto, spectral = solve(server), solve(server, "spectral")
    assert close(auto.mean_jobs, spectral.mean_jobs, 1e-11)
    assert close(auto.transfers_per_second, spectral.transfers_per_second, 1e-11)


@settings(max_examples=25, deadline=None)
@given(stream_servers(largest_batch=12, least_slack=0.1, timers=("idle",), finite_timer=True))
def test_auto_agrees_with_the_papers_iteration(server):
    auto, iterative = solve(server), solve(server, "iterative", 1e-10)
    assert close(auto.mean_jobs, iterative.mean_jobs, 1e-7)
    assert close(auto.transfers_per_second, iterative.transfers_per_second, 1e-7)


def test_the_iteration_with_little_truncation_errs_as_figure_2_says():
    errors = []
    for timer_rate in np.linspace(50, 2000, 40):
        server = StreamServer(750, 1000, 25, timer_rate)
        cheap = solve(server, "iterative", truncation=25)
        errors.append(abs(cheap.cost(1, 0.05) / solve(server).cost(1, 0.05) - 1))
    assert 0.015 < max(errors) < 0.025  # "the largest relative error ... is about 2%"


@pytest.mark.parametrize("load", [0.05, 0.75, 0.99, 0.999, 1 - 1e-6])
@pytest.mark.parametrize("size", [2, 25, 400, 3000])
def test_without_a_timer_the_closed_form_over_the_roots_holds(load, size):
    # ERRATA: L = rho/(1-rho) + sum 1/(1-w_k), with rho x^2 + (1-rho) x = 1 - e_k for x = 1 - w_k.
    angles = 2 * np.pi * np.arange(1, size) / size
    distance = 2 * np.sin(angles / 2) ** 2 - 1j * np.sin(angles)
    slack = 1 - load
    x = 2 * distance / (slack + np.sqrt(slack**2 + 4 * load * distance))
    steady = solve(StreamServer(load, 1.0, size, 0))
    assert close(steady.mean_jobs, load / slack + (1 / x).sum().real, 1e-10)
    assert close(steady.transfers_per_second, load / size, 1e-13)


def stable(size, loads, timer_rates, xis):
    servers = [
        StreamServer(load, 1.0, size, timer_rate, load / xi if xi else math.inf, timer)
        for load, timer_rate, xi, timer in itertools.product(loads, timer_rates, xis, ("idle", "always"))
    ]
    return [server for server in servers if server.is_stable]


@pytest.mark.parametrize("server", stable(math.inf, (0.05, 0.5, 0.9), (0.2, 3.0, math.inf), (0, 0.3)), ids=str)
def test_an_infinite_batch_is_the_limit_of_large_ones(server):
    limit, large = solve(server), solve(replace(server, batch_size=2500))
    assert close(limit.mean_jobs, large.mean_jobs)
    assert close(limit.transfers_per_second, large.transfers_per_second)
    assert close(limit.mean_external, large.mean_external, 1e-6)
    assert close(limit.boundary.sum(), limit.idle_probability)


def test_closed_forms_of_the_default_policy():
    # ERRATA: (K, tau) = (inf, inf) gives L = (rho + lambda/gamma)/(1-rho); K = inf, instantaneous: (rho + lambda/tau)/(1-rho).
    assert close(solve(StreamServer(0.75, 1, math.inf, math.inf, 0.3)).mean_jobs, (0.75 + 2.5) / 0.25, 1e-13)
    assert close(solve(StreamServer(0.75, 1, math.inf, 0.2)).mean_jobs, (0.75 + 0.75 / 0.2) / 0.25, 1e-13)


def test_a_batch_of_one_is_an_mm1_queue():
    steady = solve(StreamServer(0.8, 1, 1, 5))
    assert close(steady.mean_jobs, 4.0, 1e-13)
    assert steady.transfers_per_second == 0.8
    assert steady.jobs_distribution[:20] == pytest.approx(0.2 * 0.8 ** np.arange(20), abs=1e-11)
    assert close(steady.response_time.quantile(0.99), -math.log(0.01) / 0.2, 1e-6)


@pytest.mark.parametrize("server", stable(600, (0.97,), (1e-6, 0.02, 1.0, math.inf), (0, 2.0)), ids=str)
def test_the_iterative_branch_for_many_phases_agrees_with_the_dense_one(monkeypatch, server):
    dense = solve(server)
    monkeypatch.setattr("penstock.queueing.boundary._DENSE", 10)
    iterated = solve(server)
    assert close(dense.mean_jobs, iterated.mean_jobs, 1e-10)
    assert close(dense.transfers_per_second, iterated.transfers_per_second, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("slack", [0.3, 2e-3, 1e-5, 1e-8])
@pytest.mark.parametrize("timer_rate", [0.1, 10.0])
def test_close_to_the_limit_of_stability_auto_keeps_seven_digits(slack, timer_rate):
    # gamma so that 1 - rho - rho xi / K is (1 - rho) slack
    load, size = 0.7, 6
    xi = (1 - load) * (1 - slack) * size / load
    server = StreamServer(load, 1.0, size, timer_rate, load / xi)
    auto, exact = solve(server), solve(server, "spectral", digits=60)
    assert close(auto.mean_jobs, exact.mean_jobs, 1e-7 if slack < 2e-3 else 1e-10)


@settings(max_examples=40, deadline=None)
@given(stream_servers(largest_batch=10, least_slack=0.15, finite_timer=True))
def test_the_papers_equations_hold_for_the_chain(server):
    """Equations (16), (17), (25), (26), (40), (41), (42), (47) and (52), and T's definition, by number."""
    chain = truncated_chain(server, 600, Arrivals.poisson(server.arrival_rate))
    lam, tau, gamma = server.arrival_rate, server.timer_rate, server.transfer_rate
    rho, xi, eta, size = server.load, server.arrivals_per_transfer_time, server.timer_rate / gamma, chain.ready.shape[1]
    pi0 = chain.ready[0]
    j = np.arange(size)
    last = chain.ready[:, -1]  # pi_{i,K-1}
    z = 0.7
    total = sum(chain.ready[:, k] @ z ** (np.arange(len(chain.ready)) + k) for k in range(size))
    moving = chain.blocked @ z ** np.arange(len(chain.blocked))
    present = np.arange(len(chain.ready))
    if server.timer == "always" and size > 1 and tau > 0:
        # the paper's section 7: only (1 - rho z) N = P + H, its common root, remains
        assert close((1 - rho * z) * (total + moving), pi0 @ z**j + moving, 1e-8)
        return
    assert close(chain.transfers, lam * last.sum() + tau * pi0[1:].sum())  # (8)
    if math.isinf(gamma):
        assert close((1 - rho * z) * total, pi0 @ z**j)  # (16)
        assert close(pi0.sum(), 1 - rho, 1e-8)  # (17)
        assert last.sum() == pytest.approx((1 - tau / lam * (j @ pi0)) / size, abs=1e-12)  # (25)
        return
    alpha = gamma / (lam * (1 - z) + gamma)  # (37)
    right = pi0 @ z**j + alpha * (xi * z**size * (last @ z**present) + eta * (pi0[1:] @ z ** j[1:]))
    assert close((1 - rho * z) * (total + moving), right)  # (40)
    assert close(1 - rho, pi0.sum() + xi * last.sum() + eta * pi0[1:].sum(), 1e-8)  # (41)
    assert chain.transfers == pytest.approx(gamma * (1 - rho) - gamma * pi0.sum(), abs=1e-10 * (1 + gamma))  # (42)
    bracket = pi0.sum() + tau * (pi0[1:] @ (rho / gamma - j[1:] * (1 - rho) / lam))
    assert last.sum() == pytest.approx(gamma / (size * gamma * (1 - rho) - lam * rho) * bracket, abs=1e-9)  # (47)
    left = (size + xi) * pi0.sum() + eta * ((size - j[1:]) @ pi0[1:])
    assert close(left, size * (1 - rho) - xi * rho, 1e-8)  # (52)
    assert left > 0  # (26)


@settings(max_examples=40, deadline=None)
@given(stream_servers(largest_batch=15, least_slack=0.1, finite_timer=True))
def test_the_joint_distribution_agrees_with_the_chain(server):
    joint = solve(server)._joint
    phases, levels = joint.ready.shape
    chain = truncated_chain(server, levels + 200, Arrivals.poisson(server.arrival_rate))
    assert joint.ready == pytest.approx(chain.ready[:levels, :phases].T, abs=1e-9)
    assert joint.blocked == pytest.approx(chain.blocked[:levels], abs=1e-9)
    assert joint.jobs.sum() == pytest.approx(1, abs=1e-8)


@settings(max_examples=10, deadline=None)
@given(stream_servers(least_slack=0.15), st.integers(0, 10**6))
def test_auto_lies_within_the_simulations_interval(server, seed):
    steady, run = solve(server), simulate(server, jobs=400_000, seed=seed)
    # Four half-widths of a 95% interval: one false alarm in far more runs than these.
    assert run.mean_jobs.covers(steady.mean_jobs, 4)
    assert run.transfers_per_second.covers(steady.transfers_per_second, 4)
    assert run.idle_probability.covers(steady.idle_probability, 4)


@pytest.mark.parametrize(
    "server",
    [
        StreamServer(750, 1000, 25, 600),
        StreamServer(0.5, 1, 10, 0),
        StreamServer(0.75, 1, 25, 0.6, timer="always"),
        StreamServer(0.6, 1, 12, 0.3, 0.5),
        StreamServer(0.5, 1, 10, math.inf, 0.4),
        StreamServer(0.5, 1, math.inf, 0.3),
        StreamServer(0.5, 1, math.inf, 0.3, timer="always"),
    ],
)
def test_response_time_quantiles_agree_with_simulation(server):
    response = solve(server).response_time
    run = simulate(server, jobs=1_000_000, seed=3)
    for p in (0.5, 0.9, 0.99):
        assert run.quantile(p).covers(response.quantile(p), 4)
    # the transform's slope at 0 is the mean that Little's law gives
    step = 1e-5 / response.mean
    slope = (1 - response.transform(np.array([step + 0j]))[0].real) / step
    assert slope == pytest.approx(response.mean, rel=1e-3)


def test_a_response_time_that_has_no_transform_is_refused_in_words():
    with pytest.raises(NotSolvableError, match="use simulate"):
        solve(StreamServer(0.5, 1, 10, 0.3, 2.0, "always")).response_time.quantile(0.9)
    with pytest.raises(ConfigurationError, match="fraction"):
        solve(StreamServer(0.5, 1, 1, 0)).response_time.quantile(95)


@pytest.mark.parametrize("method", ["spectral", "iterative", "chain"])
def test_methods_refuse_in_words_what_they_cannot_do(method):
    with pytest.raises(NotSolvableError, match="use method='auto'"):
        solve(StreamServer(0.5, 1, math.inf, 1), method)


def test_wrong_arguments_of_solve_are_named():
    server = StreamServer(0.5, 1, 4, 1)
    for wrong in ("magic", None):
        with pytest.raises(ConfigurationError, match="method is"):
            solve(server, wrong)
    with pytest.raises(ConfigurationError, match="takes a StreamServer"):
        solve("server")
    with pytest.raises(ConfigurationError, match="holding_cost is -1"):
        solve(server).cost(-1, 0)


@pytest.mark.parametrize(("size", "timer_rate"), [(1, 1.0), (2, 0.0), (7, 0.6), (30, 5.0)])
def test_the_matrix_analytic_solution_agrees(size, timer_rate):
    server = StreamServer(0.75, 1, size, timer_rate)
    assert moments(server, solve_matrix_analytic(server).boundary).mean_jobs == pytest.approx(
        solve(server).mean_jobs, rel=1e-11
    )
    with pytest.raises(NotSolvableError, match="instantaneous transfers"):
        solve_matrix_analytic(replace(server, transfer_rate=30))


# --- the parts of the auto method --------------------------------------------------------------------------------


def test_the_factorisation_finds_the_same_polynomial_as_the_roots():
    load, size = 0.8, 7
    k = np.exp(2j * np.pi * np.arange(size) / size)
    roots = ((1 + load) - np.sqrt((1 + load) ** 2 - 4 * load * k)) / (2 * load)  # w (1 + rho - rho w) = e_k
    omega = np.poly(roots).real  # descending powers
    phi = descent(size, lambda t: np.log(-expm1(-size * (t + log1p(-load * expm1(t))))), -math.log(load))
    assert phi == pytest.approx(-omega[1:][::-1], abs=1e-14)


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.floats(0.01, 5), st.integers(0, 2**32 - 1))
def test_ring_arithmetic_is_polynomial_arithmetic(weights, c, seed):
    size = len(weights)
    phi = np.array(weights) + 1e-3
    phi /= phi.sum()
    ring = PhaseRing(phi)
    polynomial = np.random.default_rng(seed).random(size)
    omega = np.append(-phi, 1.0)  # ascending

    def modulo(product):
        remainder = np.polynomial.polynomial.polydiv(product, omega)[1]
        return np.pad(remainder, (0, size - len(remainder)))

    quotient = ring.divide(polynomial, 1 + c, c)
    assert modulo(np.convolve(quotient, [1 + c, -c])) == pytest.approx(polynomial, abs=1e-9)
    assert ring.shift(polynomial) == pytest.approx(modulo(np.append(0.0, polynomial)), abs=1e-12)
    assert ring.powers(polynomial, 1 + c, c)[1] == pytest.approx(quotient, abs=1e-10)
    longer = np.append(polynomial, polynomial)
    assert ring.reduce(longer) == pytest.approx(modulo(longer), abs=1e-9)
    assert (quotient >= 0).all()


@pytest.mark.parametrize("c", [0.02, 0.9, 1.0])
def test_rows_of_arrivals_during_services_are_negative_binomial(c):
    from scipy.stats import nbinom

    services = ArrivalsDuringServices(200, c)
    weights = np.zeros(200)
    for i in (1, 2, 50, 199):
        weights[:] = 0
        weights[i] = 1
        series = services.compose(weights)
        assert series == pytest.approx(nbinom.pmf(np.arange(len(series)), i, 1 / (1 + c)), abs=1e-13)


def test_boundary_probabilities_are_probabilities_even_far_out():
    boundary = solve_boundary(StreamServer(0.99, 1, 2000, 0.01))
    assert (boundary.probabilities >= 0).all()
    assert boundary.probabilities.sum() == pytest.approx(0.01, rel=1e-12)
