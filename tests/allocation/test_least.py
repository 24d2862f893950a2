"""What is proved of the least number of resources, beside all allocations of small graphs."""

import itertools

import pytest

from penstock.allocation import Constraints, StreamGraph, allocate, least_resources, spd_tree, streaming_cost
from penstock.errors import ConfigurationError

DIAMOND = StreamGraph({"a": 1, "b": 2, "c": 2, "d": 1}, {("a", "b"): 1, ("a", "c"): 1, ("b", "d"): 1, ("c", "d"): 1})


def optimum(graph, number, constraints):
    """The least cost over all allocations that the constraints allow; None where there are none."""
    names, tasks = [f"R{each}" for each in range(1, number + 1)], list(graph.tasks)
    costs = []
    for places in itertools.product(names, repeat=len(tasks)):
        chosen = dict(zip(tasks, places, strict=True))
        apart = all(len({chosen[task] for task in group}) == len(group) for group in constraints.apart)
        if apart and all(chosen[task] == place for task, place in constraints.pinned.items()):
            costs.append(streaming_cost(graph, chosen))
    return min(costs, default=None)


@pytest.mark.parametrize(
    "constraints",
    [
        Constraints(),
        Constraints(apart=[("a", "b", "c")]),
        Constraints(pinned={"a": "R4"}),
        Constraints(pinned={"a": "R2"}, apart=[("b", "c")]),
    ],
    ids=repr,
)
def test_the_number_is_proved(constraints):
    costs = {number: optimum(DIAMOND, number, constraints) for number in range(1, 5)}
    for target in sorted({cost for cost in costs.values() if cost is not None}):
        enough = min(number for number, cost in costs.items() if cost is not None and cost <= target)
        found = least_resources(DIAMOND, target, method="exact", constraints=constraints)
        assert (found.resources, found.fewest, found.optimal) == (enough, enough, True)


def test_what_is_not_a_graph_is_refused():
    for call in (lambda: least_resources(None, 5), lambda: spd_tree(None), lambda: streaming_cost(None, {})):
        with pytest.raises(ConfigurationError, match="give a StreamGraph"):
            call()


def test_tasks_that_are_one_in_json_are_refused():
    graph = StreamGraph({1: 1, "1": 2}, {})
    with pytest.raises(ConfigurationError, match="are both '1' in JSON"):
        graph.to_json()
    with pytest.raises(ConfigurationError, match="are both '1' in JSON"):
        allocate(graph, 2).to_json()
