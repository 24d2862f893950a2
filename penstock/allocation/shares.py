"""Continuous shares: a divisible capacity, split so that the worst path costs least (section III-A).

Uncapped shares of a series-parallel graph have a closed form (Algorithms 1 and 2). With capped shares, or on any other
graph, the problem is convex: give every task v a deadline t_v, let the deadlines of every path add up to at most T, and find
the least T at which the sum of w_v / t_v fits the capacity. The paper's Lemma III.6, which fixes the largest share at 1 and
starts again, is not optimal; docs/background/allocation.md has counterexamples.

A unit flow over the paths certifies a lower bound, because the worst path costs at least the average one. For fixed flow
weights f_v, the sum of f_v w_v / x_v is least at x_v proportional to sqrt(f_v w_v), up to the cap (water-filling).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit

from penstock.allocation.arcs import ArcNetwork, Floats, log_paths, longest, soft_flow, task_flows, worst_arcs
from penstock.allocation.cone import solve_cone
from penstock.allocation.cost import Sharing, presences
from penstock.allocation.graph import StreamGraph, Task, positive, require_graph
from penstock.allocation.problem import Problem
from penstock.allocation.resources import Resources
from penstock.allocation.series_parallel import SpdTree, spd_tree
from penstock.errors import NotSeriesParallelError, NotSolvableError

_LARGE = 15_000
"""Most arcs for which a search starts from the cone program, which is slow for more; 20 times as many without links."""


@dataclass(frozen=True)
class Shares:
    """An optimal split of a capacity over tasks, with its certificate.

    Args:
        shares: task to x(v), its part of the capacity, at most the cap.
        cost: delta(G), the cost of the worst path when v costs w(v) / x(v).
        lower_bound: certified lower bound on the cost of any shares.
        flows: task to the flow through it, of a unit flow from sources to sinks that certifies the bound.
    """

    shares: Mapping[Task, float]
    cost: float
    lower_bound: float
    flows: Mapping[Task, float] = field(repr=False)


def continuous_shares(graph: StreamGraph, resources: Any, cap: float | None = None, *, sharing: Sharing = "count") -> Shares:
    """Compute the shares of a capacity that minimise the cost of the worst path (Problem III.1), exactly, for any graph.

    Args:
        graph: the tasks and their order; transfer costs are ignored.
        resources: the capacity c: a number above zero, or resources whose capacities are added.
        cap: the largest share that a task can use; none by default. Give 1 if each task runs on one resource of capacity 1.
        sharing: "load" counts a task's share by its utilisation; see :mod:`penstock.allocation.cost`.

    Raises:
        ConfigurationError: the capacity or the cap is not a positive number.
        NotSolvableError: the weights are too far apart for the solver's arithmetic.

    >>> graph = StreamGraph({"a": 1, "b": 4}, {("a", "b"): 0})
    >>> continuous_shares(graph, 3).cost, round(continuous_shares(graph, 3, cap=1).cost, 6)
    (3.0, 5.0)
    """
    require_graph(graph)
    capacity = capacity_of(resources)
    limit = math.inf if cap is None else positive("cap", cap)
    presence = presences(graph, sharing)
    if (presence == 1).all():
        try:
            free = _closed_form(graph, spd_tree(graph), capacity)
        except NotSeriesParallelError:
            pass
        else:
            if max(free.shares.values()) <= limit:  # then the cap changes nothing
                return free
    shares, flow = solve_shares(graph.free_network, graph.weights, presence, capacity, limit)
    flows = task_flows(graph.free_network, flow, len(shares))
    fixed = undivided(graph.weights, presence, capacity, limit)
    cost = shares_cost(graph.free_network, fixed, graph.weights * presence, shares)
    bound = flow_bound(graph.weights, presence, flows, capacity, limit)
    if cost > bound * (1 + 1e-6):
        raise NotSolvableError(
            f"The shares are accurate only to {cost / bound - 1 if bound else math.inf:.1g}: the weights are too far apart for "
            f"double precision; leave out tiny ones."
        )
    return Shares(graph.named(shares.tolist()), cost, min(bound, cost), graph.named(flows.tolist()))


def capacity_of(resources: Any) -> float:
    """The total capacity of resources; a number above zero is itself the capacity."""
    if isinstance(resources, Mapping | Resources):
        return float(Resources.of(resources).speeds.sum())
    return positive("resources", resources)


def _closed_form(graph: StreamGraph, tree: SpdTree, capacity: float) -> Shares:
    """Algorithms 1 and 2, but with sums computed once per node (as printed they are quadratic in its children)."""
    weight: dict[int, float] = {}
    order = list(tree.postorder())
    for node in order:
        below = [weight[id(child)] for child in node.children]
        weight[id(node)] = (
            graph.tasks[node.task]
            if node.kind == "task"
            else sum(below)
            if node.kind == "parallel"
            else sum(map(math.sqrt, below)) ** 2
        )
    share, flow = {id(tree): capacity}, {id(tree): 1.0}
    by_task: dict[Task, tuple[float, float]] = {}
    for node in reversed(order):
        own_share, through = share.pop(id(node)), flow.pop(id(node))
        if node.kind == "task":
            by_task[node.task] = (own_share, through)
            continue
        root = math.sqrt if node.kind == "series" else float
        total = sum(root(weight[id(child)]) for child in node.children)
        for child in node.children:
            fraction = root(weight[id(child)]) / total if total else 1 / len(node.children)
            share[id(child)] = own_share * fraction
            flow[id(child)] = through * (fraction if node.kind == "parallel" else 1.0)
    cost = weight[id(tree)] / capacity
    ordered = [by_task[task] for task in graph.tasks]
    return Shares(graph.named(x for x, _ in ordered), cost, cost, graph.named(f for _, f in ordered))


def solve_shares(
    network: ArcNetwork, weights: Floats, presence: Floats, capacity: float, cap: float, tolerance: float = 1e-10
) -> tuple[Floats, Floats]:
    """Optimal shares and the unit flow that certifies them, by a cone program.

    A task costs a + q / y with share y: the share divides q = w x presence, but not the rest, a = (w - q) / cap.

    Returns:
        tuple: shares, one per task, within capacity and cap; and the unit flow through each arc, exact up to rounding.
    """
    count = len(weights)
    divided, fixed = weights * presence, undivided(weights, presence, capacity, cap)
    if capacity >= count * cap or not divided.any():
        share = np.full(count, min(cap, capacity / count))
        return share, _worst_flow(network, fixed, divided, share)
    # Scale shares by capacity / count, and times by weight x count / capacity, to bring them near 1.
    time_unit, share_unit = weights.max() * count / capacity, capacity / count
    times, solved, flow = solve_cone(
        network, divided / weights.max(), fixed / time_unit, float(count), cap / share_unit, tolerance
    )
    unit_flow = _unit_flow(network, flow)
    # The solver gives tiny shares with few digits. Deadlines and flows also give shares: take the cheapest of the three.
    spent = np.empty(count)
    arcs = network.task >= 0
    spent[network.task[arcs]] = time_unit * (times[network.ends[arcs]] - times[network.starts[arcs]])
    spent = np.maximum(spent - fixed, 1e-12 * max(time_unit * times[-1], 1e-300))
    by_flow = filled(weights, presence, task_flows(network, unit_flow, count), capacity, cap)
    fitting = [_fitted(share, capacity, cap, share_unit) for share in (solved * share_unit, divided / spent, by_flow)]
    return min(fitting, key=lambda share: shares_cost(network, fixed, divided, share)), unit_flow


def _fitted(share: Floats, capacity: float, cap: float, unit: float) -> Floats:
    """Shares made positive, and reduced to fit the cap and the capacity."""
    share = np.clip(share, 1e-15 * unit, min(cap, capacity))
    return np.asarray(share * min(1.0, capacity / share.sum()))


def undivided(weights: Floats, presence: Floats, capacity: float, cap: float) -> Floats:
    """The part of each task's cost that its share does not change: its own work while it shares with nobody."""
    return weights * (1 - presence) / min(cap, capacity)


