"""The distribution of the response time, first come first served, which the paper does not treat.

Tag a job on arrival. It finds i jobs inside and j outside with probability pi_{i,j} (Poisson arrivals see time
averages). The jobs behind it matter only through the r = K - 1 - j that still have to arrive to complete its batch.
Weighing every step of a path of (i, r) by its expected exp(-s t), and summing over all paths, gives the
Laplace-Stieltjes transform W*(s), which is inverted numerically.

Once transferred with n - 1 jobs ahead, the tagged job waits for n services. If transfers take time, every K-th arrival
during these services blocks the processor, and the transform of the n services is a sum of K geometric terms in n.

Before its transfer, the jobs inside only become fewer, because arrivals join the external queue. So a path has k services
and a arrivals, in any of C(a + k, k) orders, until the batch is complete or the internal queue is empty; the sum over paths
is then computed by matrix products. With one geometric term it is a recursion, for all numbers j found outside together.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft, ifft, next_fast_len
from scipy.special import xlogy

from penstock.errors import ConfigurationError, NotSolvableError
from penstock.queueing import parameter
from penstock.queueing.factor import expm1, log1p
from penstock.queueing.joint import Joint

if TYPE_CHECKING:
    from penstock.queueing.server import StreamServer

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

_MOST_STEPS = 4e9  # of the path sum, per evaluation of the distribution
_AT_ONCE = 5  # steps of a matrix product that take as long as one step of the recursion
_EULER_TERMS = 11
_PLAIN_TERMS = 20
_DAMPING = 18.4  # e^-18.4 = 1e-8 is the error of the inversion
_CLOSE = 1e-4  # relative size of the last Newton step; the next one would be about 1e-8
_MOST_GUESSES = 60


@dataclass(frozen=True)
class ResponseTime:
    """The steady-state response time of a job, from its arrival to the end of its service, in seconds."""

    server: "StreamServer"
    joint: Joint
    mean: float

    def transform(self, s: Complex) -> Complex:
        """W*(s) = E[exp(-s W)] at complex arguments with positive real parts, shape (n,)."""
        server, ready, blocked = self.server, self.joint.ready, self.joint.blocked
        modes, size = self._modes(), _finite(server.effective_batch_size)
        steps = len(s) * ready.size * (1 if modes == 1 else len(ready) / _AT_ONCE)
        if steps > _MOST_STEPS:
            raise NotSolvableError(
                f"The response-time distribution would take {steps:.1e} steps for batch_size {size}, "
                f"but at most {_MOST_STEPS:.0e} are allowed; use simulate()."
            )
        transfer = np.ones_like(s) if math.isinf(server.transfer_rate) else 1 / (1 + s / server.transfer_rate)
        if modes > 1:
            return _by_orders(server, ready, blocked, s, _served(server, modes, s, sum(ready.shape)))
        from penstock.queueing.steps import by_steps  # imported here because compiled code is slow to load

        at_each = transfer if size == 1 else np.ones_like(s)  # for K = 1 every arrival blocks the processor, else none does
        z = server.service_rate / (server.service_rate + s + server.arrival_rate * (1 - at_each))
        rates = (server.arrival_rate, server.service_rate, min(server.timer_rate, 1e300))
        return np.asarray(transfer * by_steps(ready, blocked, s, z, *rates, server.timer == "always", size))

    def _modes(self) -> int:
        """Number of geometric terms in the transform of n services, once the tagged job is in the internal queue."""
        server, size = self.server, _finite(self.server.effective_batch_size)
        if math.isinf(server.transfer_rate) or size == 1 or (size == 0 and server.timer == "idle"):
            return 1
        if server.timer == "always" and server.timer_rate > 0:
            raise NotSolvableError(
                "The response-time distribution cannot be computed for transfers that take time with "
                f"timer={server.timer!r}; use simulate()."
            )
        return size

    def survival(self, t: float) -> float:
        """P(W > t), to about 1e-8: Euler summation of the inversion integral (Abate and Whitt 1995)."""
        t = parameter.rate("t", t, zero=True, infinite=True)
        return float(t == 0) if t == 0 or math.isinf(t) else self._beyond(t)[0]

    def _beyond(self, t: float) -> tuple[float, float]:
        """P(W > t), and the density of W at t, both from the same values of the transform."""
        terms = np.arange(_PLAIN_TERMS + _EULER_TERMS + 1)
        s: Complex = (_DAMPING + 2j * np.pi * terms).astype(np.complex128) / (2 * t)
        transformed = self.transform(s)
        values = np.array([((1 - transformed) / s).real, transformed.real]) * np.where(terms % 2 == 0, 1.0, -1.0)
        values[:, 0] /= 2
        sums = np.cumsum(values, axis=1)[:, _PLAIN_TERMS:]
        mixing = np.array([math.comb(_EULER_TERMS, k) for k in range(_EULER_TERMS + 1)]) / 2.0**_EULER_TERMS
        beyond, density = math.exp(_DAMPING / 2) / t * (sums @ mixing)
        return min(1.0, max(0.0, float(beyond))), float(density)

    def quantile(self, p: float) -> float:
        """The time that a fraction ``p`` of jobs does not exceed, in seconds.

        Raises:
            ConfigurationError: p is below 1e-4 or above 1 - 1e-6.
            NotSolvableError: the server is too large for the path sum; simulate it.
        """
        if not 1e-4 <= parameter.fraction("p", p) <= 1 - 1e-6:
            raise ConfigurationError(f"p is {p!r}; give a fraction from 0.0001 to 0.999999.")
        low, high, t = 0.0, math.inf, self.mean
        for _ in range(_MOST_GUESSES):
            beyond, density = self._beyond(t)
            low, high = (t, high) if beyond > 1 - p else (low, t)
            # Newton's step on log P(W > t), which is nearly linear in t; if it leaves the bracket, bisect or double.
            step = beyond * math.log(beyond / (1 - p)) / density if beyond > 0 < density else math.nan
            guess, close = t + step, _CLOSE
            if not low < guess < high:
                guess, close = (low + high) / 2 if math.isfinite(high) else 2 * t, _CLOSE**2
            t, moved = guess, abs(guess - t)
            if moved <= close * t:
                return t
        raise NotSolvableError(
            f"The quantile of {p:g} does not converge, as where a server is very nearly saturated; use simulate()."
        )


def _finite(size: float) -> int:
    """The batch size as an integer; 0 if it is infinite."""
    return int(size) if math.isfinite(size) else 0


def _served(server: "StreamServer", modes: int, s: Complex, most: int) -> Complex:
    """E[exp(-s T)] of the time T of a transfer and then 0, 1, ... services, when every K-th arrival blocks the processor;
    shape (most + 1, n), by number of services and argument ``s``."""
    # Differences from 1 vanish when transfers are fast, so compute them from the logarithm of w.
    turn = log1p(s / server.transfer_rate)[:, None] / modes - 2j * np.pi * np.fft.fftfreq(modes)[None, :]  # -log w
    less, more = -expm1(turn), -expm1(-turn)  # 1 - 1 / w, and 1 - w
    z = server.service_rate / (server.service_rate + s[:, None] + server.arrival_rate * more)
    weights = (-s / (server.transfer_rate + s))[:, None] / less / modes
    served = np.empty((most + 1, len(s)), dtype=np.complex128)
    for n in range(most + 1):
        served[n] = weights.sum(axis=1)
        weights *= z
    return served


def _by_orders(server: "StreamServer", ready: Real, blocked: Real, s: Complex, served: Complex) -> Complex:
    """W*(s), summed over the states that a tagged job finds, and over the orders of arrivals and services before its transfer.

    For a timer that runs while the internal queue is empty, or never.
    """
    phases, levels = ready.shape
    rate, timer = server.arrival_rate + server.service_rate, min(server.timer_rate, 1e300)
    onward, serving = server.arrival_rate / rate, server.service_rate / rate
    fading = (rate / (rate + s))[None, :] ** np.arange(phases + levels)[:, None]  # E[exp(-s t)] by number of events
    orders = _orders(phases, levels, onward, serving)
    empty = server.arrival_rate + timer + s
    passed = (server.arrival_rate / empty)[None, :] ** np.arange(phases + 1)[:, None]
    emptied = passed + timer / empty * (1 - passed) / (1 - server.arrival_rate / empty)  # by number of arrivals still missing
    total = blocked @ served[1 : levels + 1] + ready[-1] @ served[phases : phases + levels]
    for outside in range(phases - 1):
        inside, ahead, missing = ready[outside], served[outside + 1 :], phases - 1 - outside
        ways = orders[:missing, : levels - 1]
        # Either the batch is complete while jobs are still inside, or the internal queue runs empty first.
        complete = _real(ways[-1:], _left(inside, ahead) * fading[: levels - 1])[0] * fading[missing]
        alone = fading[1 : missing + 1] * _real(ways, inside[1:, None] * fading[: levels - 1]) * emptied[missing:0:-1]
        total += onward * complete + ahead[0] * (inside[0] * emptied[missing] + serving * alone.sum(axis=0))
    return np.asarray(total)


def _orders(arrivals: int, services: int, onward: float, served: float) -> Real:
    """Binomial probabilities, shape (arrivals, services): of the first a + k events, a are arrivals and k are services."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, arrivals + services + 1)))])
    a, k = np.arange(arrivals)[:, None], np.arange(services)[None, :]
    shares = xlogy(a, onward) + xlogy(k, served)
    return np.asarray(np.exp(logs[a + k] - logs[a] - logs[k] + shares))


def _left(inside: Real, served: Complex) -> Complex:
    """Transform of the services after the transfer: entry k sums inside[k + m] served[m] over the m >= 1 jobs left inside."""
    levels = len(inside) - 1
    size = next_fast_len(2 * levels)
    present, ahead = fft(inside[1:], size), fft(served[1 : levels + 1].conj(), size, axis=0).conj()
    return np.asarray(ifft(present[:, None] * ahead, axis=0)[:levels])


def _real(matrix: Real, values: Complex) -> Complex:
    """The product of a real matrix and complex columns, without making the matrix complex."""
    columns = np.ascontiguousarray(values)
    return (matrix @ columns.view(np.float64)).view(np.complex128)
