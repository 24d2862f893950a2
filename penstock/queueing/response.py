"""How long a job stays, first come first served: the distribution of the response time, of which the paper has no word.

Tag a job on arrival. It finds i jobs inside and j outside with probability pi_{i,j} (Poisson arrivals see time
averages). From there its fate depends on the jobs behind it only through the r = K - 1 - j that still have to come to
complete its batch, and on time through a factor exp(-s t); summing over all paths of (i, r) gives the
Laplace-Stieltjes transform W*(s), which is inverted numerically.

Once transferred with n - 1 jobs ahead, the tagged job waits for n services. Where transfers take time, every K-th
arrival meanwhile blocks the processor: then the transform of those n services is a sum of K geometric terms in n.
"""

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.optimize import brentq

from penstock.errors import ConfigurationError, NotSolvableError
from penstock.queueing import parameter
from penstock.queueing.joint import Joint
from penstock.queueing.server import StreamServer

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

_MOST_STEPS = 4e9  # of the path sum, per evaluation of the distribution
_EULER_TERMS = 11
_PLAIN_TERMS = 20
_DAMPING = 18.4  # e^-18.4 = 1e-8 is the error of the inversion


@dataclass(frozen=True)
class ResponseTime:
    """The steady-state response time of a job, from its arrival to the end of its service, in seconds."""

    server: StreamServer
    joint: Joint
    mean: float

    def transform(self, s: Complex) -> Complex:
        """W*(s) = E[exp(-s W)] at complex arguments with positive real parts, shape (n,)."""
        server = self.server
        instant = math.isinf(server.transfer_rate)
        size = int(server.effective_batch_size) if math.isfinite(server.effective_batch_size) else 0
        if instant or size == 1 or (size == 0 and server.timer == "idle"):
            modes = 1  # once the tagged job is inside, no transfer stops the processor, or every arrival does
        elif server.timer == "always" and server.timer_rate > 0:
            raise NotSolvableError(
                "The response-time distribution has no transform here for transfers that take time with "
                f"timer={server.timer!r}; use simulate()."
            )
        else:
            modes = size
        steps = len(s) * modes * self.joint.ready.size
        if steps > _MOST_STEPS:
            raise NotSolvableError(
                f"The response-time distribution would take {steps:.1e} steps for batch_size {size}, "
                f"of which {_MOST_STEPS:.0e} are allowed; use simulate()."
            )
        blocked = np.ones_like(s) if instant else server.transfer_rate / (server.transfer_rate + s)
        w = blocked[:, None] ** (1 / modes) * np.exp(2j * np.pi * np.arange(modes) / modes)[None, :]
        if instant or size == 0:
            w = np.ones_like(w)
        z = server.service_rate / (server.service_rate + s[:, None] + server.arrival_rate * (1 - w))
        weights = np.ones_like(w) if instant or size == 0 else ((1 - 1 / blocked)[:, None] / (1 - 1 / w)) / modes
        weights = weights * blocked[:, None]
        arguments = np.repeat(s, modes)
        sums = _paths(
            self.joint.ready,
            self.joint.blocked,
            arguments,
            z.ravel(),
            server.arrival_rate,
            server.service_rate,
            min(server.timer_rate, 1e300),
            server.timer == "always",
            size,
        )
        return np.asarray((sums.reshape(len(s), modes) * weights).sum(axis=1))

    def survival(self, t: float) -> float:
        """P(W > t), to about 1e-8: Euler summation of the inversion integral (Abate and Whitt 1995)."""
        t = parameter.rate("t", t, zero=True, infinite=True)
        if t == 0 or math.isinf(t):
            return float(t == 0)
        terms = np.arange(_PLAIN_TERMS + _EULER_TERMS + 1)
        s: Complex = (_DAMPING + 2j * np.pi * terms).astype(np.complex128) / (2 * t)
        values = ((1 - self.transform(s)) / s).real
        signs = np.where(terms % 2 == 0, 1.0, -1.0)
        values = values * signs
        values[0] /= 2
        partial = np.cumsum(values)[_PLAIN_TERMS:]
        mixing = np.array([math.comb(_EULER_TERMS, k) for k in range(_EULER_TERMS + 1)]) / 2.0**_EULER_TERMS
        return float(np.clip(np.exp(_DAMPING / 2) / t * (partial @ mixing), 0.0, 1.0))

    def quantile(self, p: float) -> float:
        """The time that a fraction ``p`` of jobs does not exceed, in seconds.

        Raises
        ------
        ConfigurationError: p is below 1e-4 or above 1 - 1e-6.
        NotSolvableError: the server is too large for the path sum; simulate it.
        """
        if not 1e-4 <= parameter.fraction("p", p) <= 1 - 1e-6:
            raise ConfigurationError(f"p is {p!r}; give a fraction from 0.0001 to 0.999999.")
        low = high = self.mean
        while self.survival(high) > 1 - p:
            low, high = high, 2 * high
        while self.survival(low) <= 1 - p:
            low, high = low / 2, low
        return float(brentq(lambda t: self.survival(t) - (1 - p), low, high, rtol=1e-7, xtol=1e-300))


@njit(cache=True)
def _paths(ready, blocked, s, z, arrival, service, timer, always, size):  # type: ignore[no-untyped-def]
    # For each pair (s, z): the sum over what a tagged job finds, of E[exp(-s (time to its transfer's start)) z^n],
    # where n counts it and the jobs ahead of it when the transfer starts.
    phases, levels = ready.shape
    result = np.empty(len(s), dtype=np.complex128)
    for pair in range(len(s)):
        s_, z_ = s[pair], z[pair]
        timed = timer if always else 0.0
        leave = arrival + service + timed + s_
        leave_empty = arrival + timer + s_
        onward, served, fired = arrival / leave, service / leave, timed / leave
        onward_empty, fired_empty = arrival / leave_empty, timer / leave_empty
        total = 0j
        value = z_
        for n in range(levels):
            total += blocked[n] * value
            value *= z_
        mass = np.zeros(levels, dtype=np.complex128)
        position = z_  # z^(j + 1)
        for j in range(phases):
            for i in range(levels):
                mass[i] += ready[j, i] * position
            if j == size - 1:
                break  # the tagged job completes the batch
            # Services until the next arrival or the timer; then one arrival.
            visits = 0j
            sent = 0j
            for i in range(levels - 1, 0, -1):
                visits = mass[i] + served * visits
                sent = sent * z_ + visits
                mass[i] = onward * visits
            empty = mass[0] + served * visits
            total += fired * sent * z_ + fired_empty * empty
            mass[0] = onward_empty * empty
            position *= z_
        if size > 0:
            inside = 0j
            for i in range(levels - 1, -1, -1):
                inside = inside * z_ + mass[i]
            total += inside
        result[pair] = total
    return result
