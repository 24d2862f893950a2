"""Reweighted grouping: flow weights that follow what whole numbers of tasks do to the paths.

Groups formed by optimal shares are uneven, since a group holds a whole number of tasks: some paths have all the luck.
So a little flow is moved to the paths that came out worst, shares and groups are formed anew, and again, with smaller
steps once nothing improves. Each round takes a sort and one look at all paths.
"""

import numpy as np

from penstock.allocation.arcs import Floats, Ints, log_paths, soft_flows, soft_longest, task_flows
from penstock.allocation.grouping import min_k
from penstock.allocation.problem import Problem, true_cost
from penstock.allocation.shares import filled

_SHARPNESS = (30.0, 8.0)  # in units of (1 + log of the number of paths) / cost; whichever helps
_PATIENCE = 20


def reweighted(given: Problem, flows: Floats, rounds: int, place: Ints) -> Ints:
    """The best placement of a number of rounds; begins from ``place`` and a unit flow per task.

    Constraints other than tasks kept together are not looked at.
    """
    network, count = given.network, len(given.weights)
    capacity, cap = float(given.speeds.sum()), float(given.speeds.max())
    processing, crowd = np.empty(count), np.empty(len(given.speeds))
    cost, flow = np.zeros(len(network.task)), np.empty(len(network.task))
    reach, soft, scratch = np.empty(network.nodes), np.empty(network.nodes), np.empty(network.nodes)
    paths = 1 + log_paths(network)
    best, best_place, best_flows = true_cost(given, place, crowd, processing, cost, reach), place, flows
    step, stalled, stalls = 0.003, 0, 0
    for _ in range(rounds):
        tried = min_k(given, filled(given.weights, given.presence, flows, capacity, cap))
        reached = true_cost(given, tried, crowd, processing, cost, reach)
        stalled += 1
        if reached < best:
            best, best_place, best_flows, stalled = reached, tried, flows, 0
        elif stalled > _PATIENCE:
            stalls, stalled, flows = stalls + 1, 0, best_flows
            step *= 0.5 if stalls % len(_SHARPNESS) == 0 else 1.0
        sharpness = _SHARPNESS[stalls % len(_SHARPNESS)] * paths / max(reached, 1e-300)
        soft_longest(network, cost, sharpness, reach, soft, scratch)
        soft_flows(network, cost, sharpness, soft, scratch, flow)
        flows = (1 - step) * flows + step * task_flows(network, flow, count)
    return best_place
