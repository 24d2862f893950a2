"""Certified lower bounds on the objective of every allocation.

All use a unit flow over the paths, because the worst path costs at least the average one. With A_v = f_v w_v and
B_e = f_e b_e the average cost is the sum of A_v n_v plus the sum of B_e over transfers between resources. Three relaxations
bound it from below; which one is best depends on the graph:

- shares: n_v is any number of 1 or more, with sum of 1 / n_v at most c (:func:`penstock.allocation.shares.flow_bound`);
- groups: n_v are sizes of real groups, and transfers are free (:func:`penstock.allocation.grouping.grouping_bound`);
- companions: n_v are integers with sum of 1 / n_v at most c, and transfers count. A task in a group of n_v has n_v - 1
  companions, so it saves at most its n_v - 1 dearest transfers; half of each is credited to either end.
"""

import numpy as np
from numba import njit

from penstock.allocation.arcs import Floats, Ints, arc_costs, links_at, soft_flow, task_flows
from penstock.allocation.grouping import grouping_bound
from penstock.allocation.problem import Problem
from penstock.allocation.shares import flow_bound

_SAFE = 1 - 1e-12  # allows for rounding


def lower_bound(given: Problem, flows: Floats) -> float:
    """The better of the bounds by shares and by groups, from a unit flow with one number per task; transfers are free."""
    capacity, fastest = float(given.speeds.sum()), float(given.speeds.max())
    shared = flow_bound(given.weights, given.presence, flows, capacity, fastest)
    return max(shared, grouping_bound(given, flows)) * _SAFE


def companions_bound(given: Problem, place: Ints, flow: Floats | None = None, rounds: int = 60) -> float:
    """The best bound by companions that an ascent from a good placement finds; 0 if tasks share by load.

    The ascent starts from the best of ``flow``, a flow per arc if known, and the smoothed worst paths of the placement. Each
    of its ``rounds`` moves flow to the paths that are dearest by the costs at which the bound is attained.
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
        evaluation: tuple[float, Floats, Floats] = _companions(
            network.task, flow, given.weights, flow * price, begin, links, kinds, numbers.astype(float), count
        )
        return evaluation

    cost = np.empty(len(network.task))
    crowd = np.bincount(place, minlength=len(given.speeds))
    arc_costs(network, given.weights * crowd[place] / given.speeds[place], place, given.slowness, cost)
    given_flows = [] if flow is None else [flow]
    flow = max(
        [*given_flows, *(soft_flow(network, cost, sharp) for sharp in (20.0, 80.0, 320.0))], key=lambda flow: evaluated(flow)[0]
    )
    best_bound, crowds, spared = evaluated(flow)
    step, sharp = 0.5, 40.0
    for _ in range(rounds):
        average = np.where(network.task >= 0, (given.weights * crowds)[network.task], price * (1 - spared))
        candidate = flow + (soft_flow(network, average, sharp) - flow) * step
        evaluation = evaluated(candidate)
        if evaluation[0] > best_bound:
            flow, (best_bound, crowds, spared) = candidate, evaluation
            step = min(0.5, 1.5 * step)
        else:
            step, sharp = step * 0.6, sharp * 1.2
            if step < 1e-3:
                break
    return max(best_bound, lower_bound(given, task_flows(network, flow, count))) * _SAFE


@njit(cache=True)
def _savings(dear, begin, links, count):  # type: ignore[no-untyped-def]
    """Rank each task's links, the dearest first; ``prefix[begin[task] + task + k]`` is the most that k companions save it."""
    order, prefix = links.copy(), np.zeros(len(links) + count)
    for task in range(count):
        first, last = begin[task], begin[task + 1]
        own_links = links[first:last]
        ranked = own_links[np.argsort(-dear[own_links])]
        order[first:last] = ranked
        for position in range(last - first):
            prefix[first + task + position + 1] = prefix[first + task + position] + 0.5 * dear[ranked[position]]
    return order, prefix


@njit(cache=True)
def _cheapest_size(slope, price, saved, count):  # type: ignore[no-untyped-def]
    """The least that a task adds to the bound on a resource of some kind, and the size of its group there.

    ``saved[k]`` is the most that k companions save. The sum is convex in the size, so that it is least where one more companion
    stops paying.
    """
    degree = len(saved) - 1
    low, high = 1, count
    while low < high:
        middle = (low + high) // 2
        gained = saved[min(middle, degree)] - saved[min(middle - 1, degree)]
        if slope - gained - price / middle + price / (middle + 1) >= 0:
            high = middle
        else:
            low = middle + 1
    return slope * low - saved[min(low - 1, degree)] + price / low, low


@njit(cache=True)
def _companions(task_of, flow, weights, dear, begin, links, speeds, numbers, count):  # type: ignore[no-untyped-def]
    """The bound by companions of a flow, maximised over prices of a group, one price per kind of resource.

    Returns the bound and, at its minimum, the factor of each task's weight and the saved fraction of each link.
    """
    spared = np.zeros(len(task_of))
    heavy = np.zeros(count)
    for arc in range(len(task_of)):
        if task_of[arc] >= 0:
            heavy[task_of[arc]] += flow[arc] * weights[task_of[arc]]
    order, prefix = _savings(dear, begin, links, count)
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
            saved = prefix[begin[task] + task : begin[task + 1] + task + 1]
            least_added = np.inf
            for k in range(len(speeds)):
                added, cheapest = _cheapest_size(heavy[task] / speeds[k], prices[k], saved, count)
                if added < least_added:
                    least_added, size[task], kind[task] = added, cheapest, k
            value += least_added
            used[kind[task]] += 1.0 / size[task]
        if value > best:
            best = value
            best_size[:] = size
            best_kind[:] = kind
        done = True
        for k in range(len(speeds)):  # raise the prices of overused kinds, lower the others
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
