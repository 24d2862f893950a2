"""Local search: simulated annealing on a smoothed maximum.

The worst path alone is a bad guide, because most moves do not change it, and the search stays on a plateau. The smoothed
maximum log(sum of exp(p x cost)) / p over all paths, with rising p, depends on every path. Its gradient is a unit flow, and
for a fixed flow the effect of a move takes constant time to compute. So on large graphs the search draws many moves, makes
a batch of those that are best by the flow, and evaluates all paths once per batch.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.allocation.arcs import arc_costs, links_at, soft_flows, soft_longest
from penstock.allocation.cost import processing_costs
from penstock.allocation.problem import moving_cost, put, unit_sums


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


@njit(cache=True)
def _gain(problem, place, unit, target, crowd, heavy, drag, tied, begin, links, flow):  # type: ignore[no-untyped-def]
    """The change of the flow's average path cost if a unit moves, to first order.

    On resource R the tasks cost (G (1 + M) - H) / speed, where G = ``heavy`` is the sum of f w, M = ``crowd`` the sum of
    presences, and H = ``drag`` the sum of f w x presence.
    """
    source = place[problem.unit_tasks[problem.unit_begin[unit]]]
    g, m, h = tied[0, unit], tied[1, unit], tied[2, unit]
    change = 0.0
    for side, sign in ((source, -1.0), (target, 1.0)):
        before = heavy[side] * (1 + crowd[side]) - drag[side]
        after = (heavy[side] + sign * g) * (1 + crowd[side] + sign * m) - (drag[side] + sign * h)
        change += (after - before) / problem.speeds[side]
    network = problem.network
    for position in range(begin[unit], begin[unit + 1]):
        arc = links[position]
        tail, head = network.tail[arc], network.head[arc]
        ends = (place[tail], place[head])
        first = problem.unit_begin[unit]
        last = problem.unit_begin[unit + 1]
        moves_tail, moves_head = False, False
        for task in problem.unit_tasks[first:last]:
            moves_tail |= task == tail
            moves_head |= task == head
        if moves_tail and moves_head:
            continue
        after = problem.slowness[target if moves_tail else ends[0], target if moves_head else ends[1]]
        change += flow[arc] * network.price[arc] * (after - problem.slowness[ends[0], ends[1]])
    if problem.price > 0:
        for task in problem.unit_tasks[problem.unit_begin[unit] : problem.unit_begin[unit + 1]]:
            if problem.home[task] != -1:
                change += problem.price * ((problem.home[task] != target) - (problem.home[task] != source))
    return change


@njit(cache=True)
def _move(problem, place, unit, target, crowd, heavy, drag, tied):  # type: ignore[no-untyped-def]
    source = place[problem.unit_tasks[problem.unit_begin[unit]]]
    for task in problem.unit_tasks[problem.unit_begin[unit] : problem.unit_begin[unit + 1]]:
        place[task] = target
    put(tied, unit, source, -1.0, heavy, crowd, drag)
    put(tied, unit, target, 1.0, heavy, crowd, drag)
    return source


@njit(cache=True)
def _gather(problem, place, tied, crowd, heavy, drag):  # type: ignore[no-untyped-def]
    """Fill the sums per resource that :func:`_gain` uses."""
    crowd[:] = 0.0
    heavy[:] = 0.0
    drag[:] = 0.0
    for unit in range(len(problem.pinned)):
        put(tied, unit, place[problem.unit_tasks[problem.unit_begin[unit]]], 1.0, heavy, crowd, drag)


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
    processing, cost, flow = np.empty(count), np.empty(arcs), np.zeros(arcs)
    reach, soft, scratch = np.empty(network.nodes), np.empty(network.nodes), np.empty(network.nodes)
    crowd, heavy, drag, tied = np.zeros(places), np.zeros(places), np.zeros(places), np.zeros((3, units))
    task_flow, unit_of = np.zeros(count), np.empty(count, np.int64)
    unit_sums(problem, task_flow, unit_of, tied)
    begin, links = links_at(network, unit_of, units)
    log_unit, log_source = np.empty(batch + 2, np.int64), np.empty(batch + 2, np.int64)
    size = float(batch)
    current = np.inf
    if best <= 0 or places == 1:
        return best
    for step in range(steps + 1):
        if best <= 0.0:  # nothing is cheaper, and heat and sharpness, which are relative to it, are undefined
            break
        progress = step / steps
        heat = heats[0] * (heats[1] / heats[0]) ** progress * best
        sharp = sharps[0] * (sharps[1] / sharps[0]) ** progress / best
        # Draw candidates, each the move of a unit or the exchange of two, and make the best; repeat for the batch.
        moves = 0
        while step > 0 and moves < max(1, int(size)):
            chosen, target, partner = -1, -1, -1
            expected = np.inf
            for _ in range(candidates):
                unit = _draw(state, units)
                source = place[problem.unit_tasks[problem.unit_begin[unit]]]
                if _draw(state, 2) == 0 or units == 1:
                    goal, exchanged = _draw(state, places), -1
                else:
                    exchanged = _draw(state, units)
                    goal = place[problem.unit_tasks[problem.unit_begin[exchanged]]]
                if goal == source or not _may_go(problem, place, unit, goal, exchanged):
                    continue
                if exchanged >= 0 and not _may_go(problem, place, exchanged, source, unit):
                    continue
                if candidates == 1:
                    change = 0.0
                else:
                    change = _gain(problem, place, unit, goal, crowd, heavy, drag, tied, begin, links, flow)
                    if exchanged >= 0:
                        _move(problem, place, unit, goal, crowd, heavy, drag, tied)
                        change += _gain(problem, place, exchanged, source, crowd, heavy, drag, tied, begin, links, flow)
                        _move(problem, place, unit, source, crowd, heavy, drag, tied)
                if change < expected:
                    chosen, target, partner, expected = unit, goal, exchanged, change
            if chosen < 0 or (moves > 0 and expected >= 0):
                break
            source = _move(problem, place, chosen, target, crowd, heavy, drag, tied)
            log_unit[moves], log_source[moves] = chosen, source
            moves += 1
            if partner >= 0:
                _move(problem, place, partner, source, crowd, heavy, drag, tied)
                log_unit[moves], log_source[moves] = partner, target
                moves += 1
        if step > 0 and moves == 0:
            continue
        # Evaluate all paths once; accept the batch by Metropolis' rule, or undo its moves.
        processing_costs(problem.weights, problem.presence, place, problem.speeds, crowd, processing)
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
                soft_flows(network, cost, sharp, soft, scratch, flow)
                for arc in range(arcs):
                    if network.task[arc] >= 0:
                        task_flow[network.task[arc]] = flow[arc]
                unit_sums(problem, task_flow, unit_of, tied)
                _gather(problem, place, tied, crowd, heavy, drag)
        else:
            size = max(size * 0.8, 1.0)
            for entry in range(moves - 1, -1, -1):
                _move(problem, place, log_unit[entry], log_source[entry], crowd, heavy, drag, tied)
            if candidates > 1:
                _gather(problem, place, tied, crowd, heavy, drag)
    return best


def seeded(seed: int) -> NDArray[np.uint64]:
    """The state of the random generator for a seed; never 0, from which xorshift would not move."""
    return np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1)
