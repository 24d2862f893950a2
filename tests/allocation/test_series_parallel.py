"""Composing and decomposing series-parallel graphs, and the witness for those that are none."""

import networkx as nx
import numpy as np
import pytest
from allocation.graphs import digraph, graphs, is_spd
from hypothesis import given
from hypothesis import strategies as st

from penstock.allocation import NotSeriesParallelError, StreamGraph, parallel, random_tree, series, spd_tree
from penstock.errors import PenstockError


@given(graphs(most=8, transfers=False))
def test_recognition_agrees_with_the_definition_and_witnesses_are_forbidden(graph):
    expected = is_spd(graph.tasks, graph.transfers)
    try:
        tree = spd_tree(graph)
    except NotSeriesParallelError as error:
        assert not expected
        reachable = nx.transitive_closure(digraph(graph))
        a, b, c, d = error.witness
        assert reachable.has_edge(a, c)
        assert reachable.has_edge(b, c)
        assert reachable.has_edge(b, d)
        assert not reachable.has_edge(a, d)
        if "implied" in str(error):
            assert nx.has_path(nx.restricted_view(digraph(graph), [], [(b, c)]), b, c)
        else:
            beside = [(a, b), (c, d)]
            assert len({a, b, c, d}) == 4
            assert not any(reachable.has_edge(u, v) or reachable.has_edge(v, u) for u, v in beside)
    else:
        assert expected
        back = tree.graph()
        assert set(back.tasks) == set(graph.tasks)
        assert set(back.transfers) == set(graph.transfers)
        assert all(len(node.children) != 1 for node in tree.postorder())
        assert all(child.kind != node.kind for node in tree.postorder() for child in node.children)


@given(st.integers(1, 60), st.integers(0, 1000))
def test_every_composition_is_recognised(tasks, seed):
    tree = random_tree(tasks, np.random.default_rng(seed))
    assert sorted(spd_tree(tree.graph()).tasks) == list(range(tasks))


def test_long_chains_and_wide_blocks_are_taken_apart_in_linear_time():
    chain = spd_tree(series(*range(50_000)).graph())
    assert chain.kind == "series"
    assert len(chain.children) == 50_000
    block = spd_tree(series(parallel(*range(300)), parallel(*range(300, 600))).graph())
    assert [child.kind for child in block.children] == ["parallel", "parallel"]


def test_graphs_compose_like_trees():
    left, right = StreamGraph({"a": 1, "b": 2}), StreamGraph({"c": 3, "d": 4}, {("c", "d"): 5})
    both = series(left, right, cost=7)
    assert dict(both.transfers) == {("c", "d"): 5, ("a", "c"): 7, ("b", "c"): 7}
    assert str(spd_tree(both)) == "s(p(a, b), c, d)"
    assert str(spd_tree(parallel(left, right))) == "p(a, b, s(c, d))"
    assert str(series("x", series("y", parallel("z", "w")))) == "s(x, y, p(z, w))"


def test_a_tree_takes_weights_and_costs_by_name_or_for_all():
    tree = series("a", parallel("b", "c"))
    graph = tree.graph({"a": 1, "b": 2, "c": 3}, {("a", "c"): 4}, {"b": 0.5})
    assert dict(graph.transfers) == {("a", "b"): 0, ("a", "c"): 4}
    assert dict(tree.graph(2.0, 1.0).transfers) == {("a", "b"): 1, ("a", "c"): 1}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: series(),
        lambda: parallel(StreamGraph({"a": 1}), "b"),
        lambda: parallel(StreamGraph({"a": 1}), StreamGraph({"a": 1})),
        lambda: series("a", "a").graph(),
        lambda: series("a", "b").graph({"a": 1}),
        lambda: series("a", "b").graph(1, {("b", "a"): 1}),
    ],
)
def test_wrong_compositions_are_refused(wrong):
    with pytest.raises(PenstockError) as caught:
        wrong()
    assert "\n" not in str(caught.value)
