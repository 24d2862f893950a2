"""The ``auto`` method: the probabilities of an empty internal queue, by arithmetic without subtractions in a ring.

The paper finds pi_{0,j}, the probabilities of an empty internal queue with j jobs outside, from K zeros of a
determinant, and stops near K = 25 because powers of the zeros make an ill-conditioned matrix. Modulo
omega(w) = prod (w - w_k) the same conditions are the balance equations of a Markov chain on the K phases, with
nothing but positive numbers in them; docs/background/queueing.md derives them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lu_factor, lu_solve

from penstock.errors import NotSolvableError
from penstock.queueing.factor import Complex, descent, expm1, log1p
from penstock.queueing.ring import PhaseRing

if TYPE_CHECKING:
    from penstock.queueing.server import StreamServer

Real = NDArray[np.float64]

_DENSE = 1000  # up to this many phases a dense factorisation is faster than iteration
_DENSE_IF_STALLED = 8000  # up to this many phases it is affordable if iteration stalls
_LARGEST = 30_000  # phases; for more, the rows of ArrivalsDuringServices would not fit into memory
_BEYOND_DOUBLES = 46.0  # -log of a probability that is lost when added to 1 in double precision


@dataclass(frozen=True)
class Boundary:
    """Probabilities of the states with an empty internal queue and the processor ready.

    Args:
        probabilities: pi_{0,j}, shape (K,), or shorter if the others are negligible.
        timer_flows: tau pi_{0,j} for j >= 1, in timer transfers per second (0 at j = 0); finite where tau is infinite.
    """

    probabilities: Real
    timer_flows: Real

    def normalised(self, server: "StreamServer") -> "Boundary":
        """Scale so that all states of the server together have probability 1: equations (17), (52)."""
        total = self.probabilities.sum()
        if server.timer == "always":
            # The external queue does not depend on the internal queue, so the fraction of blocked time is known.
            target = server.slack / (1 + 1 / (server.transfer_rate * phase_cycle(server)))
        else:
            shortfall = 1 - np.arange(len(self.probabilities)) / server.effective_batch_size  # (K - j) / K
            blocked = server.arrivals_per_transfer_time / server.effective_batch_size * total
            total += blocked + (shortfall * self.timer_flows).sum() / server.transfer_rate
            target = server.slack
        scale = target / total
        return Boundary(self.probabilities * scale, self.timer_flows * scale)


def phase_cycle(server: "StreamServer") -> float:
    """Mean time from one transfer's end to the next one's start when the timer always runs, in seconds."""
    return server.busy_jobs_per_transfer / server.arrival_rate


def solve_boundary(server: "StreamServer") -> Boundary:
    """Find the boundary probabilities of a stable server.

    Raises:
        NotSolvableError: more than 30,000 phases are needed, or the iteration stalled.
    """
    if server.effective_batch_size == 1:
        return Boundary(np.ones(1), np.zeros(1)).normalised(server)
    if server.timer == "always" and server.timer_rate > 0:
        return _always(server).normalised(server)
    return (_never_full(server) or _idle(server)).normalised(server)


def _never_full(server: "StreamServer") -> Boundary | None:
    """The boundary of a server with a smaller batch, if even that is never full and so K makes no difference; else ``None``."""
    if server.timer_rate == 0:
        return None
    # About lambda / tau jobs come until the timer fires, rho times as many during their services, and so on.
    scale = server.arrival_rate / (server.timer_rate * (1 - server.load))
    size = 64
    while size < server.batch_size / 2 and (size <= _DENSE or math.isinf(server.batch_size)):
        smaller = replace(server, batch_size=size)
        if size > 4 * scale and smaller.slack > 1e-3:
            boundary = _idle(smaller)
            weights = boundary.probabilities + boundary.timer_flows / server.service_rate
            # The tail falls geometrically: a fraction that is beyond half of the size is squared beyond the size.
            if weights[size // 2 :].max() <= 1e-13 * weights.sum():
                return boundary
        size *= 2
    return None


def _require_size(size: float) -> int:
    if size > _LARGEST:
        raise NotSolvableError(
            f"This server has {size:g} phases, but method='auto' takes at most {_LARGEST}; "
            "use simulate(), or give a smaller batch_size or a larger timer_rate."
        )
    return int(size)


# --- the timer that runs while the internal queue is empty ------------------------------------------------------------


def _idle(server: "StreamServer") -> Boundary:
    """Return the probabilities pi_{0,j} that the internal queue is empty and j jobs wait, up to a common factor.

    They solve a linear system over the K phases j. It is solved iteratively where K is large, and directly otherwise, or if the
    iteration does not converge.
    """
    size = _require_size(server.batch_size)
    rho, xi = server.load, server.arrivals_per_transfer_time
    sigma = server.timer_rate / server.service_rate
    ring = PhaseRing(_idle_descent(size, rho, xi, server.slack))
    if sigma == 0:
        # Nothing but arrivals moves the phase: (1 - w) P = 0 modulo omega, so P = omega / (w - 1).
        return Boundary(np.cumsum(ring.phi), np.zeros(size))
    onward = 0.0 if math.isinf(sigma) else rho / (rho + sigma)  # p: the next job arrives before the timer fires
    fires = 1 - onward if onward < 0.5 else sigma / (rho + sigma)
    visits = _idle_iterative(ring, rho, xi, onward, fires) if size > _DENSE else None
    if visits is None:
        visits = _idle_dense(ring, rho, xi, onward, fires)
    stay = np.full(size, fires / server.timer_rate if math.isfinite(sigma) else 0.0)  # seconds, 1 / (lambda + tau)
    stay[0] = 1 / server.arrival_rate
    flows = fires * visits
    flows[0] = 0.0
    return Boundary(visits * stay, flows)


def _idle_descent(size: int, rho: float, xi: float, slack: float) -> Real:
    """Coefficients of phi for the paper's timer, where F = alpha(zeta) zeta^K."""

    def log_ascent(t: Complex) -> Complex:
        x = expm1(t)
        log_step = -size * (t + log1p(-rho * x))
        if xi > 0:
            log_step += log1p(-rho * x) - log1p(-rho * (1 + xi) * x)
        return np.asarray(np.log(-expm1(log_step)))

    return descent(size, log_ascent, math.log1p(outer_distance(size, rho, xi, slack)))


