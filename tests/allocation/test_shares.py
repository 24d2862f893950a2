"""Continuous shares: the closed form, the capped optimum with its certificate, and the paper's mistaken lemma."""

import networkx as nx
import numpy as np
import pytest
from allocation.graphs import digraph, graphs
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from penstock.allocation import StreamGraph, continuous_shares, parallel, series, spd_tree
from penstock.errors import ConfigurationError, NotSeriesParallelError

# Two graphs on which Lemma III.6 (fix the largest share at 1, start again) is not optimal.
DROPPED = parallel(series(0, 1), *range(2, 22)).graph({0: 1000, 1: 10} | dict.fromkeys(range(2, 22), 100))
CONSTANT = series(parallel(series(0, 1), 2), parallel(*range(3, 8))).graph(dict(enumerate([10, 4, 15, 1, 1, 1, 1, 1])))


def path_cost(graph, share):
    cost = {}
    for task in nx.topological_sort(digraph(graph)):
        before = [cost[start] for start, end in graph.transfers if end == task]
        own = graph.tasks[task] / share[task] if graph.tasks[task] else 0.0
        cost[task] = own + max(before, default=0.0)
    return max(cost.values())


@given(graphs(most=9), st.integers(1, 10), st.sampled_from([None, 1.0, 0.3]))
def test_shares_fit_and_a_flow_certifies_their_cost(graph, resources, cap):
    found = continuous_shares(graph, resources, cap=cap)
    assert sum(found.shares.values()) <= resources * (1 + 1e-9)
    assert max(found.shares.values()) <= (cap or resources) * (1 + 1e-9)
    assert found.cost == pytest.approx(path_cost(graph, found.shares), rel=1e-9, abs=1e-12)
    assert found.lower_bound <= found.cost
    assert found.lower_bound == pytest.approx(found.cost, rel=1e-6, abs=1e-9)


@given(graphs(most=8), st.integers(1, 5))
def test_the_closed_form_and_the_cone_program_agree(graph, resources):
    try:
        spd_tree(graph)
    except NotSeriesParallelError:
        return
    free = continuous_shares(graph, resources)
    capped = continuous_shares(graph, resources, cap=1e6)
    assert free.cost == pytest.approx(capped.cost, rel=1e-6, abs=1e-9)


def test_capped_shares_agree_with_a_general_solver():
    rng = np.random.default_rng(3)
    for _ in range(5):
        edges = {(i, j): 0.0 for i in range(6) for j in range(i + 1, 6) if rng.random() < 0.35}
        graph = StreamGraph(dict(enumerate(rng.uniform(0.5, 4, 6))), edges)
        paths = []

        def walk(task, before, edges=edges, paths=paths):
            after = [end for start, end in edges if start == task]
            if not after:
                paths.append([*before, task])
            for end in after:
                walk(end, [*before, task])

        for task in range(6):
            if not any(end == task for _, end in edges):
                walk(task, [])
        limits = [{"type": "ineq", "fun": lambda x: 2.5 - x[:6].sum()}]
        limits += [
            {"type": "ineq", "fun": lambda x, p=path, w=graph.weights: x[6] - sum(w[t] / x[t] for t in p)} for path in paths
        ]
        begin = np.append(np.full(6, 2.5 / 6), 100.0)
        best = minimize(lambda x: x[6], begin, bounds=[(1e-3, 1)] * 6 + [(0, None)], constraints=limits)
        assert continuous_shares(graph, 2.5, cap=1.0).cost == pytest.approx(best.fun, rel=1e-5)


def test_lemma_iii_6_is_not_optimal():
    assert continuous_shares(DROPPED, 3, cap=1.0).cost == pytest.approx(1073.25, abs=0.01)  # the lemma: 2005
    assert continuous_shares(CONSTANT, 7, cap=1.0).cost == pytest.approx(16.1905, abs=1e-4)  # the lemma: 16.25
    # The lemma's first reading: task 0 gets one unit, the rest shares two as if task 0 were not there.
    rest = StreamGraph({task: w for task, w in DROPPED.tasks.items() if task})
    largest = continuous_shares(rest, 2).shares
    assert max(1000 + 10 / largest[1], 100 / largest[2]) == pytest.approx(2005)


@pytest.mark.parametrize("small", [1e-3, 1e-6, 1e-8, 1e-10])
def test_weights_far_apart_are_no_trouble(small):
    for graph in (StreamGraph({"a": 1, "b": small}), StreamGraph({"a": 1, "b": small}, {("a", "b"): 0})):
        found = continuous_shares(graph, 1, cap=1.0)
        assert found.cost == pytest.approx(found.lower_bound, rel=1e-6)
        assert found.cost == pytest.approx((1 + small) if not graph.transfers else (1 + small**0.5) ** 2, rel=1e-6)


def test_by_load_only_what_is_shared_is_divided():
    idle = StreamGraph({"a": 2, "b": 3}, {("a", "b"): 0}, {"a": 0, "b": 0})
    assert continuous_shares(idle, 1, cap=1.0, sharing="load").cost == pytest.approx(5)
    busy = StreamGraph({"a": 2, "b": 3}, {("a", "b"): 0})
    same = continuous_shares(busy, 1, cap=1.0).cost
    assert continuous_shares(busy, 1, cap=1.0, sharing="load").cost == pytest.approx(same)


def test_resources_of_unequal_capacity_are_added_up():
    graph = StreamGraph({"a": 1, "b": 4}, {("a", "b"): 0})
    assert continuous_shares(graph, {"x": 1, "y": 2}).cost == pytest.approx(3)


@pytest.mark.parametrize("wrong", [{"resources": 0}, {"resources": "x"}, {"resources": 1, "cap": 0}])
def test_wrong_capacities_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        continuous_shares(CONSTANT, **wrong)
