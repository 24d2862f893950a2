"""Allocating tasks to resources, with a certified bound on how far from the optimum the result can be."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from penstock.allocation import heuristics
from penstock.allocation.arcs import Floats, Ints, task_flows
from penstock.allocation.bound import lower_bound
from penstock.allocation.cost import Sharing, evaluated, placed, presences, processing_costs
from penstock.allocation.graph import StreamGraph, Task, quantity, require_graph, require_texts, shown, whole
from penstock.allocation.grouping import min_k
from penstock.allocation.interrupt import Interrupts
from penstock.allocation.problem import Constraints, Problem, objective, problem
from penstock.allocation.resources import Resources
from penstock.allocation.shares import search_shares
from penstock.allocation.strategy import Progress, Strategy
from penstock.errors import ConfigurationError

Method = Callable[[Problem, StreamGraph, Resources, Floats], Ints]
"""A function that returns the resource of each task, from the problem, the graph, the resources and the best shares."""


def _plain(heuristic: Callable[[StreamGraph, Resources], Ints]) -> Method:
    return lambda given, graph, where, shares: heuristic(graph, where)


def _greedy(kind: str) -> Method:
    return lambda given, graph, where, shares: heuristics.greedy(given, graph, where, kind)


HEURISTICS: dict[str, Callable[[StreamGraph, Resources], Ints]] = {
    "one": heuristics.one_resource,
    "round-robin": heuristics.round_robin,
    "average": heuristics.average,
    "disc": heuristics.discrete,
    "disc-printed": partial(heuristics.discrete, printed=True),
    "heron": heuristics.first_fit_decreasing,
    "r-storm": heuristics.r_storm,
    "cola": heuristics.cola,
}
"""The methods that use only the graph and the resources, by name."""

PLACING: dict[str, Method] = {
    "min-k": lambda given, graph, where, shares: min_k(given, shares),
    **{name: _plain(heuristic) for name, heuristic in HEURISTICS.items()},
    "greedy-reduce": _greedy("reduce"),
    "greedy-equal": _greedy("equal"),
    "greedy-path": _greedy("path"),
}
"""All methods that place every task once, without a search, by name."""

METHODS = ("auto", "exact", "search", *PLACING)


@dataclass(frozen=True)
class Allocation:
    """An assignment of tasks to resources, with its cost and a lower bound.

    Args:
        graph, resources, sharing: the arguments of :func:`allocate`.
        assignment: task to resource.
        cost: the streaming cost d(G), in the unit of the weights.
        worst_path: the tasks of a path with this cost.
        lower_bound: certified lower bound on the objective of every allocation that meets the constraints.
        objective: the cost, plus the price of the moves if a present assignment was given.
        moved: tasks that are on another resource than in the present assignment.
        method: the method that was asked for.
        interrupted: whether the search was stopped before its end.
    """

    graph: StreamGraph = field(repr=False)
    resources: Resources = field(repr=False)
    sharing: Sharing
    assignment: dict[Task, Any]
    cost: float
    worst_path: tuple[Task, ...]
    lower_bound: float
    objective: float
    moved: tuple[Task, ...] = ()
    method: str = "auto"
    interrupted: bool = False

    @property
    def gap(self) -> float:
        """The objective's excess over the lower bound, as a fraction of the bound; 0 if the allocation is optimal."""
        if self.optimal:
            return 0.0
        return self.objective / self.lower_bound - 1 if self.lower_bound > 0 else math.inf

    @property
    def optimal(self) -> bool:
        """Whether the lower bound proves that no allocation is better."""
        return self.lower_bound >= self.objective * (1 - 1e-9)

    @cached_property
    def processing(self) -> dict[Task, float]:
        """d(v) of every task, its processing cost on its resource."""
        place = placed(self.graph, self.assignment, self.resources)
        cost = np.empty(len(place))
        crowd = np.empty(len(self.resources.names))
        presence = presences(self.graph, self.sharing)
        processing_costs(self.graph.weights, presence, place, self.resources.speeds, crowd, cost)
        return self.graph.named(cost.tolist())

    def explain(self) -> str:
        """Describe the result in words: the worst path, the tasks of each resource, and the distance from the optimum."""
        lines = [f"Streaming cost {self.cost:.6g} (predicted, in the unit of the weights), on the path:"]
        for task, following in zip(self.worst_path, (*self.worst_path[1:], None), strict=True):
            resource = self.assignment[task]
            lines.append(f"  {task} on {resource}: {self.processing[task]:.6g} = {self._product(task)}")
            if following is not None and self.assignment[following] != resource:
                price = self.graph.transfers[task, following]
                pair = (self.resources.index[resource], self.resources.index[self.assignment[following]])
                lines.append(f"  {resource} -> {self.assignment[following]}: {price * self.resources.slowness[pair]:.6g}")
        for resource in self.resources.names:
            tasks = [str(task) for task, place in self.assignment.items() if place == resource]
            lines.append(f"{resource} (capacity {self.resources.capacities[resource]:g}): {', '.join(tasks) or 'idle'}")
        if self.moved:
            lines.append(f"Moved from where they are: {', '.join(map(str, self.moved))}.")
        moves = " with the price of the moves" if self.objective != self.cost else ""
        if self.optimal:
            lines.append("This is optimal: a search of all allocations, or an equal lower bound, proves it.")
        else:
            lines.append(
                f"None is better than {self.lower_bound:.6g}{moves}; this one is at most {self.gap:.2%} worse than the best."
            )
        return "\n".join(lines)

    def _product(self, task: Task) -> str:
        """The product that makes a task's processing cost, in words."""
        resource = self.assignment[task]
        beside = [near for near, place in self.assignment.items() if place == resource and near != task]
        speed = self.resources.capacities[resource]
        over = f" / {speed:g}" if speed != 1 else ""
        weight = self.graph.tasks[task]
        if self.sharing == "count":
            return f"{weight:.6g} x {1 + len(beside)} tasks{over}"
        return f"{weight:.6g} x (1 + {sum(self.graph.loads.get(near, 1.0) for near in beside):.4g} of others){over}"

    def to_json(self) -> dict[str, Any]:
        """Return the result as data for JSON.

        Raises:
            ConfigurationError: two tasks have the same name as strings.
        """
        require_texts(self.assignment)
        return {
            "kind": "predicted",
            "assignment": {str(task): place for task, place in self.assignment.items()},
            "cost": self.cost,
            "lower_bound": self.lower_bound,
            "gap": self.gap if math.isfinite(self.gap) else None,
            "optimal": self.optimal,
            "worst_path": [str(task) for task in self.worst_path],
            "objective": self.objective,
            "moved": [str(task) for task in self.moved],
            "sharing": self.sharing,
            "method": self.method,
            "interrupted": self.interrupted,
        }