def outer_distance(size: int, rho: float, xi: float, slack: float) -> float:
    """w - 1 for the smallest zero w > 1 of w^K = F(w); the internal queue's tail decays with 1 - rho (w - 1)."""
    if xi == 0:
        return slack / rho

    def log_ratio(x: float) -> float:  # log(w^K / F(w)) at w = 1 + x
        return size * math.log1p(x) + (size - 1) * math.log1p(-rho * x) + math.log1p(-rho * (1 + xi) * x)

    return _positive_zero(log_ratio, 1 / (rho * (1 + xi)))


def _positive_zero(function: Callable[[float], float], pole: float) -> float:
    """The zero in (0, pole) of a concave function that is 0 at 0, rises, and falls to -infinity at the pole."""
    from scipy.optimize import brentq

    low = pole / 2
    while function(low) <= 0:
        low /= 2
    gap = pole - low
    while function(pole - gap) > 0:
        gap /= 2
        if pole - gap == pole:
            return pole
    return float(brentq(function, low, pole - gap, xtol=1e-300, rtol=8.9e-16))


def _ridden_along(ring: PhaseRing, polynomial: Real, zero: float, c: float, xi: float) -> Real:
    """Multiply a polynomial by alpha(zeta(w)), equation (37): jobs that arrive during a transfer are moved with it."""
    if xi == 0:
        return polynomial
    riders = ring.divide(polynomial, (1 + xi) * (1 + c) - xi * zero, (1 + xi) * c / ring.inner_zero)
    return (polynomial + xi * zero * riders) / (1 + xi)


def _stationary(transition: Real, left: Real) -> Real:
    """The row vector x with x A = x and x . left = 1, where A is ``transition`` and A left = left."""
    size = len(left)
    transition = transition / ((transition @ left) / left)[:, None]  # undo rounding: a near-singular system amplifies it
    system = np.eye(size) - transition.T
    system += left[None, :] / size
    factors = lu_factor(system, overwrite_a=True, check_finite=False)
    return np.asarray(lu_solve(factors, np.full(size, 1 / size), check_finite=False))


