"""Reweighted grouping: adapt the flow weights to the paths that rounding to whole tasks makes dear.

Groups by optimal shares treat paths unevenly, because a group holds a whole number of tasks. So each round moves a little
flow to the paths that became dearest, and forms shares and groups again; steps get smaller when nothing improves. A round
takes a sort and one pass over the network.
"""

import numpy as np

from penstock.allocation.arcs import Floats, Ints, log_paths, soft_flows, soft_longest, task_flows
from penstock.allocation.grouping import min_k
from penstock.allocation.problem import Problem, true_cost
from penstock.allocation.shares import filled

_SHARPNESS = (30.0, 8.0)  # times (1 + log of the number of paths) / cost; alternated
_PATIENCE = 20  # rounds without improvement until the sharpness or the step changes


def reweighted(given: Problem, flows: Floats, rounds: int, place: Ints) -> Ints:
    """The best placement of ``rounds`` rounds, which start from ``place`` and a unit flow, one number per task.

    Units stay together; other constraints are ignored.
    """
    network, count = given.network, len(given.weights)
    capacity, cap = float(given.speeds.sum()), float(given.speeds.max())
    processing, crowd = np.empty(count), np.empty(len(given.speeds))
    cost, flow = np.zeros(len(network.task)), np.empty(len(network.task))
    reach, soft, scratch = np.empty(network.nodes), np.empty(network.nodes), np.empty(network.nodes)
    paths = 1 + log_paths(network)
    best_cost, best_place, best_flows = true_cost(given, place, crowd, processing, cost, reach), place, flows
    step, stalled, stalls = 0.003, 0, 0
    for _ in range(rounds):
        trial = min_k(given, filled(given.weights, given.presence, flows, capacity, cap))
        trial_cost = true_cost(given, trial, crowd, processing, cost, reach)
        stalled += 1
        if trial_cost < best_cost:
            best_cost, best_place, best_flows, stalled = trial_cost, trial, flows, 0
        elif stalled > _PATIENCE:
            stalls, stalled, flows = stalls + 1, 0, best_flows
            step *= 0.5 if stalls % len(_SHARPNESS) == 0 else 1.0
        sharpness = _SHARPNESS[stalls % len(_SHARPNESS)] * paths / max(trial_cost, 1e-300)
        soft_longest(network, cost, sharpness, reach, soft, scratch)
        soft_flows(network, cost, sharpness, soft, scratch, flow)
        flows = (1 - step) * flows + step * task_flows(network, flow, count)
    return best_place
