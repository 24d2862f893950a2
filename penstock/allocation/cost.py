"""The cost of an allocation: d(v) = w(v) n(r(v)), and the streaming cost d(G) of the worst path (section II-A).

There are two models of sharing a resource. ``"count"`` is the paper's: each of n(R) collocated tasks gets an equal share, so
d(v) = w(v) n(R) / capacity(R). ``"load"`` counts how busy the others are: a task shares with those that have work at that
moment, so d(v) = w(v) (1 + sum of the loads of the other tasks on R) / capacity(R). With loads of 1 both are equal; two
nearly idle tasks cost little more together than apart.
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numba import njit

from penstock.allocation.arcs import Floats, Ints, arc_costs, longest, worst_arcs
from penstock.allocation.graph import StreamGraph, Task, is_name, listed, require_graph, shown
from penstock.allocation.resources import Resources
from penstock.errors import ConfigurationError, TopologyError

Sharing = Literal["count", "load"]


def presences(graph: StreamGraph, sharing: Sharing) -> Floats:
    """The presence of each task, by which it slows the others on its resource: 1 by count, its utilisation by load.

    Raises:
        ConfigurationError: the model of sharing is unknown.
    """
    if sharing not in ("count", "load"):
        raise ConfigurationError(f"sharing is {sharing!r}; choose 'count' or 'load'.")
    return graph.utilisations if sharing == "load" else np.ones(len(graph.tasks))


@njit(cache=True)
def processing_costs(weights, presence, resource, speeds, crowd, cost):  # type: ignore[no-untyped-def]
    """Fill ``crowd``, the presence on each resource, and ``cost``, d(v) of each task."""
    crowd[:] = 0.0
    for task in range(len(resource)):
        crowd[resource[task]] += presence[task]
    for task in range(len(resource)):
        place = resource[task]
        cost[task] = weights[task] * (1.0 + (crowd[place] - presence[task])) / speeds[place]


def streaming_cost(
    graph: StreamGraph, assignment: Mapping[Task, Any], resources: Any = None, *, sharing: Sharing = "count"
) -> float:
    """d(G): the cost of the worst source-to-sink path.

    Args:
        graph: the tasks and transfers.
        assignment: task to resource, by any label.
        resources: a number, a mapping from label to capacity, or :class:`Resources`; by default each label has capacity 1.
        sharing: "count", the paper's cost, or "load".

    Raises:
        TopologyError: a task is missing or unknown.
        ConfigurationError: a label is not the name of a resource.

    >>> graph = StreamGraph({"a": 1, "b": 2, "c": 2.5}, {("a", "b"): 1, ("a", "c"): 1})
    >>> streaming_cost(graph, {"a": "R1", "b": "R1", "c": "R2"})
    6.0
    """
    require_graph(graph)
    return _evaluate(graph, assignment, resources, sharing)[0]


def worst_path(
    graph: StreamGraph, assignment: Mapping[Task, Any], resources: Any = None, *, sharing: Sharing = "count"
) -> tuple[Task, ...]:
    """The tasks of a path that costs d(G), from source to sink; parameters and errors as of :func:`streaming_cost`.

    >>> graph = StreamGraph({"a": 1, "b": 2, "c": 2.5}, {("a", "b"): 1, ("a", "c"): 1})
    >>> worst_path(graph, {"a": "R1", "b": "R1", "c": "R2"})
    ('a', 'b')
    """
    return _evaluate(graph, assignment, resources, sharing)[1]


def _evaluate(
    graph: StreamGraph, assignment: Mapping[Task, Any], resources: Any, sharing: Sharing
) -> tuple[float, tuple[Task, ...]]:
    if not isinstance(assignment, Mapping):
        raise ConfigurationError(f"assignment is {shown(assignment)}; give a mapping from task to resource.")
    if not all(map(is_name, assignment.values())):
        raise ConfigurationError("A resource's label in the assignment is not hashable (a list?); give strings or numbers.")
    used = (
        (Resources(dict.fromkeys(dict.fromkeys(assignment.values()), 1.0)) if resources is None else resources)
        if assignment
        else 1
    )
    where = Resources.of(used)
    place = placed(graph, assignment, where)
    return evaluated(graph, place, where, presences(graph, sharing))


def placed(graph: StreamGraph, assignment: Mapping[Task, Any], resources: Resources) -> Ints:
    """The resource of every task, as a position in ``resources``.

    Raises:
        TopologyError: a task is missing or unknown.
        ConfigurationError: a label is not the name of a resource.
    """
    if missing := [task for task in graph.tasks if task not in assignment]:
        raise TopologyError(f"The assignment lacks {listed(missing)}; give every task a resource.")
    if unknown := [task for task in assignment if task not in graph.tasks]:
        raise TopologyError(f"Unknown tasks in the assignment: {listed(unknown)}; the graph has {listed(graph.tasks)}.")
    for task, label in assignment.items():
        if not is_name(label) or label not in resources.index:
            raise ConfigurationError(f"Task {task!r} is on {label!r}; the resources are {listed(resources.names)}.")
    return np.array([resources.index[assignment[task]] for task in graph.tasks], np.int64)


def evaluated(graph: StreamGraph, place: Ints, resources: Resources, presence: Floats) -> tuple[float, tuple[Task, ...]]:
    """The streaming cost and a worst path, for tasks whose resources are given as positions."""
    network = graph.network
    processing, cost = np.empty(len(place)), np.empty(len(network.task))
    reach = np.empty(network.nodes)
    processing_costs(graph.weights, presence, place, resources.speeds, np.empty(len(resources.names)), processing)
    arc_costs(network, processing, place, resources.slowness, cost)
    worst = longest(network, cost, reach)
    arcs = worst_arcs(network, cost, reach)
    names = list(graph.tasks)
    return float(worst), tuple(names[network.task[arc]] for arc in reversed(arcs) if network.task[arc] >= 0)
