"""Shares with caps as a second-order cone program, solved by Clarabel."""

import math

import clarabel
import numpy as np
from scipy import sparse

from penstock.allocation.arcs import ArcNetwork, Floats
from penstock.errors import NotSolvableError


def solve_cone(
    network: ArcNetwork, divided: Floats, fixed: Floats, capacity: float, cap: float, tolerance: float
) -> tuple[Floats, Floats, Floats]:
    """Minimise the time at which END is reached, over shares of a capacity.

    Variables are the time of each node and the share y of each task. A task of duration t needs (t - a) y >= q, which is
    the cone |(2 sqrt(q), t - a - y)| <= t - a + y.

    Args:
        network: the paths, as an activity-on-arc network.
        divided, fixed: q and a, one per task.
        capacity, cap: upper limits of the sum of shares and of each share.
        tolerance: relative and absolute tolerance of the solver.

    Returns:
        tuple: times per node, shares per task, and the dual flow per arc, a unit flow up to the tolerance.

    Raises:
        NotSolvableError: the solver fails, because the numbers differ too much in size.
    """
    nodes, count = network.nodes, len(divided)
    arcs, links = np.flatnonzero(network.task >= 0), np.flatnonzero(network.task < 0)
    tasks, width = network.task[arcs], nodes + count
    duration = _differences(network.ends[arcs], network.starts[arcs], width)
    order = _differences(network.starts[links], network.ends[links], width)
    shares = sparse.csr_matrix((np.ones(count), (np.arange(count), nodes + tasks)), shape=(count, width))
    capped = shares if math.isfinite(cap) else shares[:0]
    origin = sparse.csr_matrix(([1.0], ([0], [0])), shape=(1, width))
    total = sparse.csr_matrix(np.concatenate([np.zeros(nodes), np.ones(count)])[None])
    interleaved = np.arange(3 * count).reshape(3, count).T.ravel()  # the three rows of a task side by side
    cone = sparse.vstack([-duration - shares, 0 * shares, shares - duration]).tocsr()[interleaved]
    sides = np.concatenate([-fixed[tasks], 2 * np.sqrt(divided[tasks]), -fixed[tasks]])[interleaved]
    matrix = sparse.vstack([origin, total, capped, order, cone]).tocsc()
    bounds = np.concatenate([[0.0, capacity], np.full(capped.shape[0], cap), np.zeros(len(links)), sides])
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(1 + capped.shape[0] + len(links))]
    cones += [clarabel.SecondOrderConeT(3)] * count
    objective = np.zeros(width)
    objective[nodes - 1] = 1.0
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    solver = clarabel.DefaultSolver(sparse.csc_matrix((width, width)), objective, matrix, bounds, cones, settings)
    answer = solver.solve()
    solved, dual = np.array(answer.x), np.array(answer.z)
    if not np.isfinite(solved).all() or not np.isfinite(dual).all():
        raise NotSolvableError("The shares cannot be computed: the weights are too far apart; leave out tiny ones.")
    flow = np.empty(len(network.task))
    before = 2 + capped.shape[0]
    flow[links] = dual[before : before + len(links)]
    of_tasks = dual[before + len(links) :]
    flow[arcs] = of_tasks[0::3] + of_tasks[2::3]
    return solved[:nodes], solved[nodes:], flow


def _differences(plus: np.ndarray, minus: np.ndarray, width: int) -> sparse.csr_matrix:
    """A matrix with one row per pair, which has 1 in column ``plus`` and -1 in column ``minus``."""
    rows = np.arange(len(plus))
    entries = (np.repeat([1.0, -1.0], len(plus)), (np.tile(rows, 2), np.concatenate([plus, minus])))
    return sparse.csr_matrix(entries, shape=(len(plus), width))
