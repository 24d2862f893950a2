"""Stream graphs: what they accept, where they come from and go to, and what their paths cost."""

import itertools
import json
import math
import pickle

import pytest
from allocation.graphs import every_assignment, graphs, slow_cost
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, Event
from penstock.allocation import Resources, StreamGraph, streaming_cost, worst_path
from penstock.errors import ConfigurationError, CyclicTopologyError, PenstockError, SourceError, TopologyError

PAIR = StreamGraph({"a": 1, "b": 2}, {("a", "b"): 3})


@given(graphs(loads=True), st.data())
def test_costs_are_those_of_walking_every_path(graph, data):
    assignment = {task: data.draw(st.sampled_from("xyz")) for task in graph.tasks}
    capacities = {"x": 1.0, "y": 2.0, "z": 0.5}
    assert streaming_cost(graph, assignment) == pytest.approx(slow_cost(graph, assignment), rel=1e-12)
    for sharing in ("count", "load"):
        cost = streaming_cost(graph, assignment, capacities, sharing=sharing)
        assert cost == pytest.approx(slow_cost(graph, assignment, capacities, sharing), rel=1e-12)
    path = worst_path(graph, assignment)
    on = list(assignment.values())
    along = sum(graph.tasks[task] * on.count(assignment[task]) for task in path)
    along += sum(graph.transfers[u, v] for u, v in itertools.pairwise(path) if assignment[u] != assignment[v])
    assert along == pytest.approx(slow_cost(graph, assignment), rel=1e-12)
    assert not any(end == path[0] or start == path[-1] for start, end in graph.transfers)


def test_with_loads_of_one_both_ways_of_sharing_are_the_papers():
    graph = StreamGraph({"a": 1, "b": 2, "c": 1}, {("a", "b"): 1, ("b", "c"): 1}, {"a": 1})
    for assignment in every_assignment(graph, "xy"):
        assert streaming_cost(graph, assignment, sharing="load") == streaming_cost(graph, assignment)


def test_bandwidths_divide_transfer_costs_in_both_directions_unless_told():
    where = Resources({"x": 1, "y": 1}, {("x", "y"): 4})
    assert streaming_cost(PAIR, {"a": "x", "b": "y"}, where) == 1 + 3 / 4 + 2
    assert streaming_cost(PAIR, {"a": "y", "b": "x"}, where) == 1 + 3 / 4 + 2
    one_way = Resources({"x": 1, "y": 1}, {("x", "y"): 4, ("y", "x"): 0.5})
    assert streaming_cost(PAIR, {"a": "y", "b": "x"}, one_way) == 1 + 3 / 0.5 + 2


@given(graphs(loads=True))
def test_json_and_pickle_give_the_same_graph_back(graph):
    assert StreamGraph.from_json(json.dumps(graph.to_json())) == graph
    assert pickle.loads(pickle.dumps(graph)) == graph


class Word(Event):
    text: str


def application():
    app = App("words")
    words, clean, loud = app.source("Words", Word), app.stream("Clean", Word), app.stream("Loud", Word)
    app.sink("Output", loud)

    @app.element(words, emits=clean)
    def strip(word):
        yield clean(text=word.text.strip())

    @app.element(clean, emits=loud)
    def shout(word):
        yield loud(text=word.text.upper())

    return app


def test_a_topology_gives_its_elements_as_tasks_and_its_streams_as_transfers():
    graph = StreamGraph.from_topology(application().topology(), {"strip": 1, "shout": 2}, {"Clean": 0.5})
    assert dict(graph.tasks) == {"strip": 1, "shout": 2}
    assert dict(graph.transfers) == {("strip", "shout"): 0.5}
    with pytest.raises(ConfigurationError, match="weight of 'shout' is missing"):
        StreamGraph.from_topology(application().topology(), {"strip": 1})
    with pytest.raises(TopologyError, match="no 'Dirty'"):
        StreamGraph.from_topology(application().topology(), {"strip": 1, "shout": 1}, {"Dirty": 1})


def test_a_cycle_is_named_by_its_tasks():
    with pytest.raises(CyclicTopologyError, match=r"(a -> b -> c -> a|b -> c -> a -> b|c -> a -> b -> c)"):
        StreamGraph(dict.fromkeys("abcd", 1), {("a", "b"): 1, ("b", "c"): 1, ("c", "a"): 1, ("c", "d"): 0})


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: StreamGraph({}),
        lambda: StreamGraph([("a", 1)]),
        lambda: StreamGraph({"a": -1}),
        lambda: StreamGraph({"a": math.nan}),
        lambda: StreamGraph({"a": math.inf}),
        lambda: StreamGraph({"a": None}),
        lambda: StreamGraph({"a": "1"}),
        lambda: StreamGraph({"a": True}),
        lambda: StreamGraph({"a": 1}, {("a", "b"): 1}),
        lambda: StreamGraph({"a": 1}, {"ab": 1}),
        lambda: StreamGraph({"a": 1}, {("a", "a"): 1}),
        lambda: StreamGraph({"a": 1, "b": 1}, {("a", "b"): -1}),
        lambda: StreamGraph({"a": 1, "b": 1}, {("a", "b"): math.nan}),
        lambda: StreamGraph({"a": 1}, {}, {"b": 0.5}),
        lambda: StreamGraph({"a": 1}, {}, {"a": 1.5}),
        lambda: StreamGraph.from_json("{"),
        lambda: StreamGraph.from_json("[]"),
        lambda: StreamGraph.from_json('{"nodes": {}}'),
        lambda: StreamGraph.from_json('{"tasks": ["a"]}'),
        lambda: StreamGraph.from_json('{"tasks": {"a": 1}, "transfers": [["a"]]}'),
        lambda: StreamGraph.from_json('{"tasks": {"a": 1, "b": 1}, "transfers": [["a", "b", 1], ["a", "b", 2]]}'),
        lambda: streaming_cost(PAIR, {"a": 1}),
        lambda: streaming_cost(PAIR, {"a": 1, "b": 1, "c": 1}),
        lambda: streaming_cost(PAIR, {}),
        lambda: streaming_cost(PAIR, "ab"),
        lambda: streaming_cost(PAIR, {"a": "x", "b": "y"}, {"x": 1}),
        lambda: streaming_cost(PAIR, {"a": 1, "b": 1}, sharing="half"),
        lambda: Resources({}),
        lambda: Resources({"x": 0}),
        lambda: Resources({"x": 1, "y": 1}, {("x", "z"): 1}),
        lambda: Resources({"x": 1, "y": 1}, {("x", "y"): 0}),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(wrong):
    with pytest.raises(PenstockError) as caught:
        wrong()
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SourceError, match=r"graph\.json cannot be read"):
        StreamGraph.from_json(tmp_path / "graph.json")
