"""The steady state of a stream server: jobs present, transfers, costs, and distributions of numbers and times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.queueing.boundary import Boundary, solve_boundary
from penstock.queueing.cost import cost_per_second
from penstock.queueing.joint import Joint, joint_distribution
from penstock.queueing.moments import Moments
from penstock.queueing.response import ResponseTime

if TYPE_CHECKING:
    from penstock.queueing.plot import Plot
    from penstock.queueing.server import StreamServer

Real = NDArray[np.float64]


@dataclass(frozen=True)
class SteadyState:
    """The steady state of a :class:`StreamServer`.

    Args:
        server: the server that was solved.
        method: the method of solution; one of ``"auto"``, ``"spectral"``, ``"iterative"``, ``"chain"``.
        mean_jobs: L, the mean number of jobs in both queues (equations (18), (43)).
        transfers_per_second: T (equations (8), (42)).
        mean_external: mean number of jobs in the external queue, including those that a transfer is moving.
        idle_probability: probability that the internal queue is empty and the processor is not blocked.
    """

    server: "StreamServer"
    method: str
    mean_jobs: float
    transfers_per_second: float
    mean_external: float
    idle_probability: float
    _boundary: Boundary | None = field(default=None, repr=False)

    FIGURES: ClassVar[Mapping[str, str]] = {
        "mean_jobs": "jobs",
        "mean_external": "jobs",
        "mean_internal": "jobs",
        "transfers_per_second": "1/s",
        "mean_batch": "jobs",
        "utilisation": "",
        "blocked_fraction": "",
        "idle_probability": "",
        "mean_response_time": "s",
    }
    BRIEF: ClassVar[Sequence[str]] = ("mean_jobs", "transfers_per_second", "mean_response_time")

    @classmethod
    def of(cls, server: "StreamServer", method: str, means: Moments, boundary: Boundary | None) -> "SteadyState":
        """Make the steady state from a method's means, and its boundary probabilities if it has any."""
        return cls(
            server, method, means.mean_jobs, means.transfers_per_second, means.external_jobs, means.idle_probability, boundary
        )

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

        Args:
            holding_cost: c1, per job and second.
            transfer_cost: c2, per transfer.
        """
        return cost_per_second(self.mean_jobs, self.transfers_per_second, holding_cost, transfer_cost)

    def plot(self) -> "Plot":
        """Plot the response time's distribution, as a matplotlib figure that a notebook shows.

        Raises:
            NotSolvableError: only simulation can give the quantiles of this server.
        """
        from penstock.queueing.plot import exceedance  # imported here because it needs matplotlib

        return exceedance(self.quantile, self.mean_response_time, "jobs")

    def quantile(self, p: float) -> float:
        """The response time that a fraction ``p`` of jobs does not exceed, in seconds."""
        return self.response_time.quantile(p)

    @property
    def boundary(self) -> Real:
        """pi_{0,j}: probability of an empty internal queue and j jobs in the external one; shape (K,) less a tail of zeros."""
        return self._solved.probabilities

    @cached_property
    def _solved(self) -> Boundary:
        """The boundary probabilities, solved for on first use if the method did not need them."""
        return self._boundary or solve_boundary(self.server)

    @cached_property
    def _joint(self) -> Joint:
        return joint_distribution(self.server, self._solved)

    @property
    def jobs_distribution(self) -> Real:
        """P(n jobs present) for n = 0, 1, ..., to about 1e-11, up to a tail of probability below 1e-10."""
        return self._joint.jobs

    @cached_property
    def response_time(self) -> ResponseTime:
        """The distribution of the response time, first come first served: its survival function and quantiles."""
        return ResponseTime(self.server, self._joint, self.mean_response_time)
