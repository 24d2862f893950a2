"""Joint optima: the papers' settings as corrected, exhaustive search, and limits on the response time."""

import math
from dataclasses import replace

import numpy as np
import pytest

from penstock.errors import ConfigurationError, UnstableServerError
from penstock.queueing import StreamServer, optimize, solve

INSTANT = StreamServer(750, 1000, 1, 0)


@pytest.mark.parametrize(
    ("transfer_rate", "transfer_cost", "size", "timer_rate", "cost"),
    [
        (math.inf, 0.05, 7, 0, 12.855),
        (math.inf, 0.10, 10, 0, 17.422),
        (math.inf, 0.15, 12, 0, 20.938),
        (900, 0.10, 12, 242, 18.873),
        (600, 0.10, 17, 629, 19.376),
        (300, 0.10, math.inf, math.inf, 20.304),
    ],
)
def test_the_optima_of_figures_4_and_7_as_corrected(transfer_rate, transfer_cost, size, timer_rate, cost):
    best = optimize(replace(INSTANT, transfer_rate=transfer_rate), 1, transfer_cost)
    assert best.batch_size == size
    assert best.timer_rate == pytest.approx(timer_rate, rel=2e-3)
    assert best.cost == pytest.approx(cost, abs=5.1e-4)


def test_two_minima_over_the_batch_size_do_not_fool_the_search():
    # ERRATA: lambda .4, mu 1, gamma 2, c2 6 has minima at K = 2 and K = 11.
    best = optimize(StreamServer(0.4, 1, 1, 0, 2), 1, 6)
    costs = {setting.batch_size: setting.cost for setting in best.profile}
    assert costs[2] < costs[1]
    assert costs[2] < costs[3]
    assert best.batch_size == 11


@pytest.mark.slow
@pytest.mark.parametrize("timer", ["idle", "always"])
@pytest.mark.parametrize(("load", "transfer_rate", "cost"), [(0.3, math.inf, 2.0), (0.8, 3.0, 9.0), (0.5, 0.7, 4.0)])
def test_no_setting_of_a_fine_grid_is_cheaper(timer, load, transfer_rate, cost):
    best = optimize(StreamServer(load, 1, 1, 0, transfer_rate, timer), 1, cost)
    for size in [*range(1, 40), 100, math.inf]:
        for timer_rate in [0, *np.geomspace(1e-3, 1e3, 60), math.inf]:
            server = StreamServer(load, 1, size, timer_rate, transfer_rate, timer)
            if server.is_stable:
                assert best.cost <= solve(server).cost(1, cost) * (1 + 1e-12)


@pytest.mark.slow
def test_large_optima_are_found_to_the_last_job():
    server, cost = StreamServer(0.9, 1, 1, 0, timer="always"), 40_000.0
    best = optimize(server, 1, cost)
    assert best.batch_size > 100
    exact = min(
        (solve(replace(server, batch_size=size, timer_rate=best.timer_rate)).cost(1, cost), size)
        for size in range(int(best.batch_size) - 15, int(best.batch_size) + 16)
    )
    assert best.cost == pytest.approx(exact[0], rel=1e-9)


def test_a_timer_far_slower_than_the_services_is_found():
    best = optimize(INSTANT, 1, 1e8, batch_sizes=(math.inf,))
    exact = min(
        solve(replace(INSTANT, batch_size=math.inf, timer_rate=rate)).cost(1, 1e8) for rate in np.geomspace(1e-3, 1, 2000)
    )
    assert best.cost <= exact
    assert best.cost == pytest.approx(exact, rel=1e-4)


def test_it_is_told_where_larger_batches_may_be_cheaper(monkeypatch):
    monkeypatch.setattr("penstock.queueing.optimum._LARGEST_SIZE", 60)
    assert optimize(INSTANT, 1, 20).largest == 58
    assert optimize(INSTANT, 1, 0.1).largest is None


def test_a_limit_on_the_mean_is_met_exactly_and_costs():
    free = optimize(INSTANT, 1, 0.1)
    bound = 0.8 * free.steady_state.mean_response_time
    best = optimize(INSTANT, 1, 0.1, max_mean_response=bound)
    assert best.steady_state.mean_response_time <= bound
    assert best.cost > free.cost
    with pytest.raises(ConfigurationError, match="allow a longer one"):
        optimize(INSTANT, 1, 0.1, max_mean_response=0.0039)


def test_a_limit_on_a_quantile_is_met():
    best = optimize(INSTANT, 1, 0.1, max_quantile=(0.99, 0.025), batch_sizes=(1, 5, 10, 20))
    assert best.steady_state.response_time.quantile(0.99) <= 0.025 * (1 + 1e-6)


def test_wrong_questions_are_refused_in_words():
    with pytest.raises(UnstableServerError):
        optimize(StreamServer(2, 1, 1, 0), 1, 1)
    with pytest.raises(ConfigurationError, match="transfer_cost is -1"):
        optimize(INSTANT, 1, -1)
    with pytest.raises(ConfigurationError, match="takes a StreamServer"):
        optimize(None, 1, 1)
    with pytest.raises(ConfigurationError, match="fraction between 0 and 1"):
        optimize(INSTANT, 1, 1, max_quantile=(99, 1.0))


@pytest.mark.slow
def test_a_limit_that_hides_the_costs_of_large_batches_ends_the_search():
    """Sizes that are never full were tried up to the largest, for their costs beyond the limit look alike."""
    tried = []
    server = StreamServer(750, 1000, 1, 0, transfer_rate=900)
    best = optimize(server, 1, 0.1, max_quantile=(0.99, 0.03), progress=tried.append)
    assert best.steady_state.response_time.survival(0.03) <= 0.0100001
    assert max(size for size in tried if math.isfinite(size)) < 1000