def _idle_dense(ring: PhaseRing, rho: float, xi: float, onward: float, fires: float) -> Real:
    """Relative numbers of visits to the phases, from the K x K transition matrix; row i is for a transfer from phase i."""
    size = ring.size
    first = np.zeros(size)
    first[0] = 1.0
    transition = ring.powers(_ridden_along(ring, first, 1.0, rho, xi), 1 + rho, rho)
    transition *= fires
    transition[0] = 0.0
    steps = np.arange(size - 1)
    transition[steps, steps + 1] += onward
    transition[0, 1] = 1.0
    transition[-1] += onward * ring.phi
    return _stationary(transition, np.ones(size))


def _idle_iterative(ring: PhaseRing, rho: float, xi: float, onward: float, fires: float) -> Real | None:
    """Relative numbers of visits to the phases, by iteration without a matrix; ``None`` if it stalls."""
    from penstock.queueing.services import ArrivalsDuringServices

    size = ring.size
    services = ArrivalsDuringServices(size, rho)
    first = np.zeros(size)
    first[0] = 1.0
    from_one = ring.divide(ring.shift(first), 1.0, onward)

    def visits(starts: Real) -> Real:
        # (1 - p w) x = starts + (1 - p) x_0 w: in phase 0 no timer runs, so the next event is always an arrival.
        plain = ring.divide(starts, 1.0, onward)
        at_zero = plain[0] / (fires * from_one[1:].sum())  # the divisor is 1 - (1 - p) [from_one]_0, without the subtraction
        return np.asarray(plain + fires * at_zero * from_one)

    def next_starts(starts: Real) -> Real:
        fired = fires * visits(starts)
        fired[0] = 0.0
        return _ridden_along(ring, ring.reduce(services.compose(fired)), 1.0, rho, xi)

    starts = _fixed_point(next_starts, np.ones(size))
    return None if starts is None else visits(starts)


