"""Mean numbers of jobs and rates of transfers, from the moments of the boundary probabilities."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.queueing.boundary import Boundary, phase_cycle

if TYPE_CHECKING:
    from penstock.queueing.server import StreamServer


@dataclass(frozen=True)
class Moments:
    """Long-run means of a stream server.

    Args:
        mean_jobs: L, jobs in both queues.
        external_jobs: jobs in the external queue, including those that a transfer is moving.
        transfers_per_second: T.
        idle_probability: probability that the internal queue is empty and the processor is not blocked.
    """

    mean_jobs: float
    external_jobs: float
    transfers_per_second: float
    idle_probability: float


def moments(server: "StreamServer", boundary: Boundary) -> Moments:
    """Compute the means of a server with a finite batch size."""
    size = server.effective_batch_size
    if server.timer == "idle" or server.timer_rate == 0 or size == 1:
        return _idle(server, boundary)
    return always_moments(server, boundary)


def _idle(server: "StreamServer", boundary: Boundary) -> Moments:
    """Means for the paper's timer: equations (43), (18) and (8), rearranged so that T is a sum of positive numbers.

    Jobs arrive as fast as transfers move them: K or, when the timer fires, j jobs, and the xi that arrive meanwhile:
    lambda = K T_full + sum j tau pi_{0,j} + xi T, so T (K + xi) = lambda + sum (K - j) tau pi_{0,j}.
    """
    size = server.effective_batch_size
    rate, rho, xi, gamma = server.arrival_rate, server.load, server.arrivals_per_transfer_time, server.transfer_rate
    phases = np.arange(len(boundary.probabilities), dtype=float)
    flows = boundary.timer_flows
    idle, idle_jobs = float(boundary.probabilities.sum()), float(phases @ boundary.probabilities)
    timed, timed_jobs, timed_pairs = float(flows.sum()), float(phases @ flows), float((phases * (phases - 1)) @ flows)
    transfers = (rate + float((size - phases) @ flows)) / (size + xi)
    full = max(transfers - timed, 0.0)  # transfers of K jobs, lambda g_{K-1}(1)
    in_full = max(rate - xi * transfers - timed_jobs, 0.0)  # jobs per second that move in full batches
    external = (in_full * (size - 1) + timed_pairs) / (2 * rate)  # sum_j j g_j(1), from (15) at z = 1
    if math.isinf(gamma):
        return Moments((rho + idle_jobs) / (1 - rho), external, transfers, idle)
    external += (rate * (1 - transfers / gamma) + xi * transfers) / gamma
    # g'_{K-1}(1), equation (49), from the expansion of the stationary equation of z^i w^j in 1 - w.
    first = size * server.slack
    second = rho**2 * (size * (size + 1) / 2 + xi * size + xi + xi**2) - size * (size - 1) / 2
    numerator = rate * idle_jobs - timed_pairs / 2 * (1 - rho**2) + rho**2 * ((xi + xi**2) * timed + (1 + xi) * timed_jobs)
    inside_at_full = (numerator / rate + full / rate * second) / (first * rho)
    jobs = rho + xi / gamma * transfers + idle_jobs + timed_jobs / gamma + xi * (size * full / rate + inside_at_full)
    return Moments(jobs / (1 - rho), external, transfers, idle)


def always_moments(server: "StreamServer", boundary: Boundary) -> Moments:
    """Means for the timer that always runs: the external queue's phase does not depend on the internal queue.

    The phase is a renewal process, so T = 1 / (cycle + 1/gamma). For L, take the stationary equation of n psi(phase),
    where n is the number of jobs and psi solves Poisson's equation for the event that a transfer is under way. It relates
    the mean number during transfers to L, and so does (1 - rho) L = rho + sum j pi_{0,j} + (that number).
    """
    rate, service, gamma, rho = server.arrival_rate, server.service_rate, server.transfer_rate, server.load
    transfers = 1 / (phase_cycle(server) + 1 / gamma)
    blocked = transfers / gamma
    pi = boundary.probabilities
    count = len(pi)
    phases = np.arange(count)
    onward = rate / (rate + server.timer_rate)
    in_phase = transfers / rate * onward**phases
    potential = np.zeros(count + 1)
    if blocked > 0:
        if math.isinf(server.batch_size):
            potential[-1] = blocked / server.timer_rate
        for j in range(count - 1, 0, -1):
            potential[j] = (rate * potential[j + 1] + blocked) / (rate + server.timer_rate)
        potential[0] = (1 - blocked) / gamma
    during = service * potential[:-1] @ (in_phase - pi) - rate * in_phase @ potential[1:]
    idle = float(pi.sum())
    jobs = (rho + phases @ pi + during) / idle  # 1 - rho - blocked
    external = phases @ in_phase + rate / gamma
    return Moments(float(jobs), float(external), transfers, idle)