def shares_cost(network: ArcNetwork, fixed: Floats, divided: Floats, share: Floats) -> float:
    """The cost of the worst path when a task costs ``fixed`` + ``divided`` / ``share``."""
    return float(longest(network, _costs(network, fixed, divided, share), np.empty(network.nodes)))


def _costs(network: ArcNetwork, fixed: Floats, divided: Floats, share: Floats) -> Floats:
    """The cost of each arc when a task costs ``fixed`` + ``divided`` / ``share``; links cost nothing."""
    each = fixed + np.divide(divided, share, out=np.zeros_like(divided), where=divided > 0)
    return np.where(network.task >= 0, each[network.task], 0.0)


def _worst_flow(network: ArcNetwork, fixed: Floats, divided: Floats, share: Floats) -> Floats:
    """A unit flow, per arc, that is all on one worst path."""
    cost = _costs(network, fixed, divided, share)
    reach = np.empty(network.nodes)
    longest(network, cost, reach)
    flow = np.zeros(len(cost))
    flow[np.array(worst_arcs(network, cost, reach), np.int64)] = 1.0
    return flow


def _unit_flow(network: ArcNetwork, flow: Floats) -> Floats:
    """Repair an approximate flow: the exact unit flow that divides at every node in the proportions of ``flow``."""
    repaired = np.maximum(flow, 0.0)
    _split(network, repaired)
    return repaired


