"""Algorithms of the paper and of other systems, unimproved, for study and comparison; none observes constraints.

From the paper: one resource (section II-C), A_avg, A_disc (Algorithm 3, as printed and corrected) and the greedy strategies
of section III-C. From other systems: round robin (Storm's default), first-fit-decreasing (Heron), R-Storm's distance-aware
packing and COLA's fusion by small cuts, as far as they apply to this problem.
"""

import math
from collections.abc import Callable

import numpy as np

from penstock.allocation.arcs import Floats, Ints, topological_order
from penstock.allocation.graph import StreamGraph
from penstock.allocation.problem import Problem, objective
from penstock.allocation.resources import Resources
from penstock.allocation.shares import continuous_shares


def one_resource(graph: StreamGraph, resources: Resources) -> Ints:
    """Put all tasks on the fastest resource: an n-approximation."""
    return np.full(len(graph.tasks), int(resources.speeds.argmax()))


def round_robin(graph: StreamGraph, resources: Resources) -> Ints:
    """Deal the tasks out one by one, in topological order: the default of Storm's scheduler."""
    place = np.empty(len(graph.tasks), np.int64)
    place[_order(graph)] = np.arange(len(place)) % len(resources.names)
    return place


def average(graph: StreamGraph, resources: Resources) -> Ints:
    """A_avg: balance the weights, placing the heaviest task first, each where the sum per capacity stays least."""
    sums, place = np.zeros(len(resources.names)), np.empty(len(graph.tasks), np.int64)
    for task in np.argsort(-graph.weights, kind="stable"):
        place[task] = int(((sums + graph.weights[task]) / resources.speeds).argmin())
        sums[place[task]] += graph.weights[task]
    return place


def discrete(graph: StreamGraph, resources: Resources, printed: bool = False) -> Ints:
    """A_disc, Algorithm 3: by falling share x, put ceil(2 n^(2/c) / x) tasks on each resource.

    ``printed`` does as the paper prints: c stays when a share is fixed at 1, so more than c resources may be needed, and
    the tasks of the excess ones go to the last resource. Otherwise c falls by one with every fixed task.
    """
    return _grouped(lemma_shares(graph, len(resources.names), printed), _singles(graph), resources)


def _singles(graph: StreamGraph) -> list[list[int]]:
    return [[task] for task in range(len(graph.tasks))]


def _size(share: float, count: int, resources: int) -> int:
    """ceil(2 n^(2/c) / x): the number of tasks on a resource whose largest share is x."""
    return math.ceil(min(2 * count ** (2 / resources) / share, count)) if share > 0 else count


def lemma_shares(graph: StreamGraph, capacity: int, printed: bool) -> Floats:
    """Lines 1 to 8 of Algorithm 3: while a share is above 1, fix the largest at 1, and remove its task.

    Lemma III.6 wrongly says that these shares are optimal. ``printed`` does not reduce the capacity by the fixed shares.
    """
    shares, fixed = np.ones(len(graph.tasks)), np.zeros(len(graph.tasks), bool)
    weights = graph.weights.copy()
    remaining = capacity
    while remaining > 0 and not fixed.all():
        reduced = StreamGraph(graph.named(weights.tolist()), graph.transfers)  # weight 0 adds nothing to a path's cost
        candidate = np.array(list(continuous_shares(reduced, remaining).shares.values()))
        candidate[fixed] = 0.0
        if candidate.max() <= 1:
            shares[~fixed] = candidate[~fixed]
            break
        largest = int(candidate.argmax())
        fixed[largest], weights[largest] = True, 0.0
        remaining -= 0 if printed else 1
    else:
        shares[~fixed] = 0.0
    return shares


def _grouped(shares: Floats, units: list[list[int]], resources: Resources) -> Ints:
    """Lines 9 to 15 of Algorithm 3, for units of tasks that stay together and are sorted by their largest share."""
    count, places = len(shares), len(resources.names)
    ranking = np.argsort(-resources.speeds, kind="stable")
    place = np.empty(count, np.int64)
    room, resource = 0, -1
    for unit in sorted(units, key=lambda unit: -shares[unit].max()):
        if room <= 0:
            room = _size(shares[unit].max(), count, places)
            resource = min(resource + 1, places - 1)
        place[unit] = ranking[resource]
        room -= len(unit)
    return place


def greedy(given: Problem, graph: StreamGraph, resources: Resources, keep: str) -> Ints:
    """A greedy strategy of section III-C: from the heaviest edge on, collocate the edge's ends for good if A_disc allows.

    ``keep`` says when: "reduce" only if d(G) falls, "equal" unless d(G) rises (the strategy S of Theorem III.8), "path"
    unless the worst path through the edge gets dearer.
    """
    shares = lemma_shares(graph, len(resources.names), printed=False)
    unit_of = np.arange(len(graph.tasks))
    place = _grouped(shares, _singles(graph), resources)
    cost = objective(given, place)
    starts, ends = graph.edges
    through = _through(graph, resources) if keep == "path" else None
    accepts: Callable[[float, float], bool] = {"reduce": float.__lt__}.get(keep, float.__le__)
    for edge in np.argsort(-graph.costs, kind="stable"):
        if graph.costs[edge] == 0:
            break
        joined = unit_of.copy()
        joined[joined == joined[ends[edge]]] = joined[starts[edge]]
        units: dict[int, list[int]] = {}
        for task, unit in enumerate(joined.tolist()):
            units.setdefault(unit, []).append(task)
        trial = _grouped(shares, list(units.values()), resources)
        trial_cost = objective(given, trial)
        before, after = (cost, trial_cost) if through is None else (through(place, int(edge)), through(trial, int(edge)))
        if accepts(after, before):
            unit_of, place, cost = joined, trial, trial_cost
    return place


