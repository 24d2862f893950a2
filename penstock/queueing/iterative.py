"""The ``iterative`` method: the truncated sweeps of the paper's sections 4 and 5, with a bound on their error."""

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.errors import NotSolvableError
from penstock.queueing.boundary import Boundary, outer_distance

if TYPE_CHECKING:
    from penstock.queueing.server import StreamServer

Real = NDArray[np.float64]

_MOST_SWEEPS = 1_000_000


def solve_iterative(server: "StreamServer", tolerance: float, truncation: int | None = None) -> Boundary:
    """Sweep through the balance equations until the boundary probabilities have converged.

    That two consecutive estimates are close is not enough, because a sweep contracts the error by only about rho. So the
    remaining error is estimated by the geometric series of the changes, and compared with ``tolerance``.

    Args:
        truncation: m, the largest number of jobs in the internal queue; by default so large that the tail of the number's
            distribution is negligible.

    Raises:
        NotSolvableError: the timer always runs, a parameter is infinite, or a million sweeps did not suffice.
    """
    if server.timer == "always" or math.isinf(server.timer_rate) or math.isinf(server.batch_size):
        raise NotSolvableError(
            "method='iterative' takes the paper's timer ('idle') and finite values of timer_rate and batch_size; "
            "use method='auto'."
        )
    size = int(server.batch_size)
    outer = outer_distance(size, server.load, server.arrivals_per_transfer_time, server.slack)
    level = truncation or size + math.ceil(math.log(tolerance / 100) / math.log1p(-server.load * outer))
    instant = math.isinf(server.transfer_rate)
    probabilities, sweeps = _sweep(
        server.arrival_rate,
        server.service_rate,
        server.timer_rate,
        0.0 if instant else server.transfer_rate,
        size,
        level,
        tolerance,
        server.slack,
        _MOST_SWEEPS,
    )
    if sweeps == _MOST_SWEEPS:
        raise NotSolvableError(
            f"method='iterative' did not converge within {_MOST_SWEEPS:,} sweeps; ask for a larger tolerance than "
            f"{tolerance:g}, or use method='auto'."
        )
    flows = server.timer_rate * probabilities
    flows[0] = 0.0
    return Boundary(probabilities, flows)


@njit(cache=True)
def _sweep(arrival, service, timer, transfer, size, level, tolerance, slack, most_sweeps):  # type: ignore[no-untyped-def]
    boundary = (arrival / (arrival + timer)) ** np.arange(size)
    last = boundary[-1] * (arrival / (arrival + service)) ** np.arange(level + 2)  # row K - 1
    row = np.zeros(level + 2)
    moving = np.zeros(level + size + 1)  # r_n
    before = np.zeros(size)
    previous_change = np.inf
    slowest = 0.0
    for sweep in range(most_sweeps):
        if transfer > 0:  # (28), (29)
            for n in range(1, level + size + 1):
                started = timer * boundary[n] if n < size else (arrival * last[n - size] if n - size <= level else 0.0)
                moving[n] = (arrival * moving[n - 1] + started) / (arrival + transfer)
        row[level + 1] = 0.0
        for i in range(level, 0, -1):  # (11), (12) or (32)
            if transfer > 0:  # noqa: SIM108 - two models, one line each
                entered = transfer * moving[i]
            else:
                entered = timer * boundary[i] if i < size else arrival * last[i - size]
            row[i] = (service * row[i + 1] + entered) / (arrival + service)
        boundary[0] = service * row[1] / arrival  # (9), (31)
        row[0] = boundary[0]
        for j in range(1, size):  # (13), (10) or (34), (33)
            for i in range(level, 0, -1):
                row[i] = (arrival * row[i] + service * row[i + 1]) / (arrival + service)
            boundary[j] = (arrival * boundary[j - 1] + service * row[1]) / (arrival + timer)
            row[0] = boundary[j]
        # Normalise by (17) or (52).
        total = 0.0
        for j in range(size):
            total += boundary[j]
            if transfer > 0:
                total += arrival / transfer * boundary[j] / size
                if j > 0:
                    total += timer / transfer * boundary[j] * (size - j) / size
        scale = slack / total
        change = 0.0
        for j in range(size):
            boundary[j] *= scale
            change = max(change, abs(boundary[j] - before[j]))
            before[j] = boundary[j]
        for i in range(level + 1):
            last[i] = row[i] * scale
        # The changes shrink geometrically, so those still to come add up to at most change / (1 - slowest).
        if sweep > 3 and previous_change > 0:
            slowest = max(0.9 * slowest, min(change / previous_change, 0.999999))
            largest = np.abs(boundary).max()
            if change / (1 - slowest) <= tolerance * largest or change <= 1e-15 * largest:
                return boundary, sweep
        previous_change = change
    return boundary, most_sweeps
