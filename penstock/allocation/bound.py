"""Certified lower bounds on the objective of every allocation."""

from penstock.allocation.grouping import grouping_bound
from penstock.allocation.network import Floats
from penstock.allocation.problem import Problem
from penstock.allocation.shares import flow_bound


def lower_bound(given: Problem, flows: Floats) -> float:
    """The best of the bounds that a unit flow over the paths certifies, one flow per task."""
    capacity, fastest = float(given.speeds.sum()), float(given.speeds.max())
    shared = flow_bound(given.weights, given.presence, flows, capacity, fastest)
    return max(shared, grouping_bound(given, flows)) * (1 - 1e-12)