def allocate(
    graph: StreamGraph,
    resources: Any,
    method: str = "auto",
    *,
    time_limit: float | None = None,
    seed: int = 0,
    sharing: Sharing = "count",
    constraints: Constraints | None = None,
    present: Mapping[Task, Any] | None = None,
    move_price: float = 0.0,
    progress: Progress | None = None,
) -> Allocation:
    """Allocate tasks to resources so that the worst path costs least.

    Args:
        graph: the tasks and transfers; any acyclic graph.
        resources: a number of resources, all of capacity 1 and named R1, R2, ...; or a mapping from name to capacity; or
            :class:`Resources`, which also has bandwidths.
        method: "auto", for normal use, searches and then tries to prove the result; "exact" continues until the optimum is
            proved; "search" only searches; "min-k" groups by shares, in milliseconds. The others are for study: "one",
            "round-robin" (Storm's default), "average" (A_avg), "disc" (A_disc) and "disc-printed", "greedy-reduce",
            "greedy-equal" and "greedy-path" (section III-C), "heron", "r-storm" and "cola".
        time_limit: seconds; by default a fixed number of steps (about 0.2 s for 16 tasks, 2 s for 1,000, more beyond), so
            that equal input gives equal output. Shares and a first allocation are always computed (0.05 s for 1,000 tasks,
            0.3 to 1 s for 10,000). "exact" has no limit by default.
        seed: seed of the search's random numbers.
        sharing: "count", the paper's cost, or "load"; see :mod:`penstock.allocation.cost`.
        constraints: pinned tasks, and tasks that must be together or apart.
        present: the present resource of each task.
        move_price: the reduction of the cost that justifies moving one task; needs ``present``.
        progress: called from time to time with the fraction done, the best cost and the lower bound.

    An interrupt (Ctrl-C) ends the search soon and returns the best allocation so far; a second one raises at once.

    Raises:
        ConfigurationError: an option or a resource is not valid.
        TopologyError: a constraint or the present assignment names an unknown task.
        InfeasibleAllocationError: the constraints contradict each other.

    >>> graph = StreamGraph({"a": 1, "b": 3, "c": 3, "d": 1}, {("a", "b"): 1, ("a", "c"): 1, ("b", "d"): 1, ("c", "d"): 1})
    >>> best = allocate(graph, 3)
    >>> best.cost, best.optimal
    (9.0, True)
    """
    require_graph(graph)
    if method not in METHODS:
        raise ConfigurationError(f"method is {shown(method)}; choose one of {', '.join(METHODS)}.")
    whole("seed", seed, least=0)
    where = Resources.of(resources)
    limit = math.inf if time_limit is None else quantity("time_limit", time_limit)
    instance = problem(graph, where, sharing, constraints, present, move_price)
    if method in ("auto", "exact", "search"):
        with Interrupts() as interrupts:
            run = Strategy(instance, graph, where, int(seed), limit, progress, interrupts)
            run.go(method)
        return _result(instance, graph, where, sharing, run.place, run.bound, method, run.interrupted)
    if not instance.is_plain:
        raise ConfigurationError(f"method {method!r} cannot take constraints or a price of moves; use 'auto'.")
    shares, flow = search_shares(instance, instance.free_network)
    place = PLACING[method](instance, graph, where, shares)
    bound = instance.forced + lower_bound(instance, task_flows(instance.free_network, flow, len(shares)))
    return _result(instance, graph, where, sharing, place, bound, method, False)


def _result(
    given: Problem,
    graph: StreamGraph,
    where: Resources,
    sharing: Sharing,
    place: Ints,
    bound: float,
    method: str,
    interrupted: bool,
) -> Allocation:
    cost, path = evaluated(graph, place, where, given.presence)
    total = objective(given, place)
    assignment = dict(zip(graph.tasks, (where.names[p] for p in place), strict=True))
    moved = tuple(task for task, p, home in zip(graph.tasks, place, given.home, strict=True) if home not in (-1, p))
    return Allocation(graph, where, sharing, assignment, cost, path, min(bound, total), total, moved, method, interrupted)
