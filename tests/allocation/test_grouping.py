"""Grouping by shares and the bounds from flows, against trying everything; the guarantee of min-K."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.allocation import Resources, allocate, random_graph, random_tree
from penstock.allocation.bound import companions_bound
from penstock.allocation.cost import placed
from penstock.allocation.drawing import draw_tree
from penstock.allocation.generate import FAMILIES
from penstock.allocation.grouping import _priced_groups, _typed_groups
from penstock.allocation.problem import problem
from penstock.errors import ConfigurationError

HEAVY = st.lists(st.sampled_from([0.0, 1.0]) | st.floats(0, 9), min_size=1, max_size=6)


@given(HEAVY, st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=3))
def test_the_best_grouping_for_fixed_flow_weights_is_that_of_trying_everything(heavy, speeds):
    heavy = sorted(heavy, reverse=True)
    count = range(len(heavy))
    best = min(
        sum(sum(heavy[i] for i in count if on[i] == r) * on.count(r) / speed for r, speed in enumerate(speeds))
        for on in itertools.product(range(len(speeds)), repeat=len(heavy))
    )
    prefix = np.concatenate([[0.0], np.cumsum(heavy)])
    kinds, numbers = np.unique(np.array(speeds), return_counts=True)
    assert _typed_groups(prefix, kinds, np.minimum(numbers, len(heavy))) == pytest.approx(best)
    if len(kinds) == 1:
        assert _priced_groups(prefix, len(speeds)) / kinds[0] == pytest.approx(best, rel=1e-6)


@given(st.integers(2, 8), st.lists(st.floats(1e-6, 1), min_size=2, max_size=60), st.integers(1, 8))
def test_groups_of_k_over_x_fit_the_resources_once_k_is_the_c_th_root_of_n(resources, shares, steepness):
    shares = sorted((share**steepness for share in shares), reverse=True)
    scale = min(1 / shares[0], resources / sum(shares))  # as large as the cap and the capacity allow
    shares = [share * scale for share in shares]
    factor = len(shares) ** (1 / resources)
    position = groups = 0
    while position < len(shares):
        position += math.ceil(factor / shares[position] - 1e-9)
        groups += 1
    assert groups <= resources


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("capacities", [[1, 1, 1], [2, 1, 0.5]])
def test_the_bound_that_counts_transfers_is_below_the_optimum_and_above_the_others(family, capacities):
    resources = Resources(dict(enumerate(capacities)))
    for transfer in (0.5, 5.0):
        graph = random_graph(family, 10, transfer=transfer, seed=7)
        best = allocate(graph, resources, "exact")
        given_problem = problem(graph, resources)
        bound = companions_bound(given_problem, placed(graph, best.assignment, resources))
        assert 0 < bound <= best.cost * (1 + 1e-9)


def test_a_tree_is_drawn(tmp_path):
    draw_tree(tmp_path / "tree.svg", random_tree(9, np.random.default_rng(1)))
    assert "series" in (tmp_path / "tree.svg").read_text()
    with pytest.raises(ConfigurationError, match=r"\.svg or \.png"):
        draw_tree(tmp_path / "tree.txt", random_tree(3, np.random.default_rng(1)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tasks", [1, 2, 7, 40])
def test_families_have_as_many_tasks_as_asked_and_equal_seeds_give_equal_graphs(family, tasks):
    graph = random_graph(family, tasks, transfer=1.0, seed=3)
    assert len(graph.tasks) == tasks
    assert graph == random_graph(family, tasks, transfer=1.0, seed=3)
    with pytest.raises(ConfigurationError):
        random_graph(family, tasks, weights="odd")
