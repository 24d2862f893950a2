"""Local search: simulated annealing on a smoothed maximum.

The worst path alone is a bad guide, because most moves do not change it, and the search stays on a plateau. The smoothed
maximum log(sum of exp(p x cost)) / p over all paths, with rising p, depends on every path. Its gradient is a unit flow, and
for a fixed flow the effect of a move takes constant time to compute. So on large graphs the search draws many moves, makes
a batch of those that are best by the flow, and evaluates all paths once per batch.
"""

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.allocation.arcs import Floats, Ints, arc_costs, links_at, soft_flows, soft_longest
from penstock.allocation.cost import processing_costs
from penstock.allocation.problem import Sums, moving_cost, put, unit_sums


@njit(cache=True)
def _draw(state, below):  # type: ignore[no-untyped-def]
    """A pseudo-random integer from 0 to below - 1 (xorshift64)."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return np.int64((x >> np.uint64(33)) % np.uint64(below))


@njit(cache=True)
def _uniform(state):  # type: ignore[no-untyped-def]
    return _draw(state, 1 << 30) / (1 << 30)


@njit(cache=True)
def _may_go(problem, place, unit, target, leaving):  # type: ignore[no-untyped-def]
    """Whether a unit may be on a resource, once the unit ``leaving`` (-1: none) has left it."""
    if problem.pinned[unit] >= 0 and problem.pinned[unit] != target:
        return False
    for position in range(problem.apart_begin[unit], problem.apart_begin[unit + 1]):
        neighbour = problem.apart_units[position]
        if neighbour != leaving and place[problem.unit_tasks[problem.unit_begin[neighbour]]] == target:
            return False
    return True


class Flow(NamedTuple):
    """A unit flow f over the paths, by which moves are judged.

    Args:
        of_arc, of_task: f per arc of the network, and per task.
        tied: f w, presence and f w x presence of every unit.
        unit_of: the unit of every task.
        begin, links: the transfers of every unit, in compressed rows.
    """

    of_arc: Floats
    of_task: Floats
    tied: Floats
    unit_of: Ints
    begin: Ints
    links: Ints


@njit(cache=True)
def _place_of(problem, place, unit):  # type: ignore[no-untyped-def]
    return place[problem.unit_tasks[problem.unit_begin[unit]]]


@njit(cache=True)
def _gain(problem, place, unit, target, sums, flow):  # type: ignore[no-untyped-def]
    """The change of the flow's average path cost if a unit moves, to first order.

    On resource R the tasks cost (G (1 + M) - H) / speed, where G = ``heavy`` is the sum of f w, M = ``crowd`` the sum of
    presences, and H = ``drag`` the sum of f w x presence.
    """
    source = _place_of(problem, place, unit)
    g, m, h = flow.tied[0, unit], flow.tied[1, unit], flow.tied[2, unit]
    change = 0.0
    for side, sign in ((source, -1.0), (target, 1.0)):
        before = sums.heavy[side] * (1 + sums.crowd[side]) - sums.drag[side]
        after = (sums.heavy[side] + sign * g) * (1 + sums.crowd[side] + sign * m) - (sums.drag[side] + sign * h)
        change += (after - before) / problem.speeds[side]
    network = problem.network
    for position in range(flow.begin[unit], flow.begin[unit + 1]):
        arc = flow.links[position]
        tail, head = network.tail[arc], network.head[arc]
        ends = (place[tail], place[head])
        moves_tail, moves_head = flow.unit_of[tail] == unit, flow.unit_of[head] == unit
        if moves_tail and moves_head:
            continue
        after = problem.slowness[target if moves_tail else ends[0], target if moves_head else ends[1]]
        change += flow.of_arc[arc] * network.price[arc] * (after - problem.slowness[ends[0], ends[1]])
    if problem.price > 0:
        for task in problem.unit_tasks[problem.unit_begin[unit] : problem.unit_begin[unit + 1]]:
            if problem.home[task] != -1:
                change += problem.price * ((problem.home[task] != target) - (problem.home[task] != source))
    return change


@njit(cache=True)
def _move(problem, place, unit, target, sums, flow):  # type: ignore[no-untyped-def]
    """Move a unit; returns where it was."""
    source = _place_of(problem, place, unit)
    for task in problem.unit_tasks[problem.unit_begin[unit] : problem.unit_begin[unit + 1]]:
        place[task] = target
    put(flow.tied, unit, source, -1.0, sums)
    put(flow.tied, unit, target, 1.0, sums)
    return source


@njit(cache=True)
def _gather(problem, place, sums, flow):  # type: ignore[no-untyped-def]
    """Fill the sums per resource that :func:`_gain` uses."""
    sums.heavy[:] = 0.0
    sums.crowd[:] = 0.0
    sums.drag[:] = 0.0
    for unit in range(len(problem.pinned)):
        put(flow.tied, unit, _place_of(problem, place, unit), 1.0, sums)


@njit(cache=True)
def _follow(problem, place, soft, cost, sharp, scratch, sums, flow):  # type: ignore[no-untyped-def]
    """Take the flow of the present placement, along which the smoothed maximum changes."""
    soft_flows(problem.network, cost, sharp, soft, scratch, flow.of_arc)
    for arc in range(len(problem.network.task)):
        if problem.network.task[arc] >= 0:
            flow.of_task[problem.network.task[arc]] = flow.of_arc[arc]
    unit_sums(problem, flow.of_task, flow.unit_of, flow.tied)
    _gather(problem, place, sums, flow)


@njit(cache=True)
def _drawn(problem, place, sums, flow, candidates, state):  # type: ignore[no-untyped-def]
    """Draw moves of a unit, or exchanges of two, and return the one of least expected change.

    Returns:
        tuple: the unit (-1: none may go), its resource, the unit exchanged with it (-1: none), and the expected change; with
        one candidate 0, as it is then made at random.
    """
    places, units = len(problem.speeds), len(problem.pinned)
    chosen, target, partner, expected = -1, -1, -1, np.inf
    for _ in range(candidates):
        unit = _draw(state, units)
        source = _place_of(problem, place, unit)
        if _draw(state, 2) == 0 or units == 1:
            goal, exchanged = _draw(state, places), -1
        else:
            exchanged = _draw(state, units)
            goal = _place_of(problem, place, exchanged)
        if goal == source or not _may_go(problem, place, unit, goal, exchanged):
            continue
        if exchanged >= 0 and not _may_go(problem, place, exchanged, source, unit):
            continue
        change = 0.0
        if candidates > 1:
            change = _gain(problem, place, unit, goal, sums, flow)
            if exchanged >= 0:
                _move(problem, place, unit, goal, sums, flow)
                change += _gain(problem, place, exchanged, source, sums, flow)
                _move(problem, place, unit, source, sums, flow)
        if change < expected:
            chosen, target, partner, expected = unit, goal, exchanged, change
    return chosen, target, partner, expected


@njit(cache=True)
def _moved(problem, place, most, candidates, state, sums, flow, log):  # type: ignore[no-untyped-def]
    """Make a batch of moves, each the best of some that are drawn, and return their number.

    Args:
        most: the largest number of moves and exchanges.
        log: filled with each move's unit, and the resource that it was on.
    """
    moves = 0
    while moves < most:
        unit, target, partner, expected = _drawn(problem, place, sums, flow, candidates, state)
        if unit < 0 or (moves > 0 and expected >= 0):
            break
        source = _move(problem, place, unit, target, sums, flow)
        log[0, moves], log[1, moves] = unit, source
        moves += 1
        if partner >= 0:
            _move(problem, place, partner, source, sums, flow)
            log[0, moves], log[1, moves] = partner, target
            moves += 1
    return moves


@njit(cache=True)
def anneal(problem, place, best_place, best, steps, heats, sharps, batch, candidates, state):  # type: ignore[no-untyped-def]
    """Anneal from ``place`` for a number of evaluations of all paths, and improve ``best_place``.

    Args:
        problem: what to allocate.
        place: the resource of every task; changed.
        best_place, best: the best placement so far, and its cost; ``best_place`` is changed.
        steps: evaluations of all paths.
        heats: temperatures at the beginning and at the end, relative to the best cost; geometric in between.
        sharps: p times the best cost at the beginning and at the end; geometric in between.
        batch: largest number of moves per evaluation; the actual number grows and shrinks with success.
        candidates: moves drawn for each move made; 1 makes a random move without using the flow.
        state: state of the random generator; changed.

    Returns:
        float: the cost of the best placement.
    """
    network = problem.network
    count, arcs, places, units = len(place), len(network.task), len(problem.speeds), len(problem.pinned)
    processing, cost = np.empty(count), np.empty(arcs)
    reach, soft, scratch = np.empty(network.nodes), np.empty(network.nodes), np.empty(network.nodes)
    sums, unit_of, tied = (
        Sums(np.zeros(places), np.zeros(places), np.zeros(places)),
        np.empty(count, np.int64),
        np.zeros((3, units)),
    )
    unit_sums(problem, np.zeros(count), unit_of, tied)
    begin, links = links_at(network, unit_of, units)
    flow = Flow(np.zeros(arcs), np.zeros(count), tied, unit_of, begin, links)
    log, size, current = np.empty((2, batch + 2), np.int64), float(batch), np.inf
    if best <= 0 or places == 1:
        return best
    for step in range(steps + 1):
        if best <= 0.0:  # nothing is cheaper, and heat and sharpness, which are relative to it, are undefined
            break
        progress = step / steps
        heat = heats[0] * (heats[1] / heats[0]) ** progress * best
        sharp = sharps[0] * (sharps[1] / sharps[0]) ** progress / best
        moves = 0
        if step > 0:  # the first step only evaluates where the search begins
            moves = _moved(problem, place, max(1, int(size)), candidates, state, sums, flow, log)
            if moves == 0:
                continue
        # Evaluate all paths once; accept the batch by Metropolis' rule, or undo its moves.
        processing_costs(problem.weights, problem.presence, place, problem.speeds, sums.crowd, processing)
        arc_costs(network, processing, place, problem.slowness, cost)
        smooth = soft_longest(network, cost, sharp, reach, soft, scratch)
        moving = moving_cost(problem, place)
        if reach[-1] + moving < best * (1 - 1e-12):
            best = reach[-1] + moving
            best_place[:] = place
        change = smooth + moving - current
        if change <= 0 or _uniform(state) < np.exp(-change / heat):
            current = smooth + moving
            size = min(size * 1.05, float(batch))
            if candidates > 1:
                _follow(problem, place, soft, cost, sharp, scratch, sums, flow)
        else:
            size = max(size * 0.8, 1.0)
            for entry in range(moves - 1, -1, -1):
                _move(problem, place, log[0, entry], log[1, entry], sums, flow)
            if candidates > 1:
                _gather(problem, place, sums, flow)
    return best


def seeded(seed: int) -> NDArray[np.uint64]:
    """The state of the random generator for a seed; never 0, from which xorshift would not move."""
    return np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)
