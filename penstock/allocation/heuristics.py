"""The paper's algorithms and those of other systems, each as it is, to be studied and compared.

The paper's: one resource (section II-C), A_avg, A_disc (Algorithm 3, printed and mended) and the greedy strategies of
section III-C. Other systems': round robin (Storm's default), first-fit-decreasing (Heron), R-Storm's distance-aware
packing and COLA's fusion by small cuts, reduced to what is common to them and this problem. None looks at constraints.
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
    """Everything on the fastest resource: an n-approximation."""
    return np.full(len(graph.tasks), int(resources.speeds.argmax()))


def round_robin(graph: StreamGraph, resources: Resources) -> Ints:
    """Tasks in topological order, dealt out one by one: the default of Storm's scheduler."""
    place = np.empty(len(graph.tasks), np.int64)
    place[_order(graph)] = np.arange(len(place)) % len(resources.names)
    return place


def average(graph: StreamGraph, resources: Resources) -> Ints:
    """A_avg: weights balanced over the resources; heaviest first, each to where the sum is least."""
    sums, place = np.zeros(len(resources.names)), np.empty(len(graph.tasks), np.int64)
    for task in np.argsort(-graph.weights, kind="stable"):
        place[task] = int(((sums + graph.weights[task]) / resources.speeds).argmin())
        sums[place[task]] += graph.weights[task]
    return place


def discrete(graph: StreamGraph, resources: Resources, printed: bool = False) -> Ints:
    """A_disc, Algorithm 3: tasks by falling share, ceil(2 n^(2/c) / x) of them to a resource.

    ``printed``: as the paper prints it, with c left as it is when a share is fixed at 1; then more than c resources can
    be asked for, and what is past the last one goes there. Otherwise c falls by one with every fixed task.
    """
    return _grouped(lemma_shares(graph, len(resources.names), printed), _singles(graph), resources)


def _singles(graph: StreamGraph) -> list[list[int]]:
    return [[task] for task in range(len(graph.tasks))]


def resources_asked_for(graph: StreamGraph, resources: int, printed: bool = False) -> int:
    """How many resources Algorithm 3 fills; as printed that can be more than there are."""
    shares = np.sort(lemma_shares(graph, resources, printed))[::-1]
    position = groups = 0
    while position < len(shares):
        position += _size(shares[position], len(shares), resources)
        groups += 1
    return groups


def _size(share: float, count: int, resources: int) -> int:
    """ceil(2 n^(2/c) / x): how many tasks go to a resource whose largest share is x."""
    return math.ceil(min(2 * count ** (2 / resources) / share, count)) if share > 0 else count


def lemma_shares(graph: StreamGraph, capacity: int, printed: bool) -> Floats:
    """Lines 1 to 8 of Algorithm 3: the largest share above 1 is fixed at 1 and its task removed, until none is.

    Lemma III.6 says that these are optimal, which they are not; ``printed`` leaves the capacity as it is.
    """
    shares, fixed = np.ones(len(graph.tasks)), np.zeros(len(graph.tasks), bool)
    weights = graph.weights.copy()
    left = capacity
    while left > 0 and not fixed.all():
        rest = StreamGraph(graph.named(weights.tolist()), graph.transfers)  # weight 0 takes part in no path's cost
        found = np.array(list(continuous_shares(rest, left).shares.values()))
        found[fixed] = 0.0
        if found.max() <= 1:
            shares[~fixed] = found[~fixed]
            break
        largest = int(found.argmax())
        fixed[largest], weights[largest] = True, 0.0
        left -= 0 if printed else 1
    else:
        shares[~fixed] = 0.0
    return shares


def _grouped(shares: Floats, units: list[list[int]], resources: Resources) -> Ints:
    """Lines 9 to 15 of Algorithm 3, for units that stay together; a unit stands where its largest share does."""
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
    """A greedy strategy of section III-C: edges from the heaviest, each collocated for good if A_disc gains by it.

    ``keep`` is "reduce" (only if d(G) falls), "equal" (unless d(G) rises: the strategy S of Theorem III.8) or "path"
    (unless the worst path through the edge rises).
    """
    shares = lemma_shares(graph, len(resources.names), printed=False)
    unit_of = np.arange(len(graph.tasks))
    place = _grouped(shares, _singles(graph), resources)
    cost = objective(given, place)
    starts, ends = graph.edges
    through = _through(graph, resources) if keep == "path" else None
    kept: Callable[[float, float], bool] = {"reduce": float.__lt__}.get(keep, float.__le__)
    for edge in np.argsort(-graph.costs, kind="stable"):
        if graph.costs[edge] == 0:
            break
        joined = unit_of.copy()
        joined[joined == joined[ends[edge]]] = joined[starts[edge]]
        units: dict[int, list[int]] = {}
        for task, unit in enumerate(joined.tolist()):
            units.setdefault(unit, []).append(task)
        tried = _grouped(shares, list(units.values()), resources)
        now = objective(given, tried)
        before, after = (cost, now) if through is None else (through(place, int(edge)), through(tried, int(edge)))
        if kept(after, before):
            unit_of, place, cost = joined, tried, now
    return place


def _through(graph: StreamGraph, resources: Resources) -> Callable[[Ints, int], float]:
    """The cost of the worst path through an edge."""
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
    """Heron's packing: heaviest first, each into the first container with room; the least room for which all fit."""
    heaviest_first = np.argsort(-graph.weights, kind="stable")

    def packed(room: float) -> Ints | None:
        left, place = room * resources.speeds, np.empty(len(graph.tasks), np.int64)
        for task in heaviest_first:
            fits = np.flatnonzero(left >= graph.weights[task] * (1 - 1e-12))
            if not len(fits):
                return None
            place[task] = fits[0]
            left[fits[0]] -= graph.weights[task]
        return place

    low, high = 0.0, float(graph.weights.sum() / resources.speeds.max()) or 1.0
    best = packed(high)
    for _ in range(20):
        middle = (low + high) / 2
        place = packed(middle)
        low, high, best = (middle, high, best) if place is None else (low, middle, place)
    return one_resource(graph, resources) if best is None else best


def r_storm(graph: StreamGraph, resources: Resources) -> Ints:
    """R-Storm's packing: tasks in breadth-first order, each to the resource nearest to what it needs.

    Nearness is Euclidean, over what the resource has left less what the task needs, and the distance to the resource
    that was chosen first, taken as the mean transfer cost; resources with too little left come last.
    """
    weights = graph.weights
    left = resources.speeds * (weights.sum() / resources.speeds.sum())
    distance = float(graph.costs.mean()) if len(graph.costs) else 0.0
    place = np.empty(len(weights), np.int64)
    reference = int(resources.speeds.argmax())
    far = resources.slowness[reference] * distance
    for task in _order(graph):
        short = left < weights[task] * (1 - 1e-12)
        nearness = np.hypot(left - weights[task], far)
        place[task] = int(np.lexsort((nearness, short))[0]) if not short.all() else int(left.argmax())
        left[place[task]] -= weights[task]
    return place


def cola(graph: StreamGraph, resources: Resources) -> Ints:
    """COLA's idea: begin with everything fused, and split the heaviest part where least is sent, until all are in use.

    A part is cut along its topological order, with at least a third of its weight on either side.
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
