"""What a server does in the long run: numbers present, transfers, costs, times and their distributions."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigurationError, NotSolvableError
from penstock.queueing import parameter
from penstock.queueing.boundary import Boundary, solve_boundary
from penstock.queueing.chain import solve_chain
from penstock.queueing.iterative import solve_iterative
from penstock.queueing.joint import Joint, joint_distribution
from penstock.queueing.limits import infinite_batch
from penstock.queueing.moments import Moments, moments
from penstock.queueing.response import ResponseTime
from penstock.queueing.server import StreamServer
from penstock.queueing.spectral import solve_spectral

Real = NDArray[np.float64]

METHODS = ("auto", "spectral", "iterative", "chain")


@dataclass(frozen=True)
class SteadyState:
    """The steady state of a :class:`StreamServer`.

    Parameters
    ----------
    server: the server that was solved.
    method: how; one of ``"auto"``, ``"spectral"``, ``"iterative"``, ``"chain"``.
    mean_jobs: L, the mean number of jobs in both queues (equations (18), (43)).
    transfers_per_second: T (equations (8), (42)).
    mean_external: mean number of jobs in the external queue, those that a transfer is moving included.
    idle_probability: the internal queue is empty and the processor is not blocked.
    """

    server: StreamServer
    method: str
    mean_jobs: float
    transfers_per_second: float
    mean_external: float
    idle_probability: float
    _boundary: Boundary | None = field(default=None, repr=False)

    @property
    def mean_internal(self) -> float:
        """Mean number of jobs in the internal queue, the one in service included."""
        return self.mean_jobs - self.mean_external

    @property
    def mean_response_time(self) -> float:
        """Mean time from a job's arrival to the end of its service, in seconds (Little's law)."""
        return self.mean_jobs / self.server.arrival_rate

    @property
    def utilisation(self) -> float:
        """Fraction of time that the processor serves."""
        return self.server.load

    @property
    def blocked_fraction(self) -> float:
        """Fraction of time that the processor is blocked by a transfer."""
        return self.transfers_per_second / self.server.transfer_rate

    @property
    def mean_batch(self) -> float:
        """Mean number of jobs per transfer."""
        return self.server.arrival_rate / self.transfers_per_second

    def cost(self, holding_cost: float, transfer_cost: float) -> float:
        """C = c1 L + c2 T per second, equation (2).

        Parameters
        ----------
        holding_cost: c1, per job and second.
        transfer_cost: c2, per transfer.
        """
        holding = parameter.rate("holding_cost", holding_cost, zero=True)
        return holding * self.mean_jobs + parameter.rate("transfer_cost", transfer_cost, zero=True) * (
            self.transfers_per_second
        )

    @property
    def boundary(self) -> Real:
        """pi_{0,j}: the processor waits, with j jobs in the external queue; shape (K,), shorter where the rest is 0."""
        return self._solved.probabilities

    @cached_property
    def _solved(self) -> Boundary:
        if self._boundary is not None:
            return self._boundary
        if self.server.timer == "always":
            return solve_boundary(replace(self.server, batch_size=2**60))  # keeps only the phases that matter
        size = 64  # an infinite batch: a finite one that is never filled
        while True:
            boundary = solve_boundary(replace(self.server, batch_size=size))
            if boundary.probabilities[-1] * size <= 1e-15 * self.idle_probability:
                return boundary
            size *= 2

    @cached_property
    def _joint(self) -> Joint:
        return joint_distribution(self.server, self._solved)

    @property
    def jobs_distribution(self) -> Real:
        """P(n jobs present) for n = 0, 1, ..., to about 1e-11, until what is left is below 1e-10."""
        return self._joint.jobs

    @cached_property
    def response_time(self) -> ResponseTime:
        """The distribution of the response time, first come first served: its survival function and quantiles."""
        return ResponseTime(self.server, self._joint, self.mean_response_time)


def solve(
    server: StreamServer,
    method: str = "auto",
    tolerance: float = 1e-10,
    *,
    truncation: int | None = None,
    digits: int | None = None,
) -> SteadyState:
    """Solve a stream server exactly.

    Parameters
    ----------
    server: the server; it must be stable.
    method: ``"auto"``, arithmetic modulo omega, fast and to about 1e-12 for every K and tau, their limits included;
        ``"spectral"``, the paper's sections 3 and 5 in arbitrary precision; ``"iterative"``, its sections 4 and 5;
        ``"chain"``, a truncated Markov chain.
    tolerance: relative error allowed to ``"iterative"`` and ``"chain"``.
    truncation: m of ``"iterative"`` or ``"chain"``: at most this many jobs in the internal queue.
    digits: precision of ``"spectral"``; 30 + K decimal digits unless given.

    Raises
    ------
    UnstableServerError: the queues would grow without bound.
    NotSolvableError: the method cannot do this server.

    Examples
    --------
    >>> steady = solve(StreamServer(750, 1000, batch_size=25, timer_rate=573))
    >>> round(steady.cost(holding_cost=1, transfer_cost=0.05), 3)  # Figure 2 of the paper
    14.536
    """
    if not isinstance(server, StreamServer):
        raise ConfigurationError(f"solve() takes a StreamServer, not {type(server).__name__}.")
    parameter.one_of("method", method, METHODS)
    parameter.rate("tolerance", tolerance)
    server.require_stable()
    if math.isinf(server.effective_batch_size):
        if method != "auto":
            raise NotSolvableError(f"method={method!r} takes a finite batch_size; use method='auto'.")
        return _steady(server, method, infinite_batch(server), None)
    if method == "chain":
        chain = solve_chain(server, tolerance, truncation)
        flows = server.timer_rate * chain.ready[0]
        flows[0] = 0.0
        boundary = Boundary(chain.ready[0].copy(), flows)
        return _steady(server, method, chain.moments(server), boundary)
    boundary = {
        "auto": lambda: solve_boundary(server),
        "spectral": lambda: solve_spectral(server, digits),
        "iterative": lambda: solve_iterative(server, tolerance, truncation),
    }[method]()
    return _steady(server, method, moments(server, boundary), boundary)


def _steady(server: StreamServer, method: str, means: Moments, boundary: Boundary | None) -> SteadyState:
    return SteadyState(
        server,
        method,
        means.mean_jobs,
        means.transfers_per_second,
        means.external_jobs,
        means.idle_probability,
        boundary,
    )
