"""Certified lower bounds on the objective of every allocation.

All rest on a unit flow over the paths: the worst path costs at least the average one. With A_v = f_v w_v and B_e = f_e b_e
the average costs sum of A_v n_v + sum of B_e over the transfers between resources, and a bound is the least value that
can have. Three ways to bound it, each weaker or stronger elsewhere:

- shares: n_v may be any number of 1 or more with sum of 1 / n_v at most c (:func:`penstock.allocation.shares.flow_bound`);
- groups: n_v as of real groups, transfers free (:func:`penstock.allocation.grouping.grouping_bound`);
- companions: n_v whole numbers with sum of 1 / n_v at most c, and transfers count. A task in a group of n_v has n_v - 1
  companions, so at most the n_v - 1 dearest of its transfers are spared; half of each is put down to either end.
"""

import numpy as np
from numba import njit

from penstock.allocation.arcs import Floats, Ints, arc_costs, links_at, soft_flow, task_flows
from penstock.allocation.grouping import grouping_bound
from penstock.allocation.problem import Problem
from penstock.allocation.shares import flow_bound

_SAFE = 1 - 1e-12  # of rounding


def lower_bound(given: Problem, flows: Floats) -> float:
    """The best of the bounds that a unit flow certifies, one flow per task, transfers left out."""
    capacity, fastest = float(given.speeds.sum()), float(given.speeds.max())
    shared = flow_bound(given.weights, given.presence, flows, capacity, fastest)
    return max(shared, grouping_bound(given, flows)) * _SAFE


def companions_bound(given: Problem, place: Ints, flow: Floats | None = None, rounds: int = 60) -> float:
    """The best bound by companions that is found from a good placement; 0 when tasks share by load.

    Begins with ``flow``, that of the best shares through each arc if it is known, and with smoothed worst paths of the
    placement, and ascends: the costs that the bound itself finds say where more should flow.
    """
    if not (given.presence == 1).all() or not given.weights.any():
        return 0.0
    network = given.network
    count = len(given.weights)
    kinds, numbers = np.unique(given.speeds, return_counts=True)
    between = given.slowness[~np.eye(len(given.speeds), dtype=bool)]
    price = network.price * (between.min() if len(between) else 0.0)
    begin, links = links_at(network, np.arange(count), count)

    def evaluated(flow: Floats) -> tuple[float, Floats, Floats]:
        found: tuple[float, Floats, Floats] = _companions(
            network.task, flow, given.weights, flow * price, begin, links, kinds, numbers.astype(float), count
        )
        return found

    cost = np.empty(len(network.task))
    crowd = np.bincount(place, minlength=len(given.speeds))
    arc_costs(network, given.weights * crowd[place] / given.speeds[place], place, given.slowness, cost)
    known = [] if flow is None else [flow]
    flow = max(
        [*known, *(soft_flow(network, cost, sharp) for sharp in (20.0, 80.0, 320.0))], key=lambda flow: evaluated(flow)[0]
    )
    best, crowds, spared = evaluated(flow)
    step, sharp = 0.5, 40.0
    for _ in range(rounds):
        average = np.where(network.task >= 0, (given.weights * crowds)[network.task], price * (1 - spared))
        candidate = flow + (soft_flow(network, average, sharp) - flow) * step
        found = evaluated(candidate)
        if found[0] > best:
            flow, (best, crowds, spared) = candidate, found
            step = min(0.5, 1.5 * step)
        else:
            step, sharp = step * 0.6, sharp * 1.2
            if step < 1e-3:
                break
    return max(best, lower_bound(given, task_flows(network, flow, count))) * _SAFE


@njit(cache=True)
def _companions(task_of, flow, weights, dear, begin, links, speeds, numbers, count):  # type: ignore[no-untyped-def]
    """Maximise over prices of a group, one per kind of resource.

    Returns the bound, what multiplies each weight at its minimum, and the part of each link that is spared there.
    """
    spared = np.zeros(len(task_of))
    heavy = np.zeros(count)
    for arc in range(len(task_of)):
        if task_of[arc] >= 0:
            heavy[task_of[arc]] += flow[arc] * weights[task_of[arc]]
    order, prefix = links.copy(), np.zeros(len(links) + count)
    for task in range(count):
        first, last = begin[task], begin[task + 1]
        mine = links[first:last]
        ranked = mine[np.argsort(-dear[mine])]
        order[first:last] = ranked
        for position in range(last - first):  # prefix[first + task + k]: what k companions spare at most
            prefix[first + task + position + 1] = prefix[first + task + position] + 0.5 * dear[ranked[position]]
    total = 0.0
    for arc in range(len(task_of)):
        total += dear[arc]
    scale = max(heavy.sum() * count / numbers.sum() ** 2, 1e-300)
    prices = np.full(len(speeds), scale) * speeds / speeds.max()
    size, kind = np.ones(count, np.int64), np.zeros(count, np.int64)
    best, best_size, best_kind = 0.0, size.copy(), kind.copy()
    used = np.zeros(len(speeds))
    stride = 1.0
    for _ in range(60):
        value = total - (prices * numbers).sum()
        used[:] = 0.0
        for task in range(count):
            degree = begin[task + 1] - begin[task]
            offset = begin[task] + task
            least = np.inf
            for k in range(len(speeds)):
                slope, price = heavy[task] / speeds[k], prices[k]
                low, high = 1, count
                while low < high:  # convex in the size: the first one from which another companion costs more
                    middle = (low + high) // 2
                    gained = prefix[offset + min(middle, degree)] - prefix[offset + min(middle - 1, degree)]
                    if slope - gained - price / middle + price / (middle + 1) >= 0:
                        high = middle
                    else:
                        low = middle + 1
                found = slope * low - prefix[offset + min(low - 1, degree)] + price / low
                if found < least:
                    least, size[task], kind[task] = found, low, k
            value += least
            used[kind[task]] += 1.0 / size[task]
        if value > best:
            best = value
            best_size[:] = size
            best_kind[:] = kind
        done = True
        for k in range(len(speeds)):  # the price of what is short rises
            ratio = max(used[k], 1e-9) / numbers[k]
            done &= abs(ratio - 1) < 1e-4
            prices[k] *= min(max(ratio, 0.2), 5.0) ** stride
        stride = max(0.1, stride * 0.93)
        if done:
            break
    crowds = np.empty(count)
    for task in range(count):
        crowds[task] = best_size[task] / speeds[best_kind[task]]
        for position in range(min(best_size[task] - 1, begin[task + 1] - begin[task])):
            spared[order[begin[task] + position]] += 0.5
    return best, crowds, spared
