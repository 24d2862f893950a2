"""Branch and bound: the optimum with proof, for small graphs.

Units are placed in a fixed order, those that matter most to the worst paths first. Lower bounds of a partial placement are

- its worst path, with every placed task at its present cost and every open task at its least possible cost, and
- the average over the paths of a unit flow, where an open task adds at least its cost and the slowdown of others on its
  cheapest resource.

Of empty resources of one kind, only one is tried. The search keeps its stack in arrays, so it can stop and resume.
"""

import numpy as np
from numba import njit

from penstock.allocation.arcs import Floats, Ints, longest
from penstock.allocation.problem import Problem, Sums, put, unit_sums


@njit(cache=True)
def _least_left(problem, tied, order, depth, sums):  # type: ignore[no-untyped-def]
    """Lower bound on what the open units add to the average path cost, each on its cheapest resource."""
    total = 0.0
    places = len(problem.speeds)
    for position in range(depth, len(order)):
        unit = order[position]
        least = np.inf
        for place in range(places):
            if problem.pinned[unit] >= 0 and problem.pinned[unit] != place:
                continue
            added = (
                tied[0, unit] * (1 + sums.crowd[place] + tied[1, unit]) - tied[2, unit] + sums.heavy[place] * tied[1, unit]
            ) / problem.speeds[place]
            if added < least:
                least = added
        total += least
    return total


@njit(cache=True)
def _path_bound(problem, place, crowd, own, fastest, cost, reach):  # type: ignore[no-untyped-def]
    """Worst path with placed tasks at their present cost and open ones at their least; ``cost`` and ``reach`` are scratch."""
    network = problem.network
    for arc in range(len(network.task)):
        task = network.task[arc]
        cost[arc] = 0.0
        if task >= 0:
            resource = place[task]
            if resource >= 0:
                cost[arc] = problem.weights[task] * (1 + (crowd[resource] - problem.presence[task])) / problem.speeds[resource]
            else:
                cost[arc] = problem.weights[task] * (1 + own[task]) / fastest
        elif network.price[arc] > 0:
            tail, head = place[network.tail[arc]], place[network.head[arc]]
            if tail >= 0 and head >= 0:
                cost[arc] = network.price[arc] * problem.slowness[tail, head]
    return longest(network, cost, reach)


@njit(cache=True)
def _restored(problem, order, tied, depth, place, sums, used, moved_at):  # type: ignore[no-untyped-def]
    """Fill the sums, the units on every resource and the tasks moved per depth for the placement at which a search stopped."""
    moved = 0
    for position in range(min(depth + 1, len(order))):
        unit = order[position]
        resource = place[problem.unit_tasks[problem.unit_begin[unit]]]
        if resource < 0:  # the last unit may or may not be placed
            break
        put(tied, unit, resource, 1.0, sums)
        used[resource] += 1
        for task in problem.unit_tasks[problem.unit_begin[unit] : problem.unit_begin[unit + 1]]:
            moved += problem.home[task] != -1 and problem.home[task] != resource
        moved_at[position + 1] = moved


@njit(cache=True)
def _next_fitting(problem, place, used, unit, resource):  # type: ignore[no-untyped-def]
    """The first resource from ``resource`` on that pins, aparts and symmetry allow a unit; their number if there is none."""
    places = len(problem.speeds)
    while resource < places:
        fits = problem.pinned[unit] < 0 or problem.pinned[unit] == resource
        if fits and used[resource] == 0:  # of empty resources of one kind only the first is tried
            for other in range(resource):
                fits &= used[other] > 0 or problem.kinds[other] != problem.kinds[resource]
        for position in range(problem.apart_begin[unit], problem.apart_begin[unit + 1]):
            other = problem.apart_units[position]
            fits &= place[problem.unit_tasks[problem.unit_begin[other]]] != resource
        if fits:
            break
        resource += 1
    return resource


