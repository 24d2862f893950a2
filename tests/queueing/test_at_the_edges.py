"""Figures near saturation, of very variable services, and of numbers that are too large: right, or refused in a sentence."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from cli.command import said

from penstock.errors import ConfigurationError, NotSolvableError
from penstock.queueing import LingerBatch, MicroBatchServer, Network, StreamServer, optimize, optimize_gate, simulate, solve
from penstock.queueing.distribution import HyperExponential, with_scv

HUGE = 10**400


@pytest.mark.parametrize("load", [0.9, 0.99, 0.997, 0.999, 0.9995])
@pytest.mark.parametrize("p", [0.5, 0.99, 0.999999])
def test_quantiles_near_saturation_are_those_of_a_single_server(load, p):
    """M/M/1: the response time is exponential."""
    state = solve(StreamServer(load, 1.0, 1, 0))
    assert state.quantile(p) == pytest.approx(-math.log(1 - p) / (1 - load), rel=3e-5)


@pytest.mark.parametrize("load", [1 - 1e-12, 1 - 1e-14, 1 - 2**-53])
def test_a_quantile_that_does_not_converge_is_refused(load):
    with pytest.raises(NotSolvableError):
        solve(StreamServer(load, 1.0, 1, 0)).quantile(0.99)


def test_a_solution_of_too_many_steps_is_refused():
    with pytest.raises(NotSolvableError, match="so nearly saturated .* of at most 2,000,000; use simulate"):
        solve(StreamServer(1 - 1e-9, 1.0, math.inf, math.inf))


@pytest.mark.parametrize(("rate", "size", "linger"), [(1000, 10, 100.0), (5000, 100, 60.0), (1e9, 10**6, 1.0), (100, 4, 0.01)])
def test_the_mean_wait_is_right_where_the_linger_is_long(rate, size, linger):
    """(K - 1) / (2 lambda) where the linger never ends a batch; else the mean of the quantiles."""
    batch = LingerBatch(rate, size, linger)
    if linger * rate > 20 * size:
        assert batch.mean_wait == pytest.approx((size - 1) / (2 * rate), rel=1e-3)
    else:
        grid = (np.arange(2000) + 0.5) / 2000
        assert batch.mean_wait == pytest.approx(np.mean([batch.quantile(p) for p in grid]), rel=1e-3)


@pytest.mark.parametrize("scv", [1e5, 1e8, 1e12])
def test_a_residual_that_varies_too_much_is_refused(scv):
    with pytest.raises(NotSolvableError, match="The residual varies too much"):
        MicroBatchServer(0.1, fixed=0.1, residual=with_scv(1.0, scv)).solve()


@pytest.mark.parametrize("scv", [1.0, 10.0, 100.0, 1e4])
@pytest.mark.parametrize("rate", [0.1, 1.0, 5.0])
def test_a_variable_residual_is_right(rate, scv):
    """With threshold 1 and a fixed cost alone: E[D] + lambda E[D^2] / 2 / (lambda E[D] + E[exp(-lambda D)])."""
    residual = HyperExponential(1.0, scv) if scv > 1 else with_scv(1.0, 1.0)
    times = np.concatenate([residual.quantile((np.arange(200_000) + 0.5) / 200_000)]) * 0.1
    mean, square = 0.1, 0.01 * (1 + scv)
    right = mean + rate * square / 2 / (rate * mean + np.exp(-rate * times).mean())
    assert MicroBatchServer(rate, fixed=0.1, residual=residual).solve().mean_latency == pytest.approx(right, rel=0.06)


def test_latencies_where_the_cap_binds_are_refused_in_both_ways():
    state = solve(MicroBatchServer(arrival_rate=130, cap=20, fixed=0.15, per_row=0.0001))
    for ask in (lambda: state.survival(0.3), lambda: state.quantile(0.99)):
        with pytest.raises(NotSolvableError, match="More rows wait than the server's cap"):
            ask()


def test_a_gate_whose_quantiles_are_not_known_is_not_chosen():
    """It chose a gate that let 36% of the rows take longer than 0.3 s, as a simulation shows."""
    server = MicroBatchServer(arrival_rate=125, cap=20, fixed=0.15, per_row=0.0001)
    with pytest.raises(ConfigurationError, match="is known to meet the limit, as the cap binds"):
        optimize_gate(server, 1.0, 0.1, max_quantile=(0.95, 0.3))
    late = (simulate(replace(server, threshold=17), jobs=200_000, seed=2).latencies > 0.3).mean()
    assert late > 0.3


def test_a_limit_that_the_mean_alone_meets_is_met():
    """Though the cap binds, at most mean / t of the rows take longer than t."""
    server = MicroBatchServer(arrival_rate=100, cap=60, fixed=0.5, per_row=0.001)
    assert optimize_gate(server, 1, 1, max_quantile=(0.95, 1000.0)).steady_state.mean_latency < 50


@pytest.mark.parametrize(
    "make",
    [
        lambda: StreamServer(HUGE, 1, 1, 0),
        lambda: StreamServer(0.5, 1, HUGE, 1),
        lambda: MicroBatchServer(HUGE, fixed=0.1),
        lambda: MicroBatchServer(1, fixed=0.1, cap=HUGE),
        lambda: LingerBatch(1, HUGE, 1),
        lambda: solve(StreamServer(0.5, 1, 1, 0)).quantile(HUGE),
        lambda: simulate(StreamServer(0.5, 1, 1, 0), jobs=20_000, seed=HUGE),
        lambda: optimize(StreamServer(0.5, 1, 1, 0), 1, 1, batch_sizes=iter([])),
        lambda: simulate(StreamServer(0.5, 1, 1, 0), jobs=20_000).cost(-1, 1),
        lambda: simulate(StreamServer(0.5, 1, 1, 0), jobs=20_000).cost(1, math.nan),
        lambda: simulate(MicroBatchServer(1, fixed=0.1), jobs=20_000).cost(math.nan, 1),
    ],
)
def test_numbers_out_of_all_ranges_are_refused(make):
    with pytest.raises(ConfigurationError):
        make()


def test_batch_sizes_may_be_an_array():
    best = optimize(StreamServer(0.5, 1, 1, 0), 1, 1, batch_sizes=np.array([1, 2, 3]))
    assert best.batch_size == optimize(StreamServer(0.5, 1, 1, 0), 1, 1, batch_sizes=(1, 2, 3)).batch_size


def test_large_seeds_differ():
    one, other = (simulate(StreamServer(0.5, 1, 3, 1), jobs=20_000, seed=2**53 + n).mean_jobs.value for n in (0, 1))
    assert one != other


@pytest.mark.parametrize("scv", [1.0001, 2.0, 1e6, 1e17, 1e300])
def test_very_variable_times_can_be_drawn(scv):
    drawn = HyperExponential(1.0, scv)
    assert drawn._short + drawn._long == pytest.approx(1.0)
    assert np.isfinite(drawn.sample(np.random.default_rng(1), 1000)).all()


@pytest.fixture(scope="module")
def network():
    server = StreamServer(1.0, 10.0, 1, 0)
    return Network({"a": server, "b": server}, {("a", "b"): 0.5}, {"a": 1.0})


@pytest.mark.parametrize("confidence", [0, 1, 2, math.nan])
def test_a_confidence_is_between_none_and_all(network, confidence):
    with pytest.raises(ConfigurationError, match="confidence"):
        network.simulate(jobs=20_000, confidence=confidence)
    with pytest.raises(ConfigurationError, match="confidence"):
        network.simulate(jobs=20_000).path_latency(("a",), confidence)


def test_a_path_is_a_name_a_list_or_a_tuple(network):
    predicted, simulated = network.solve(), network.simulate(jobs=20_000)
    for found in (predicted, simulated):
        assert found.path_latency("a") == found.path_latency(["a"]) == found.path_latency(("a",))
        assert found.path_latency(["a", "b"]) == found.path_latency(("a", "b"))
        with pytest.raises(ConfigurationError):
            found.path_latency(())


def test_infinity_is_null_in_json(capsys):
    prices = ("--holding-cost", "1", "--transfer-cost", "0.2", "--transfer-rate", "100")
    text = said(capsys, "queue", "optimize", "--arrival-rate", "750", "--service-rate", "1000", *prices, "--json")
    assert "Infinity" not in text
    assert json.loads(text)["batch_size"] is None
    axes = ("--over", "batch-size=5,inf", "--over", "timer-rate=0,10,inf")
    text = said(capsys, "queue", "sweep", "--arrival-rate", "750", "--service-rate", "1000", *axes, "--json")
    assert "Infinity" not in text
    assert len(json.loads(text)) == 6


def test_a_sweep_goes_on_where_a_setting_has_no_quantiles(capsys, tmp_path):
    server = ("--arrival-rate", "750", "--service-rate", "1000", "--timer-rate", "10", "--timer", "always")
    points = json.loads(said(capsys, "queue", "sweep", *server, "--over", "batch-size=5,inf", "--quantiles", "--json"))
    assert ["p99" in point for point in points] == [True, False]
    assert all(point["mean_jobs"] > 0 for point in points)
    picture = tmp_path / "x.svg"
    said(capsys, "queue", "sweep", *server, "--over", "batch-size=5,8,inf", "--quantiles", "--plot", str(picture))
    assert picture.stat().st_size > 1000