@njit(cache=True)
def _split(network, flow):  # type: ignore[no-untyped-def]
    """Change ``flow`` to the exact unit flow with its proportions, in one pass from START to END."""
    leaving, number = np.zeros(network.nodes), np.zeros(network.nodes)
    for arc in range(len(flow)):
        leaving[network.starts[arc]] += flow[arc]
        number[network.starts[arc]] += 1
    arriving = np.zeros(network.nodes)
    arriving[0] = 1.0
    for arc in range(len(flow)):
        start = network.starts[arc]
        fraction = flow[arc] / leaving[start] if leaving[start] > 0 else 1 / number[start]
        flow[arc] = arriving[start] * fraction
        arriving[network.ends[arc]] += flow[arc]


def flow_bound(weights: Floats, presence: Floats, flows: Floats, capacity: float, cap: float) -> float:
    """The least average cost over the paths of a unit flow: a lower bound on the cost of the worst path.

    Minimises the sum of f_v (a_v + q_v / y_v) over shares y of the capacity, each at most ``cap``; a and q are as in
    :func:`solve_shares`.
    """
    divided = flows * weights * presence
    roots = np.sort(np.sqrt(divided[divided > 0]))[::-1]
    constant = float((flows * undivided(weights, presence, capacity, cap)).sum())
    capped, level = _water(roots, capacity, cap)
    head = float((roots[:capped] ** 2).sum() / cap) if capped else 0.0
    return constant + head + (float(roots[capped:].sum() / level) if capped < len(roots) else 0.0)


def filled(weights: Floats, presence: Floats, flows: Floats, capacity: float, cap: float) -> Floats:
    """The shares at which :func:`flow_bound` attains its minimum: proportional to sqrt(f w), at most ``cap``."""
    roots = np.sqrt(flows * weights * presence)
    ranked = np.sort(roots[roots > 0])[::-1]
    capped, level = _water(ranked, capacity, cap)
    return np.full(len(roots), cap) if capped == len(ranked) else np.minimum(cap, roots * level)


def _water(roots: Floats, capacity: float, cap: float) -> tuple[int, float]:
    """Water-filling over falling ``roots``: how many are capped, and the factor for the others that uses up the capacity."""
    if not len(roots) or cap * len(roots) <= capacity:
        return len(roots), math.inf
    tail_sums = np.cumsum(roots[::-1])[::-1]
    number = np.arange(len(roots))
    free = capacity - np.where(number > 0, number * min(cap, capacity), 0.0)
    fits = np.flatnonzero((free > 0) & (roots * free <= min(cap, 2 * capacity) * tail_sums * (1 + 1e-9)))
    if not len(fits):  # rounding left no capacity for the last one
        return len(roots), math.inf
    return int(fits[0]), float(free[fits[0]] / tail_sums[fits[0]])


def search_shares(given: Problem, network: ArcNetwork) -> tuple[Floats, Floats]:
    """Shares per task and flow per arc of a network of the problem, to start a search from.

    They are optimal, or, if that would take too long or fails, approximated by :func:`_ascended`.
    """
    capacity, cap = float(given.speeds.sum()), float(given.speeds.max())
    links = int((network.task < 0).sum())
    if len(network.task) <= (_LARGE if links else 20 * _LARGE):
        try:
            return solve_shares(network, given.weights, given.presence, capacity, cap, tolerance=1e-6)
        except NotSolvableError:
            pass
    return _ascended(network, given.weights, given.presence, capacity, cap)


def _ascended(
    network: ArcNetwork, weights: Floats, presence: Floats, capacity: float, cap: float, rounds: int = 1000
) -> tuple[Floats, Floats]:
    """Nearly optimal shares and flow, by conditional gradients: each round moves a little flow to the worst paths.

    The maximum over paths is smoothed, to keep rounds from jumping between paths. A round takes one pass over the network.
    """
    count, tasks = len(weights), network.task >= 0
    divided, fixed = weights * presence, undivided(weights, presence, capacity, cap)
    flow = soft_flow(network, np.zeros(len(network.task)), 1.0)
    sharpness = 10 * (1 + log_paths(network))
    best_bound, best_flow = -1.0, flow
    for number in range(rounds):
        flows = task_flows(network, flow, count)
        bound = flow_bound(weights, presence, flows, capacity, cap)
        if bound > best_bound:
            best_bound, best_flow = bound, flow
        share = np.maximum(filled(weights, presence, flows, capacity, cap), 1e-3 * capacity / count)
        cost = np.where(tasks, (fixed + divided / share)[network.task], 0.0)
        step = max(0.001, 3 / (number + 3))
        flow = (1 - step) * flow + step * soft_flow(network, cost, sharpness)
    return filled(weights, presence, task_flows(network, best_flow, count), capacity, cap), best_flow
