"""The starts of a search: quick allocations that meet the constraints."""

from collections.abc import Iterator

import numpy as np
from numba import njit
from scipy.optimize import linear_sum_assignment

from penstock.allocation.arcs import Floats, Ints
from penstock.allocation.graph import StreamGraph
from penstock.allocation.grouping import min_k
from penstock.allocation.heuristics import average, cola, one_resource
from penstock.allocation.problem import Problem, objective
from penstock.allocation.resources import Resources
from penstock.allocation.reweighting import reweighted


def starts(given: Problem, graph: StreamGraph, resources: Resources, shares: Floats, flows: Floats, rounds: int) -> list[Ints]:
    """Placements that meet the constraints, best first: by shares, by shares of clusters along heavy transfers, and others.

    The best placement by shares is reweighted for ``rounds`` rounds.
    """
    shapes = [given, *(_clusterings(given, graph, resources) if given.network.price.any() else ())]
    grouped = [(min_k(shape, shares), shape) for shape in shapes]
    first, shape = min(grouped, key=lambda pair: objective(given, pair[0]))
    places = [reweighted(shape, flows, rounds, first), *(place for place, _ in grouped)]
    places += [one_resource(graph, resources), average(graph, resources)]
    if len(shapes) > 1:
        places.append(cola(graph, resources))
    home = given.home
    if (home >= 0).any():
        places = [_aligned(given, place) for place in places]
        places += [np.where(home >= 0, home, place) for place in places[:1]]
    return sorted((legal(given, place) for place in places), key=lambda place: objective(given, place))


def _clusterings(given: Problem, graph: StreamGraph, resources: Resources) -> Iterator[Problem]:
    """Variants of the problem with tasks joined along heavy transfers: where it pays, and up to 2, 4, 8, ... tasks each."""
    yield _joined(given, _paying(given, graph, resources))
    most = 2
    while most < 2 * len(graph.tasks):
        yield clustered(given, graph, graph.costs, most)
        most *= 2


def clustered(given: Problem, graph: StreamGraph, importance: Floats, most: int) -> Problem:
    """The problem with tasks joined along the most important transfers, into clusters of at most ``most`` tasks.

    A cluster moves as one. The result drops all constraints, so it must not be used for a problem that has any.
    """
    starts, ends = graph.edges
    first = np.argsort(-importance, kind="stable")
    first = first[importance[first] > 0]
    each = np.ones(len(graph.tasks))
    return _joined(given, _unions(0 * each, each, starts[first], ends[first], importance[first], float(most)))


def _joined(given: Problem, cluster: Ints) -> Problem:
    """The problem with one unit for each cluster, which is the tasks of equal numbers in ``cluster``."""
    order = np.argsort(cluster, kind="stable")
    begin = np.concatenate([[0], np.cumsum(np.unique(cluster, return_counts=True)[1])])
    units = len(begin) - 1
    return given._replace(
        unit_begin=begin, unit_tasks=order, pinned=np.full(units, -1), apart_begin=np.zeros(units + 1, np.int64)
    )


def loosely_clustered(given: Problem, graph: StreamGraph, rng: np.random.Generator) -> Problem:
    """The problem with clusters of a random size, along transfers in roughly falling order, some of them left out."""
    most = 2 ** int(rng.integers(1, max(2, len(graph.tasks).bit_length())))
    noisy = graph.costs * rng.lognormal(0.0, 0.3, len(graph.costs)) * (rng.random(len(graph.costs)) < 0.85)
    return clustered(given, graph, noisy, most)


def _paying(given: Problem, graph: StreamGraph, resources: Resources) -> Ints:
    """Clusters, per task, along transfers that cost more than collocation does, the heaviest first.

    They give the allocation in the proof of Theorem III.8, which the greedy strategies of section III-C miss.
    """
    starts, ends = graph.edges
    far = resources.slowness[~np.eye(len(resources.names), dtype=bool)]
    costs = graph.costs * (float(far.mean()) if len(far) else 0.0)
    first = np.argsort(-costs, kind="stable")
    first = first[costs[first] > 0]
    weights = given.weights / float(resources.speeds.mean())
    return np.asarray(_unions(weights, given.presence, starts[first], ends[first], costs[first], np.inf), np.int64)


@njit(cache=True)
def _unions(weights, presence, starts, ends, costs, most):  # type: ignore[no-untyped-def]
    """Join the ends of transfers, in order, if the presence stays within ``most`` and crowding costs less than the transfer."""
    parent = np.arange(len(weights))
    heaviest, crowd = weights.copy(), presence.copy()
    for edge in range(len(starts)):
        a, b = starts[edge], ends[edge]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        crowding = heaviest[a] * crowd[b] + heaviest[b] * crowd[a]
        if a != b and crowd[a] + crowd[b] <= most and crowding < costs[edge]:
            parent[b] = a
            heaviest[a] = max(heaviest[a], heaviest[b])
            crowd[a] += crowd[b]
    for task in range(len(parent)):
        root = task
        while parent[root] != root:
            root = parent[root]
        parent[task] = root
    return parent


def legal(given: Problem, place: Ints) -> Ints:
    """Change a placement to meet the constraints: every unit on one resource, and pins and aparts observed."""
    place = place.copy()
    if given.is_plain:
        return place
    first = given.unit_tasks[given.unit_begin[:-1]]
    unit_place = np.where(given.pinned >= 0, given.pinned, place[first])
    if len(given.apart_units) and not _kept_apart(given, unit_place):
        unit_place = np.where(given.legal >= 0, given.legal, unit_place)
    place[given.unit_tasks] = np.repeat(unit_place, np.diff(given.unit_begin))
    return place


def _kept_apart(given: Problem, unit_place: Ints) -> bool:
    """Move units that violate an apart to the first allowed resource; return False if there is none for a unit."""
    open_units = []
    for unit in range(len(unit_place)):
        near = given.apart_units[given.apart_begin[unit] : given.apart_begin[unit + 1]]
        if given.pinned[unit] < 0 and (unit_place[near] == unit_place[unit]).any():
            unit_place[unit] = -1
            open_units.append(unit)
    for unit in open_units:
        near = given.apart_units[given.apart_begin[unit] : given.apart_begin[unit + 1]]
        free = np.setdiff1d(np.arange(len(given.speeds)), unit_place[near])
        if not len(free):
            return False
        unit_place[unit] = free[0]
    return True


def _aligned(given: Problem, place: Ints) -> Ints:
    """Permute equal resources in a placement, so that as many tasks as possible are at home."""
    count = len(given.speeds)
    at_home = np.zeros((count, count))
    has_home = given.home >= 0
    np.add.at(at_home, (place[has_home], given.home[has_home]), 1.0)
    alike = given.speeds[:, None] == given.speeds[None, :]
    names = linear_sum_assignment(np.where(alike, at_home, -1e9), maximize=True)[1]
    return np.asarray(names[place], np.int64)
