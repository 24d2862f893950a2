"""The best gate of a micro-batch server: against a grid of all gates, against simulation, and within its limits."""

import math
from dataclasses import replace

import pytest

from penstock.errors import ConfigurationError, UnstableServerError
from penstock.queueing import LogNormal, MicroBatchServer, StreamServer, optimize_gate

SERVER = MicroBatchServer(arrival_rate=100, fixed=0.1, per_row=0.001)


@pytest.fixture(scope="module")
def best():
    return optimize_gate(SERVER, 1, 50)


@pytest.mark.slow
def test_no_gate_of_a_grid_is_cheaper(best):
    grid = [
        replace(SERVER, threshold=threshold, delay=delay).solve().cost(1, 50)
        for threshold in (1, 20, 60, 80, 90, 100, 120, 150, 200, 400)
        for delay in (0.3, 0.8, 1.0, 1.5, 3.0, math.inf)
    ]
    assert best.cost <= 1.003 * min(grid)


def test_a_simulation_of_it_costs_as_much(best):
    run = best.server.simulate(jobs=400_000, seed=3)
    assert run.mean_latency.value * 100 + 50 * run.batches_per_second.value == pytest.approx(best.cost, rel=0.02)


def test_the_profile_is_what_was_tried(best):
    assert min(cost for *_, cost in best.profile) == pytest.approx(best.cost, rel=0.01)
    assert {threshold for threshold, *_ in best.profile} > {best.threshold}


@pytest.mark.slow
def test_dear_batches_are_large(best):
    assert optimize_gate(SERVER, 1, 1000).steady_state.rows_per_batch > 2 * best.steady_state.rows_per_batch


@pytest.mark.slow
def test_a_limit_on_latency_is_kept(best):
    limited = optimize_gate(replace(SERVER, residual=LogNormal(1.0, 0.05)), 1, 1000, max_quantile=[0.95, 1.2])
    assert limited.steady_state.quantile(0.95) <= 1.22
    assert limited.cost >= optimize_gate(SERVER, 1, 1000).cost


def test_what_cannot_be_is_said():
    with pytest.raises(ConfigurationError, match="No threshold and delay meets the limit"):
        optimize_gate(SERVER, 1, 50, max_mean_latency=0.01)
    with pytest.raises(UnstableServerError):
        optimize_gate(replace(SERVER, arrival_rate=2000), 1, 50)
    with pytest.raises(ConfigurationError, match="takes a MicroBatchServer, not StreamServer"):
        optimize_gate(StreamServer(1, 2, 1, 0), 1, 50)
    with pytest.raises(ConfigurationError, match="max_quantile"):
        optimize_gate(SERVER, 1, 50, max_quantile=0.95)


def test_a_server_with_a_trigger_interval_is_refused():
    with pytest.raises(ConfigurationError, match="trigger_interval is 0.1: a gate with a threshold is solved without one"):
        optimize_gate(MicroBatchServer(100, fixed=0.1, per_row=0.001, trigger_interval=0.1), 1, 50)