def _fixed_point(advance: Callable[[Real], Real], left: Real) -> Real | None:
    """The vector x with advance(x) = x and x . left = 1, by GMRES; the function ``advance`` preserves x . left.

    Returns ``None`` if GMRES stalls and a dense factorisation is affordable instead.
    """
    from scipy.sparse.linalg import LinearOperator, gmres

    size = len(left)
    source = np.full(size, 1 / size)
    source /= source @ left
    for _ in range(3):
        source = advance(source)  # makes the initial vector smooth

    def residual(x: Real) -> Real:
        return np.asarray(x - advance(x) + source * (left @ x))

    operator = LinearOperator((size, size), matvec=residual, dtype=np.float64)
    most_steps = 250 if size <= _DENSE_IF_STALLED else 1000
    x, _ = gmres(operator, source, x0=source, rtol=1e-13, atol=0, restart=min(size, 250), maxiter=most_steps // 250)
    error = np.abs(residual(x) - source).sum() / np.abs(x).sum()
    if error < 1e-12:
        return np.asarray(x)
    if size <= _DENSE_IF_STALLED:
        return None
    raise NotSolvableError(
        f"The iteration over {size} phases stalled at a residual of {error:.1e}; "
        "use method='iterative', or a smaller batch_size."
    )


# --- the timer that always runs -------------------------------------------------------------------------------------


def _always(server: "StreamServer") -> Boundary:
    """The boundary probabilities for the timer that always runs, not normalised."""
    rho, xi = server.load, server.arrivals_per_transfer_time
    sigma = server.timer_rate / server.service_rate
    # A phase above j is reached with probability below q^(j-1), so phases beyond some j are negligible.
    per_phase = math.log1p(server.timer_rate / server.arrival_rate)
    size = _require_size(min(server.batch_size, 3 + math.ceil(_BEYOND_DOUBLES / per_phase)))
    # z = 1/(1 + rho + sigma - rho y) has the fixed point y0 below 1.
    root = math.sqrt(((1 - rho) + sigma) ** 2 + 4 * rho * sigma)
    zero = 2 / (1 + rho + sigma + root)
    below_one = 2 * sigma / (root + 1 - rho + sigma)  # 1 - y0
    ring = PhaseRing(_always_descent(size, rho, xi, sigma, zero, below_one), zero)
    c = rho * zero * zero

    def over_one_less_rho_z(polynomial: Real) -> Real:  # sigma z alpha / (1 - rho z)
        moved = ring.divide(polynomial, 1 - rho * zero + c, c / zero)
        return sigma * zero * _ridden_along(ring, moved, zero, c, xi)

    def over_one_less_z(polynomial: Real) -> Real:
        return polynomial + zero * ring.divide(polynomial, below_one + c, c / zero)

    weights: Real = np.power(zero, np.arange(size, dtype=float))  # the ring scales its coefficients by these
    if size > _DENSE:
        # z^j = (1 + sigma)^-j (1 + c (1 - y))^-j, c = rho / (1 + sigma): services before the timer fires.
        from penstock.queueing.services import ArrivalsDuringServices

        services = ArrivalsDuringServices(size, rho / (1 + sigma))
        before_timer = np.exp(-math.log1p(sigma) * np.arange(size))

        def advance(probabilities: Real) -> Real:
            scaled = probabilities * weights
            series = services.compose(probabilities * before_timer)
            inner = over_one_less_z(ring.reduce(series * zero ** np.arange(len(series))))
            if xi > 0:
                inner[0] += xi * scaled[0]
                inner += xi * ring.divide(np.append(scaled[1:], 0.0), 1 + c, c / zero)
            return np.asarray(over_one_less_rho_z(inner) / weights)

        iterated = _fixed_point(advance, weights)
        if iterated is not None:
            return _with_flows(iterated, server)
    first = np.zeros(size)
    first[0] = 1.0
    direct = over_one_less_rho_z(first)
    transition = ring.powers(over_one_less_z(direct), 1 + c, c / zero)
    if xi > 0:
        transition[0] += xi * direct
        blocked = xi * ring.divide(direct, 1 + c, c / zero)
        for j in range(1, size):
            transition[j] += blocked
            blocked = ring.shift(blocked) / zero
    transition *= weights[:, None] / weights[None, :]
    return _with_flows(_stationary(transition, weights), server)


def _with_flows(probabilities: Real, server: "StreamServer") -> Boundary:
    flows = server.timer_rate * probabilities
    flows[0] = 0.0
    return Boundary(probabilities, flows)


def _always_descent(size: int, rho: float, xi: float, sigma: float, zero: float, below_one: float) -> Real:
    """Coefficients of phi for the timer that always runs; ``zero`` is y0 and ``below_one`` is 1 - y0."""
    c = rho * zero * zero
    share = 1 / (1 + xi * below_one)  # alpha at y0: the full batches' part of F / y^K there; the timer's is 1 - share

    def ascent(t: Any, expm1: Any, log1p: Any) -> Any:
        # 1 - F / y^K at y = y0 exp(t), from the logarithms of both parts of F, relative to t = 0
        e = expm1(t)
        log_v = -log1p(-c * e)  # z / y0
        if xi == 0:
            return -expm1(size * (log_v - t))
        log_alpha = -log_v - log1p(-c * e * (1 + xi) * share)
        full = log_alpha + size * (log_v - t)
        timer = log_alpha + log_v - log1p(-c * e / (1 - rho * zero)) - t
        return -share * expm1(full) - (1 - share) * expm1(timer)

    def on_the_axis(x: float) -> float:
        with np.errstate(over="ignore", divide="ignore"):  # -infinity near the pole
            return float(ascent(x, np.expm1, np.log1p))

    # F has the pole of alpha, and the pole of 1 / (1 - rho z).
    pole = min(1 / (c * (1 + xi) * share), (1 - rho * zero) / c if xi > 0 else math.inf)
    outer = _positive_zero(on_the_axis, math.log1p(pole * (1 - 1e-15)))
    return descent(size, lambda t: np.asarray(np.log(ascent(t, expm1, log1p))), outer, zero)