@njit(cache=True)
def branch(problem, order, tied, least_crowd, state, place, best_place, best, nodes):  # type: ignore[no-untyped-def]
    """Continue the search for a number of placements.

    Args:
        problem: what to allocate.
        order: the units in the order in which they are placed.
        tied: f w, presence and f w x presence of every unit, for a unit flow f.
        least_crowd: per task, the least presence beside it, which is that of the other tasks of its unit.
        state: per depth, the next resource to try; the last entry is the depth; changed.
        place: the resource of every task, -1 for open ones; changed.
        best_place, best: the best placement so far, and its cost; ``best_place`` is changed.
        nodes: placements to try before stopping.

    Returns:
        tuple: the best cost, and whether the search is complete.
    """
    places, units = len(problem.speeds), len(order)
    network = problem.network
    cost, reach = np.empty(len(network.task)), np.empty(network.nodes)
    sums = Sums(np.zeros(places), np.zeros(places), np.zeros(places))
    used, moved_at = np.zeros(places, np.int64), np.zeros(units + 1, np.int64)
    fastest = problem.speeds.max()
    depth = state[units]
    _restored(problem, order, tied, depth, place, sums, used, moved_at)
    for _ in range(nodes):
        if depth < 0:
            break
        unit = order[depth]
        first, last = problem.unit_begin[unit], problem.unit_begin[unit + 1]
        resource = state[depth] - 1
        if resource >= 0 and place[problem.unit_tasks[first]] >= 0:  # take the unit back from its last resource
            for task in problem.unit_tasks[first:last]:
                place[task] = -1
            put(tied, unit, resource, -1.0, sums)
            used[resource] -= 1
        resource = _next_fitting(problem, place, used, unit, resource + 1)
        if resource == places:
            state[depth] = 0
            depth -= 1
            continue
        state[depth] = resource + 1
        moved = moved_at[depth]
        for task in problem.unit_tasks[first:last]:
            place[task] = resource
            moved += problem.home[task] != -1 and problem.home[task] != resource
        put(tied, unit, resource, 1.0, sums)
        used[resource] += 1
        moved_at[depth + 1] = moved
        # Prune if either bound shows that no completion is better than the best so far.
        goal = best * (1 - 1e-12) - problem.price * moved
        if _path_bound(problem, place, sums.crowd, least_crowd, fastest, cost, reach) >= goal:
            continue
        average = _least_left(problem, tied, order, depth + 1, sums)
        for other in range(places):
            average += (sums.heavy[other] * (1 + sums.crowd[other]) - sums.drag[other]) / problem.speeds[other]
        if average >= goal:
            continue
        if depth + 1 == units:
            best = reach[-1] + problem.price * moved
            best_place[:] = place
            continue
        depth += 1
        state[depth] = 0
    state[units] = depth
    return best, depth < 0


class OptimumSearch:
    """A search for the optimum that can be stopped and resumed.

    Args:
        given: what to allocate.
        flows: a unit flow, one number per task; the better its bound, the sooner the search ends.
        place: a good placement to start from.
        cost: the cost of ``place``.
    """

    def __init__(self, given: Problem, flows: Floats, place: Ints, cost: float) -> None:
        self.best_place, self.best, self.complete = place.copy(), cost, False
        self._problem = given
        units, count = len(given.pinned), len(given.weights)
        unit_of, self._tied = np.empty(count, np.int64), np.empty((3, units))
        unit_sums(given, flows, unit_of, self._tied)
        weight = np.bincount(unit_of, given.weights, units)
        self._order = np.lexsort((-weight, -self._tied[0]))
        self._crowd = self._tied[1][unit_of] - given.presence
        self._state = np.zeros(units + 1, np.int64)
        self._place = np.full(count, -1)

    def proceed(self, nodes: int) -> None:
        """Try ``nodes`` more placements."""
        self.best, self.complete = branch(
            self._problem, self._order, self._tied, self._crowd, self._state, self._place, self.best_place, self.best, nodes
        )
