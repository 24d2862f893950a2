"""Networks: flows, Burke's theorem, and how far each approximation is from simulation."""

import itertools
import math

import numpy as np
import pytest

from penstock.errors import ConfigurationError, CyclicTopologyError, NotSolvableError, UnstableServerError
from penstock.queueing import Exponential, Network, StreamServer


def line(*servers, rate=1.0):
    names = [f"n{k}" for k in range(len(servers))]
    routes = dict.fromkeys(itertools.pairwise(names), 1.0)
    return Network(dict(zip(names, servers, strict=True)), routes, {"n0": rate}), tuple(names)


def test_rates_follow_the_routes():
    server = StreamServer(1, 100, 4, 10)
    network = Network(
        {"a": server, "b": server, "c": server, "d": server},
        {("a", "b"): 0.5, ("a", "c"): 1.0, ("b", "d"): 1.0, ("c", "d"): 0.25},
        {"a": 8.0, "b": 2.0},
    )
    assert network.arrival_rates == {"a": 8.0, "b": 6.0, "c": 8.0, "d": 8.0}


def test_single_job_batches_make_a_jackson_network():
    # Burke: departures of an M/M/1 queue are Poisson, so every approximation must be exact.
    network, path = line(StreamServer(1, 1.5, 1, 0), StreamServer(1, 1.25, 1, 0), StreamServer(1, 2.0, 1, 0))
    exact = 1 / 0.5 + 1 / 0.25 + 1 / 1.0
    assert network.solve("isolated").path_latency(path) == pytest.approx(exact, rel=1e-9)
    assert network.solve("bursts").path_latency(path) == pytest.approx(exact, rel=1e-4)
    assert network.simulate(jobs=600_000, seed=1).path_latency(path).covers(exact, 4)


@pytest.mark.parametrize("timer_rate", [0.0, 0.02])
@pytest.mark.parametrize("service_rate", [1.5, 3.0])
def test_carrying_bursts_along_is_nearer_to_simulation_than_isolation(timer_rate, service_rate):
    upstream = StreamServer(1, 2.0, 20, timer_rate)
    network, _ = line(upstream, StreamServer(1, service_rate, 10, 1.0))
    run = network.simulate(jobs=600_000, seed=2).mean_response_times["n1"].value
    isolated = network.solve("isolated").nodes["n1"].mean_response_time
    bursts = network.solve("bursts").nodes["n1"].mean_response_time
    assert abs(bursts / run - 1) < abs(isolated / run - 1)
    assert abs(bursts / run - 1) < 0.1


def test_bursts_into_batches_without_end_are_refused_in_a_sentence():
    network, _ = line(StreamServer(1, 2.0, 20, 0.5), StreamServer(1, 2.0, math.inf, 0.5))
    with pytest.raises(NotSolvableError, match="finite batch sizes"):
        network.solve("bursts")


def test_merging_splitting_and_slow_transfers():
    server = StreamServer(1, 1.0, 8, 0.5, 4.0)
    network = Network(
        {"left": server, "right": server, "join": StreamServer(1, 2.0, 8, 0.5), "half": server},
        {("left", "join"): 1.0, ("right", "join"): 1.0, ("join", "half"): 0.5},
        {"left": 0.5, "right": 0.6, "join": 0.1},
    )
    run, state = network.simulate(jobs=500_000, seed=3), network.solve("bursts")
    for name in network.order:
        node = state.nodes[name]
        assert node.mean_response_time == pytest.approx(run.mean_response_times[name].value, rel=0.12)
        assert node.transfers_per_second == pytest.approx(run.transfers_per_second[name].value, rel=0.12)
    whole = {("left", "join", "half"), ("right", "join", "half"), ("join", "half")}
    assert set(run.path_latencies) == whole | {path[:-1] for path in whole}  # half of the jobs leave after "join"
    assert run.path_quantile(("left", "join", "half"), 0.95).value > state.path_latency(("left", "join", "half"))


def test_other_distributions_are_simulated_by_node():
    network, path = line(StreamServer(1, 1.5, 1, 0), StreamServer(1, 1.25, 1, 0), rate=1.0)
    run = network.simulate(jobs=200_000, seed=1, service={"n1": Exponential(0.8)}, interarrival={"n0": Exponential(1.0)})
    assert run.path_latency(path).covers(6.0, 4)


def test_wrong_networks_are_refused_in_words():
    server = StreamServer(1, 2.0, 2, 1)
    with pytest.raises(CyclicTopologyError, match="a -> b -> a|b -> a -> b"):
        Network({"a": server, "b": server}, {("a", "b"): 1.0, ("b", "a"): 0.1}, {"a": 1.0})
    with pytest.raises(ConfigurationError, match="no node 'x'"):
        Network({"a": server}, {("a", "x"): 1.0}, {"a": 1.0})
    with pytest.raises(ConfigurationError, match="give at most 1"):
        Network({"a": server, "b": server}, {("a", "b"): 1.5}, {"a": 1.0})
    with pytest.raises(ConfigurationError, match="'b' receives no jobs"):
        Network({"a": server, "b": server}, {}, {"a": 1.0})
    with pytest.raises(UnstableServerError, match="Node 'a'"):
        Network({"a": server}, {}, {"a": 3.0}).solve()
    with pytest.raises(ConfigurationError, match="no node 'z'"):
        Network({"a": server}, {}, {"a": 1.0}).solve().path_latency(("z",))


@pytest.mark.parametrize(
    "given",
    [(None, {}, {"a": 1}), ([], {}, {"a": 1}), ({}, [], {"a": 1}), ({}, {"a": 0.5}, {"a": 1}), ({}, None, {}), ({}, {}, True)],
    ids=repr,
)
def test_what_is_no_network_is_refused_in_words(given):
    with pytest.raises(ConfigurationError, match="A network takes servers by name"):
        Network(*given)


def test_infinite_timers_and_batches_are_carried_along_or_refused():
    network, _ = line(StreamServer(1, 2.0, 20, 0.0), StreamServer(1, 2.0, 10, math.inf))
    assert np.isfinite(network.solve("bursts").mean_jobs)
