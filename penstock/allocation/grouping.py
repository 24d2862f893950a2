"""Groups of tasks in the order of their shares: quick allocations, and the Lagrangian lower bound.

For fixed flow weights the cost of an allocation, averaged over paths, is the sum over resources of (sum of f w) n / speed.
The sum is least for contiguous groups of tasks sorted by f w, so dynamic programming finds the minimum. Because the worst
path costs at least the average one, the minimum is a lower bound on every allocation.
"""

import numpy as np
from numba import njit

from penstock.allocation.arcs import Floats, Ints
from penstock.allocation.problem import Problem


@njit(cache=True)
def _fills(order, share, presence, speeds, ranking, factor, place):  # type: ignore[no-untyped-def]
    """Fill resources in turn, each up to a presence of factor x speed / its largest share; return whether all tasks fit."""
    position = 0
    for resource in ranking:
        if position == len(order):
            break
        room = factor * speeds[resource] / share[order[position]] if share[order[position]] > 0 else np.inf
        crowd = 0.0
        while position < len(order) and (crowd == 0.0 or crowd + presence[order[position]] <= room * (1 + 1e-12)):
            crowd += presence[order[position]]
            place[order[position]] = resource
            position += 1
    return position == len(order)


@njit(cache=True)
def _least_factor(order, share, presence, speeds, ranking, place):  # type: ignore[no-untyped-def]
    """Fill ``place`` with the least factor for which all tasks fit, found by bisection."""
    low, high = 0.0, 1.0
    while not _fills(order, share, presence, speeds, ranking, high, place):
        low, high = high, 2 * high
    for _ in range(40):
        if high - low <= 1e-6 * high:
            break
        middle = (low + high) / 2
        if _fills(order, share, presence, speeds, ranking, middle, place):
            high = middle
        else:
            low = middle
    _fills(order, share, presence, speeds, ranking, high, place)


def min_k(given: Problem, shares: Floats) -> Ints:
    """Place tasks by falling share x, K x speed / x of them on each resource, with the least K for which all tasks fit.

    With optimal capped shares, K bounds the ratio to the optimum for any graph whose transfers cost nothing, and on c
    equal resources it is at most n^(1/c) + 1 (docs/background/allocation.md; Theorem III.7 has 2 n^(2/c) + 1). Units stay
    together; pins and aparts are ignored.
    """
    first, count = given.unit_begin[:-1], len(given.pinned)
    share = np.maximum.reduceat(shares[given.unit_tasks], first)
    presence = np.add.reduceat(given.presence[given.unit_tasks], first)
    order = np.argsort(-share, kind="stable")
    ranking = np.argsort(-given.speeds, kind="stable")
    unit_place, place = np.zeros(count, np.int64), np.zeros(len(given.weights), np.int64)
    _least_factor(order, share, presence, given.speeds, ranking, unit_place)
    place[given.unit_tasks] = np.repeat(unit_place, np.diff(given.unit_begin))
    return place


def grouping_bound(given: Problem, flows: Floats) -> float:
    """The least average cost, over the paths of a unit flow, of any allocation; 0 if it would take too long to compute.

    Computed for equal capacities at any size, and for few resources with unequal ones. Transfers count as free.
    """
    if not (given.presence == 1).all():
        return 0.0
    heavy = np.sort(flows * given.weights)[::-1]
    prefix = np.concatenate([[0.0], np.cumsum(heavy)])
    kinds, numbers = np.unique(given.speeds, return_counts=True)
    if len(kinds) == 1:
        # A lower price per group gives more groups; any price gives a bound, so take the best one.
        return float(_priced_groups(prefix, len(given.speeds)) / kinds[0])
    numbers = np.minimum(numbers, len(heavy))
    if np.prod(numbers + 1.0) * len(kinds) * len(heavy) ** 2 > 2e7:
        return 0.0
    return float(_typed_groups(prefix, kinds, numbers))


@njit(cache=True)
def _value(prefix, best, start, end):  # type: ignore[no-untyped-def]
    return best[start] + (prefix[end] - prefix[start]) * (end - start)


@njit(cache=True)
def _groups_at_price(prefix, price):  # type: ignore[no-untyped-def]
    """The least cost of any number of contiguous groups, each at a price, and that number.

    (S_j - S_i) (j - i) has the Monge property for sorted tasks, so the best start of a group never moves back as its end
    moves on, and the candidates for it form a queue.
    """
    count = len(prefix) - 1
    best, groups = np.zeros(count + 1), np.zeros(count + 1, np.int64)
    candidate, since = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    first, last = 0, 0
    since[0] = 1
    for end in range(1, count + 1):
        while first < last and since[first + 1] <= end:
            first += 1
        start = candidate[first]
        best[end] = _value(prefix, best, start, end) + price
        groups[end] = groups[start] + 1
        if end == count:
            break
        while last > first and _value(prefix, best, end, max(since[last], end + 1)) <= _value(
            prefix, best, candidate[last], max(since[last], end + 1)
        ):
            last -= 1
        low, high = max(since[last], end + 1), count + 1
        while low < high:  # find the first end from which the new start beats the last candidate
            middle = (low + high) // 2
            if _value(prefix, best, end, middle) <= _value(prefix, best, candidate[last], middle):
                high = middle
            else:
                low = middle + 1
        if low <= count:
            last += 1
            candidate[last], since[last] = end, low
    return best[count], groups[count]


@njit(cache=True)
def _priced_groups(prefix, most):  # type: ignore[no-untyped-def]
    """A lower bound, tight as a rule, on the cost of at most ``most`` contiguous groups, by bisecting the price of a group."""
    low, high = 0.0, prefix[-1] * (len(prefix) - 1)
    bound = 0.0
    for _ in range(60):
        price = (low + high) / 2
        value, groups = _groups_at_price(prefix, price)
        bound = max(bound, value - price * most)
        if groups > most:
            low = price
        else:
            high = price
        if high - low <= 1e-10 * high:
            break
    return max(bound, _groups_at_price(prefix, 0.0)[0])


@njit(cache=True)
def _typed_groups(prefix, speeds, numbers):  # type: ignore[no-untyped-def]
    """The least cost of contiguous groups on resources of several kinds, by dynamic programming over the resources in use."""
    count, kinds = len(prefix) - 1, len(speeds)
    states = 1
    for kind in range(kinds):
        states *= numbers[kind] + 1
    best = np.full((states, count + 1), np.inf)
    best[:, 0] = 0.0
    for state in range(1, states):
        stride, higher_digits = 1, state
        for kind in range(kinds):
            if higher_digits % (numbers[kind] + 1) > 0:
                before = best[state - stride]
                for end in range(1, count + 1):
                    for start in range(end):
                        value = before[start] + (prefix[end] - prefix[start]) * (end - start) / speeds[kind]
                        if value < best[state, end]:
                            best[state, end] = value
            higher_digits //= numbers[kind] + 1
            stride *= numbers[kind] + 1
    return best[states - 1, count]
