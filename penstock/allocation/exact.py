"""Branch and bound: the optimum with proof, for small graphs.

Units are placed in a fixed order, those that matter most to the worst paths first. A partial placement costs at least

- its worst path with every placed task at its present cost and every other one at the least it can have, and
- the average over the paths of a unit flow, to which every task still to be placed adds at least the cheapest of its
  places, itself and what it slows down.

Resources that are alike and empty are tried once. The search keeps its stack in arrays, so it can stop and go on.
"""

import numpy as np
from numba import njit

from penstock.allocation.arcs import Floats, Ints, longest
from penstock.allocation.problem import Problem, put, unit_sums


@njit(cache=True)
def _least_left(problem, tied, order, depth, heavy, crowd):  # type: ignore[no-untyped-def]
    """What units still to be placed add at least to the average path, each at its cheapest place."""
    total = 0.0
    places = len(problem.speeds)
    for position in range(depth, len(order)):
        unit = order[position]
        least = np.inf
        for place in range(places):
            if problem.pinned[unit] >= 0 and problem.pinned[unit] != place:
                continue
            added = (
                tied[0, unit] * (1 + crowd[place] + tied[1, unit]) - tied[2, unit] + heavy[place] * tied[1, unit]
            ) / problem.speeds[place]
            if added < least:
                least = added
        total += least
    return total


@njit(cache=True)
def _path_bound(problem, place, crowd, own, fastest, cost, reach):  # type: ignore[no-untyped-def]
    """The worst path when placed tasks cost what they cost now and the others the least possible; two scratch."""
    network = problem.network
    for arc in range(len(network.task)):
        task = network.task[arc]
        cost[arc] = 0.0
        if task >= 0:
            here = place[task]
            if here >= 0:
                cost[arc] = problem.weights[task] * (1 + (crowd[here] - problem.presence[task])) / problem.speeds[here]
            else:
                cost[arc] = problem.weights[task] * (1 + own[task]) / fastest
        elif network.price[arc] > 0:
            tail, head = place[network.tail[arc]], place[network.head[arc]]
            if tail >= 0 and head >= 0:
                cost[arc] = network.price[arc] * problem.slowness[tail, head]
    return longest(network, cost, reach)


@njit(cache=True)
def branch(problem, order, tied, least_crowd, state, place, best_place, best, nodes):  # type: ignore[no-untyped-def]
    """Go on with the search for a number of placements.

    Parameters
    ----------
    problem: what to allocate.
    order: the units as they are placed.
    tied: f w, presence and f w x presence of every unit, for a unit flow f.
    least_crowd: per task the least presence beside it: that of its own unit.
    state: per depth the next resource to try, and in the last entry the depth; changed.
    place: the resource of every task, -1 where open; changed.
    best_place, best: the best so far; ``best_place`` is changed.
    nodes: placements to try before stopping.

    Returns
    -------
    tuple: the best cost, and whether the search is complete.
    """
    places, units = len(problem.speeds), len(order)
    network = problem.network
    cost, reach = np.empty(len(network.task)), np.empty(network.nodes)
    crowd, heavy, drag = np.zeros(places), np.zeros(places), np.zeros(places)
    used = np.zeros(places, np.int64)
    fastest = problem.speeds.max()
    depth = state[units]
    moved = 0
    moved_at = np.zeros(units + 1, np.int64)
    for position in range(min(depth + 1, units)):
        unit = order[position]
        here = place[problem.unit_tasks[problem.unit_begin[unit]]]
        if here < 0:  # the last one may or may not stand where it was tried before the stop
            break
        put(tied, unit, here, 1.0, heavy, crowd, drag)
        used[here] += 1
        for task in problem.unit_tasks[problem.unit_begin[unit] : problem.unit_begin[unit + 1]]:
            moved += problem.home[task] != -1 and problem.home[task] != here
        moved_at[position + 1] = moved
    for _ in range(nodes):
        if depth < 0:
            break
        unit = order[depth]
        first, last = problem.unit_begin[unit], problem.unit_begin[unit + 1]
        here = state[depth] - 1
        if here >= 0 and place[problem.unit_tasks[first]] >= 0:  # take the unit back from where it was tried last
            for task in problem.unit_tasks[first:last]:
                place[task] = -1
            put(tied, unit, here, -1.0, heavy, crowd, drag)
            used[here] -= 1
        here += 1
        while here < places:
            fits = problem.pinned[unit] < 0 or problem.pinned[unit] == here
            if fits and used[here] == 0:
                for other in range(here):
                    fits &= used[other] > 0 or problem.kinds[other] != problem.kinds[here]
            for position in range(problem.apart_begin[unit], problem.apart_begin[unit + 1]):
                other = problem.apart_units[position]
                fits &= place[problem.unit_tasks[problem.unit_begin[other]]] != here
            if fits:
                break
            here += 1
        if here == places:
            state[depth] = 0
            depth -= 1
            continue
        state[depth] = here + 1
        moved = moved_at[depth]
        for task in problem.unit_tasks[first:last]:
            place[task] = here
            moved += problem.home[task] != -1 and problem.home[task] != here
        put(tied, unit, here, 1.0, heavy, crowd, drag)
        used[here] += 1
        moved_at[depth + 1] = moved
        goal = best * (1 - 1e-12) - problem.price * moved
        if _path_bound(problem, place, crowd, least_crowd, fastest, cost, reach) >= goal:
            continue
        average = _least_left(problem, tied, order, depth + 1, heavy, crowd)
        for other in range(places):
            average += (heavy[other] * (1 + crowd[other]) - drag[other]) / problem.speeds[other]
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


class Proof:
    """A search for the optimum that can be interrupted.

    Parameters
    ----------
    given: what to allocate.
    flows: a unit flow, one per task; the better it certifies, the sooner the search ends.
    place: a good placement to start from.
    cost: its cost.
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
        """Try so many more placements."""
        self.best, self.complete = branch(
            self._problem, self._order, self._tied, self._crowd, self._state, self._place, self.best_place, self.best, nodes
        )
