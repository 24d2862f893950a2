"""The joint distribution of both queues, from the boundary probabilities through generating functions.

On the unit circle g_j(z) = sum_i pi_{i,j} z^i follows from g_{j-1}(z) by a factor of modulus 1 or less (equations (15)
and (36)), so rounding errors do not grow; a discrete Fourier transform turns each g_j back into probabilities.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from penstock.errors import NotSolvableError
from penstock.queueing.boundary import Boundary

if TYPE_CHECKING:
    from penstock.queueing.server import StreamServer

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

_NEGLIGIBLE = 1e-10
_ROUNDED = 1e-8
"""Rounding leaves less than this beyond the levels of a table."""
_LARGEST_TABLE = 50_000_000  # numbers


@dataclass(frozen=True)
class Joint:
    """Steady-state probabilities of all states but those that are negligible.

    Args:
        ready: pi_{i,j}, shape (phases, levels), indexed [j, i]: j jobs outside, i inside, the processor ready.
        blocked: r_n, shape (levels,): n jobs in both queues, a transfer under way.
    """

    ready: Real
    blocked: Real

    @property
    def jobs(self) -> Real:
        """P(n jobs present), shape (phases + levels,)."""
        phases, levels = self.ready.shape
        present = np.zeros(phases + levels)
        present[:levels] = self.blocked
        for j in range(phases):
            present[j : j + levels] += self.ready[j]
        return present


def joint_distribution(server: "StreamServer", boundary: Boundary) -> Joint:
    """Compute pi_{i,j} and r_n, to about 1e-11, up to a tail of probability below 1e-10; near saturation, where rounding
    hides such a tail, below 1e-8.

    Raises:
        NotSolvableError: the table would hold more than 50 million numbers.
    """
    phases = len(boundary.probabilities)
    levels = 1 << math.ceil(math.log2(4 * phases + 16))
    before, last = math.inf, None
    while True:
        if phases * levels > _LARGEST_TABLE:
            raise NotSolvableError(
                f"The joint distribution of {phases} phases and more than {levels // 2} levels does not fit into memory; "
                "use simulate() for this server."
            )
        ready, blocked = _tables(server, boundary, levels)
        beyond = abs(ready[:, levels // 2 :].sum()) + abs(blocked[levels // 2 :].sum())
        if beyond < _NEGLIGIBLE:
            return _cut(ready, blocked, _NEGLIGIBLE)
        if last is not None and before < _ROUNDED and beyond > before / 2:  # what is left is rounding
            return _cut(*last, 2 * before)
        before, last = beyond, (ready, blocked)
        levels *= 2


def _cut(ready: Real, blocked: Real, negligible: float) -> Joint:
    """Leave out the highest levels, as far as their probability is negligible."""
    half = ready.shape[1] // 2
    tail = np.cumsum((np.abs(ready).sum(axis=0) + np.abs(blocked))[:half][::-1])[::-1]
    count = int((tail > negligible).sum())
    return Joint(np.maximum(ready[:, :count], 0.0), np.maximum(blocked[:count], 0.0))


def _tables(server: "StreamServer", boundary: Boundary, points: int) -> tuple[Real, Real]:
    """Arrays ``ready`` and ``blocked`` of :class:`Joint`, with ``points`` levels, not yet cut off."""
    # Take z half a step off the real axis, because at z = 1 both sides of the equations vanish; `back` undoes the offset.
    offset = np.pi / points
    z = np.exp(1j * (offset + 2 * np.pi * np.arange(points // 2) / points))
    rate, service = server.arrival_rate, server.service_rate
    pi, flows = boundary.probabilities, boundary.timer_flows
    phases = len(pi)
    always = server.timer == "always" and server.timer_rate > 0 and phases > 1
    full = math.isfinite(server.effective_batch_size) and phases == server.effective_batch_size
    down = service * (1 - 1 / z)
    # Per phase, g_j = onward g_{j-1} + term_j.
    leave = rate + down + (server.timer_rate if always else 0.0)
    onward = rate / leave
    terms = [(down * p - (0 if always else f)) / leave for p, f in zip(pi, flows, strict=True)]
    # Transfers started, as a generating function of the number of jobs: started = base + scale g_0.
    factor = np.ones_like(z)  # g_j = factor g_0 + constant
    constant = np.zeros_like(z)
    base = np.zeros_like(z)
    scale = np.zeros_like(z)
    power = np.ones_like(z)
    for j in range(1, phases):
        power = power * z
        factor, constant = onward * factor, onward * constant + terms[j]
        if always:
            base += server.timer_rate * power * constant
            scale += server.timer_rate * power * factor
        else:
            base += flows[j] * power
    if full:
        base += rate * power * z * constant
        scale += rate * power * z * factor
    past = 1 / (1 + server.arrivals_per_transfer_time * (1 - z))  # alpha(z)
    # (lambda + mu (1 - 1/z)) g_0 = mu (1 - 1/z) pi_00 + alpha (base + scale g_0)
    g = (down * pi[0] + past * base) / (rate + down - past * scale)
    started = base + scale * g

    def back(values: Complex) -> Real:
        # The values are at exp(i (offset + 2 pi k / points)), k < points / 2; those at the other k are their conjugates.
        circle = np.concatenate([values, values[::-1].conj()])
        rotated = np.fft.fft(circle) / points
        return np.asarray((rotated * np.exp(-1j * offset * np.arange(points))).real)

    blocked = back(started * past / server.transfer_rate)
    ready = np.empty((phases, points))
    ready[0] = back(g)
    for j in range(1, phases):
        g = onward * g + terms[j]
        ready[j] = back(g)
    return ready, blocked
