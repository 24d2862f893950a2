"""The limit of an infinite batch size, where the zero conditions become one functional equation.

Without a corner at K, P(w) = sum pi_{0,j} w^j obeys an equation that ties P(w) to P(zeta(w)), with zeta a fractional
linear map that draws every point to a fixed one. Iterating it is the solution.
"""

import math

import numpy as np
from scipy.optimize import brentq

from penstock.queueing.boundary import phase_cycle
from penstock.queueing.moments import Moments
from penstock.queueing.server import StreamServer


def infinite_batch(server: StreamServer) -> Moments:
    """Means of a stable server whose batch size is infinite: only the timer, or an idle processor, makes transfers."""
    return _idle(server) if server.timer == "idle" else _always(server)


def _idle(server: StreamServer) -> Moments:
    """(rho(1-w) + sigma) P(w) = sigma (1 - alpha) pi_00 + sigma alpha P(zeta(w)), from w = 0 to the fixed point 1."""
    rho, xi, rate = server.load, server.arrivals_per_transfer_time, server.arrival_rate
    gamma, sigma = server.transfer_rate, server.timer_rate / server.service_rate
    # s = (1-w)/(1-rho w) is multiplied by rho at each step: 1 - w_n = (1-rho) s / (1 - rho s), s = rho^n.
    steps = np.arange(1 + math.ceil(45 / -math.log(rho)))
    s = rho**steps
    below_one = server.slack * s / (1 - rho * s)  # slack is 1 - rho here, to full accuracy
    past = (1 + rho * below_one) / (1 + rho * (1 + xi) * below_one)  # alpha(zeta(w_n))
    damped = 1 / (1 + rho * below_one / sigma)
    # C(w) = sigma (P(w) - pi_00): C(w) = damped (alpha C(zeta) - rho (1-w) pi_00), and C(0) = 0.
    log_tail = np.cumsum(np.log(past * damped)[::-1])[::-1]  # log of the product from n on
    with np.errstate(over="ignore"):
        timed_per_empty = float(
            (rho * below_one * damped * np.exp(np.append(-log_tail[1:], 0.0)) / (past * damped)).sum()
        )
    # Everything relative to the rate of transfers T = tau (P(1) - pi_00), then normalised by (41).
    empty = 1 / (server.service_rate * timed_per_empty)  # pi_00 / T
    idle = empty + 1 / server.timer_rate  # P(1) / T
    transfers = server.slack / (idle + 1 / gamma)
    timed_jobs = (rate * idle + xi * rho) * transfers / server.slack  # from the equation's derivative at w = 1
    timed_pairs = (
        2 * timed_jobs * (rho / sigma + rho**2 * (1 + xi)) + 2 * rho**2 * xi * (1 + xi) * transfers
    ) / ((1 - rho) * (1 + rho))  # fmt: skip
    idle_jobs = timed_jobs / server.timer_rate
    jobs = (rho + xi * transfers / gamma + idle_jobs + timed_jobs / gamma) / server.slack
    external = timed_pairs / (2 * rate) + (rate * (1 - transfers / gamma) + xi * transfers) / gamma
    return Moments(jobs, external, transfers, idle * transfers)


def _always(server: StreamServer) -> Moments:
    """(y(1-rho z) - sigma xi alpha z^2) P(y) = sigma z alpha (y P(z)/(1-z) + xi pi_00 (y - z)), z = zeta(y)."""
    rho, xi, rate, service = server.load, server.arrivals_per_transfer_time, server.arrival_rate, server.service_rate
    gamma, sigma = server.transfer_rate, server.timer_rate / server.service_rate

    def zeta(y: complex) -> complex:
        return 1 / (1 + rho + sigma - rho * y)

    def alpha(z: complex) -> complex:
        return 1 / (1 + xi * (1 - z))

    rest = math.sqrt(((1 - rho) + sigma) ** 2 + 4 * rho * sigma)
    fixed = 2 / (1 + rho + sigma + rest)

    def from_fixed_point(y: complex) -> tuple[complex, complex]:
        """P(y) = first P(fixed point) + second pi_00."""
        first, second = 1.0 + 0j, 0j
        while True:
            z = zeta(y)
            left = y * (1 - rho * z) - sigma * xi * alpha(z) * z * z
            second += first * sigma * z * alpha(z) * xi * (y - z) / left
            first *= sigma * z * alpha(z) * y / ((1 - z) * left)
            if abs(y - fixed) < 1e-17 or z == y:
                return first, second
            y = z

    empty = 0.0  # pi_00 / P(fixed point)
    if xi > 0:

        def left_side(y: float) -> float:
            z = zeta(y).real
            return (y * (1 - rho * z) - sigma * xi * alpha(z) * z * z).real

        zero = float(brentq(left_side, 0.0, fixed, xtol=1e-300))
        first, second = from_fixed_point(zeta(zero))
        # zero P(z)/(1-z) + xi pi_00 (zero - z) = 0 there
        weight = zero / (1 - zeta(zero))
        empty = (weight * first / (xi * (zeta(zero) - zero) - weight * second)).real
    step = 1e-100  # a complex step gives the derivative to full accuracy
    first, second = from_fixed_point(1 + 1j * step)
    total = first + second * empty
    transfers = 1 / (phase_cycle(server) + 1 / gamma)
    blocked = transfers / gamma
    idle = server.slack / (1 + 1 / (gamma * phase_cycle(server)))
    idle_jobs = total.imag / step / total.real * idle
    if xi == 0:
        return Moments((rho + idle_jobs) / (1 - rho), _waiting(server, transfers), transfers, idle)
    empty *= idle / total.real
    # Poisson's equation as in always_moments: psi is the same in every phase but 0.
    later, at_zero = blocked / server.timer_rate, (1 - blocked) / gamma
    in_zero = transfers / rate
    in_others = 1 - blocked - in_zero
    during = (
        service * (at_zero * (in_zero - empty) + later * (in_others - (idle - empty))) - rate * (1 - blocked) * later
    )
    jobs = (rho + idle_jobs + during) / (1 - rho - blocked)
    external = _waiting(server, transfers) + (rate * (1 - blocked) + xi * transfers) / gamma
    return Moments(jobs, external, transfers, idle)


def _waiting(server: StreamServer, transfers: float) -> float:
    # sum_j j P(phase j), with P(phase j) = (T / lambda) q^j and q = lambda / (lambda + tau)
    ratio = server.arrival_rate / server.timer_rate
    return transfers / server.arrival_rate * ratio * (1 + ratio)
