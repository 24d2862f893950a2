"""Servers with an infinite batch size, for which the zero conditions become one functional equation.

P(w) = sum pi_{0,j} w^j then obeys an equation that relates P(w) to P(zeta(w)), where zeta is a fractional linear map that
contracts towards a fixed point. Iterating the equation to the fixed point solves it.
"""

import cmath
import math
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import NotSolvableError
from penstock.queueing.boundary import phase_cycle
from penstock.queueing.moments import Moments

if TYPE_CHECKING:
    from penstock.queueing.server import StreamServer

_MOST_STEPS = 2_000_000


def infinite_batch(server: "StreamServer") -> Moments:
    """Means of a stable server whose batch size is infinite, so that only the timer starts transfers."""
    return _idle(server) if server.timer == "idle" else _always(server)


def _idle(server: "StreamServer") -> Moments:
    """Means for the timer that runs while the internal queue is empty.

    The generating function P of the external queue while the internal one is empty solves
    (rho(1-w) + sigma) P(w) = sigma (1 - alpha) pi_00 + sigma alpha P(zeta(w)). As zeta(w) is nearer to 1 than w, applying the
    equation again and again, from w = 0 on, expresses all by pi_00 = P(0).
    """
    rho, xi, rate = server.load, server.arrivals_per_transfer_time, server.arrival_rate
    gamma, sigma = server.transfer_rate, server.timer_rate / server.service_rate
    # s = (1-w)/(1-rho w) is multiplied by rho at each step: 1 - w_n = (1-rho) s / (1 - rho s), s = rho^n.
    needed = 1 + math.ceil(45 / -math.log(rho))
    if needed > _MOST_STEPS:
        raise NotSolvableError(
            f"The server is so nearly saturated (load {rho:.10g}) that its solution takes {needed:.2g} steps, of at most "
            f"{_MOST_STEPS:,}; use simulate(), or a finite batch size."
        )
    steps = np.arange(needed)
    s = rho**steps
    below_one = server.slack * s / (1 - rho * s)  # slack is 1 - rho here, to full accuracy
    past = (1 + rho * below_one) / (1 + rho * (1 + xi) * below_one)  # alpha(zeta(w_n))
    damped = 1 / (1 + rho * below_one / sigma)
    # C(w) = sigma (P(w) - pi_00): C(w) = damped (alpha C(zeta) - rho (1-w) pi_00), and C(0) = 0.
    log_tail = np.cumsum(np.log(past * damped)[::-1])[::-1]  # log of the product of all factors from n on
    with np.errstate(over="ignore"):
        timed_per_empty = float((rho * below_one * damped * np.exp(np.append(-log_tail[1:], 0.0)) / (past * damped)).sum())
    # Work relative to the rate of transfers T = tau (P(1) - pi_00), then normalise by (41).
    empty = 1 / (server.service_rate * timed_per_empty)  # pi_00 / T
    idle = empty + 1 / server.timer_rate  # P(1) / T
    transfers = server.slack / (idle + 1 / gamma)
    timed_jobs = (rate * idle + xi * rho) * transfers / server.slack  # from the equation's derivative at w = 1
    timed_pairs = (2 * timed_jobs * (rho / sigma + rho**2 * (1 + xi)) + 2 * rho**2 * xi * (1 + xi) * transfers) / (
        (1 - rho) * (1 + rho)
    )
    idle_jobs = timed_jobs / server.timer_rate
    jobs = (rho + xi * transfers / gamma + idle_jobs + timed_jobs / gamma) / server.slack
    external = timed_pairs / (2 * rate) + (rate * (1 - transfers / gamma) + xi * transfers) / gamma
    return Moments(jobs, external, transfers, idle * transfers)


def _always(server: "StreamServer") -> Moments:
    """Solve (y(1-rho z) - sigma xi alpha z^2) P(y) = sigma z alpha (y P(z)/(1-z) + xi pi_00 (y - z)), z = zeta(y)."""
    rho, xi, rate, service = server.load, server.arrivals_per_transfer_time, server.arrival_rate, server.service_rate
    gamma, sigma = server.transfer_rate, server.timer_rate / server.service_rate
    slack = (service - rate) / service
    # Work in g = 1 - y, to avoid subtractions: g -> 1 - zeta(y) = (sigma + rho g) / (1 + sigma + rho g).
    root = math.sqrt((slack + sigma) ** 2 + 4 * rho * sigma)
    fixed = 2 * sigma / (root + slack + sigma)

    def from_fixed_point(g: complex) -> tuple[complex, complex]:
        """P(y) = exp(log_first) (P(fixed point) + second pi_00)."""
        log_first, second = 0j, 0j
        for _ in range(_MOST_STEPS):
            z = 1 / (1 + sigma + rho * g)
            gap = (sigma + rho * g) * z  # 1 - z
            after = slack + rho * gap  # 1 - rho z
            alpha = 1 / (1 + xi * gap)
            divisor = (1 - g) * after - sigma * xi * alpha * z * z
            factor = sigma * z * alpha * (1 - g) / (gap * divisor)
            log_first += cmath.log(factor)
            second = (second + sigma * z * alpha * xi * (gap - g) / divisor) / factor
            if abs(gap - g) <= 2e-16 * abs(gap):
                break
            g = gap
        return log_first, second

    empty = 0.0  # pi_00 / P(fixed point)
    if xi > 0:

        def left_side(y: float) -> float:
            z = 1 / (1 + rho + sigma - rho * y)
            return y * (1 - rho * z) - sigma * xi / (1 + xi * (1 - z)) * z * z

        from scipy.optimize import brentq

        zero = float(brentq(left_side, 0.0, 1 - fixed, xtol=1e-300))
        z = 1 / (1 + rho + sigma - rho * zero)
        log_first, second = from_fixed_point(complex(1 - z))
        # There the right-hand side vanishes, too: zero P(z)/(1-z) + xi pi_00 (zero - z) = 0.
        weight = zero / (1 - z)
        empty = weight / (xi * (z - zero) * math.exp(min(-log_first.real, 700.0)) - weight * second.real)
    step = 1e-100  # a complex step gives the derivative to full accuracy
    log_first, second = from_fixed_point(complex(0.0, -step))
    derivative = (log_first + cmath.log(1 + second * empty)).imag / step
    transfers = 1 / (phase_cycle(server) + 1 / gamma)
    blocked = transfers / gamma
    idle = server.slack / (1 + 1 / (gamma * phase_cycle(server)))
    idle_jobs = derivative * idle
    if xi == 0:
        return Moments((rho + idle_jobs) / (1 - rho), _waiting(server, transfers), transfers, idle)
    empty *= idle / (1 + second.real * empty) * math.exp(max(-log_first.real, -700.0))
    # Poisson's equation as in always_moments: psi has one value in phase 0, and another in all other phases.
    later, at_zero = blocked / server.timer_rate, (1 - blocked) / gamma
    in_zero = transfers / rate
    in_others = 1 - blocked - in_zero
    during = service * (at_zero * (in_zero - empty) + later * (in_others - (idle - empty))) - rate * (1 - blocked) * later
    jobs = (rho + idle_jobs + during) / idle  # 1 - rho - blocked
    external = _waiting(server, transfers) + (rate * (1 - blocked) + xi * transfers) / gamma
    return Moments(jobs, external, transfers, idle)


def _waiting(server: "StreamServer", transfers: float) -> float:
    """Mean phase: sum_j j P(phase j), where P(phase j) = (T / lambda) q^j and q = lambda / (lambda + tau)."""
    ratio = server.arrival_rate / server.timer_rate
    return transfers / server.arrival_rate * ratio * (1 + ratio)