def _through(graph: StreamGraph, resources: Resources) -> Callable[[Ints, int], float]:
    """Make a function from a placement and an edge to the cost of the worst path through the edge."""
    starts, ends = graph.edges
    order = _order(graph)
    place_in_order = np.argsort(order)
    forward = np.argsort(place_in_order[starts], kind="stable")
    backward = np.argsort(-place_in_order[ends], kind="stable")

    def worst(place: Ints, edge: int) -> float:
        each = graph.weights * np.bincount(place, minlength=len(resources.names))[place] / resources.speeds[place]
        moved = graph.costs * resources.slowness[place[starts], place[ends]]
        until, after = each.copy(), each.copy()
        for e in forward:
            until[ends[e]] = max(until[ends[e]], until[starts[e]] + moved[e] + each[ends[e]])
        for e in backward:
            after[starts[e]] = max(after[starts[e]], after[ends[e]] + moved[e] + each[starts[e]])
        return float(until[starts[edge]] + moved[edge] + after[ends[edge]])

    return worst


def first_fit_decreasing(graph: StreamGraph, resources: Resources) -> Ints:
    """Heron's packing: heaviest task first, each into the first container with room, at the least room that fits all."""
    heaviest_first = np.argsort(-graph.weights, kind="stable")

    def packed(room: float) -> Ints | None:
        free, place = room * resources.speeds, np.empty(len(graph.tasks), np.int64)
        for task in heaviest_first:
            fits = np.flatnonzero(free >= graph.weights[task] * (1 - 1e-12))
            if not len(fits):
                return None
            place[task] = fits[0]
            free[fits[0]] -= graph.weights[task]
        return place

    low, high = 0.0, float(graph.weights.sum() / resources.speeds.max()) or 1.0
    best_place = packed(high)
    for _ in range(20):
        middle = (low + high) / 2
        place = packed(middle)
        low, high, best_place = (middle, high, best_place) if place is None else (low, middle, place)
    return one_resource(graph, resources) if best_place is None else best_place


def r_storm(graph: StreamGraph, resources: Resources) -> Ints:
    """R-Storm's packing: place tasks in breadth-first order, each on the resource nearest to its needs.

    Nearness is Euclidean, in two dimensions: a resource's remaining capacity less the task's weight, and the mean
    transfer cost to the reference resource, the fastest. Resources with too little capacity left come last.
    """
    weights = graph.weights
    free = resources.speeds * (weights.sum() / resources.speeds.sum())
    distance = float(graph.costs.mean()) if len(graph.costs) else 0.0
    place = np.empty(len(weights), np.int64)
    reference = int(resources.speeds.argmax())
    far = resources.slowness[reference] * distance
    for task in _order(graph):
        lacking = free < weights[task] * (1 - 1e-12)
        nearness = np.hypot(free - weights[task], far)
        place[task] = int(np.lexsort((nearness, lacking))[0]) if not lacking.all() else int(free.argmax())
        free[place[task]] -= weights[task]
    return place


def cola(graph: StreamGraph, resources: Resources) -> Ints:
    """COLA's idea: fuse all tasks, then split the heaviest part where transfers cost least, until all resources are used.

    A part is cut along its topological order, with at least a third of its weight on either side if possible.
    """
    position = np.argsort(_order(graph))
    starts, ends = graph.edges
    weights, costs = graph.weights, graph.costs
    before: list[list[tuple[int, float]]] = [[] for _ in weights]
    after: list[list[tuple[int, float]]] = [[] for _ in weights]
    for start, end, cost in zip(starts.tolist(), ends.tolist(), costs.tolist(), strict=True):
        before[end].append((start, cost))
        after[start].append((end, cost))
    parts = [sorted(range(len(weights)), key=position.__getitem__)]
    while len(parts) < len(resources.names):
        splittable = [part for part in parts if len(part) > 1]
        if not splittable:
            break
        part = max(splittable, key=lambda part: float(weights[part].sum()))
        inside, total, done, cut = set(part), float(weights[part].sum()), 0.0, 0.0
        choices = []
        for index, task in enumerate(part[:-1], 1):
            done += float(weights[task])
            cut += sum(c for t, c in after[task] if t in inside) - sum(c for t, c in before[task] if t in inside)
            unbalanced = min(done, total - done) < total / 3
            choices.append((unbalanced, round(cut, 9) if not unbalanced else 0.0, abs(total - 2 * done), index))
        index = min(choices)[-1]
        parts.remove(part)
        parts += [part[:index], part[index:]]
    place = np.empty(len(weights), np.int64)
    fastest = np.argsort(-resources.speeds, kind="stable")
    for resource, part in zip(fastest, sorted(parts, key=lambda part: -float(weights[part].sum())), strict=False):
        place[part] = resource
    return place


def _order(graph: StreamGraph) -> Ints:
    order: Ints = topological_order(len(graph.tasks), *graph.edges)
    return order
