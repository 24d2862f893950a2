"""The ``chain`` method: a truncated Markov chain, solved as a sparse linear system; slow, but simple enough to check by.

During a transfer only the total number n of jobs matters, because all of them are in the internal queue when it ends.
With these states labelled by n, the chain is of M/G/1 type even if transfers take time.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.linalg import splu

from penstock.errors import NotSolvableError
from penstock.queueing.moments import Moments

if TYPE_CHECKING:
    from penstock.queueing.server import StreamServer

Real = NDArray[np.float64]
Integers = NDArray[np.int_]

_LARGEST_CHAIN = 3_000_000


@dataclass(frozen=True)
class Arrivals:
    """A Markovian arrival process: some transitions of a modulating chain with A states bring a job.

    Args:
        with_job: rates of the transitions that bring a job, per second, shape (A, A), diagonal included.
        without_job: rates of the other transitions, shape (A, A); the diagonal is ignored.
    """

    with_job: Real
    without_job: Real

    @classmethod
    def poisson(cls, rate: float) -> "Arrivals":
        """A Poisson process, which has one state and no modulation."""
        return cls(np.array([[rate]]), np.zeros((1, 1)))


@dataclass(frozen=True)
class Chain:
    """Steady state of the truncated chain.

    Args:
        ready: pi_{i,j}, shape (m + 1, K): i jobs in the internal queue, j in the external queue, the processor ready.
        blocked: r_n, shape (m + K + 1,): n jobs in both queues, a transfer under way.
        transfers: transfers started per second, summed over the transitions that start one.
    """

    ready: Real
    blocked: Real
    transfers: float

    @property
    def mean_jobs(self) -> float:
        """L, the mean number of jobs present."""
        inside, outside = np.indices(self.ready.shape)
        return float(((inside + outside) * self.ready).sum() + np.arange(len(self.blocked)) @ self.blocked)

    def moments(self, server: "StreamServer") -> Moments:
        """Means by direct summation, without the paper's formulas."""
        outside = np.arange(self.ready.shape[1])
        moving = server.arrival_rate * (1 - self.transfers / server.transfer_rate)
        moving += server.arrivals_per_transfer_time * self.transfers
        external = float((self.ready @ outside).sum()) + moving / server.transfer_rate
        return Moments(self.mean_jobs, external, self.transfers, float(self.ready[0].sum()))


def solve_chain(
    server: "StreamServer", tolerance: float, truncation: int | None = None, arrivals: Arrivals | None = None
) -> Chain:
    """Solve the chain, doubling its truncation until the mean number of jobs changes by less than ``tolerance``, relatively.

    Args:
        truncation: solve once, with this many levels, instead.
        arrivals: the arrival process, by default Poisson at the server's rate.

    Raises:
        NotSolvableError: more than 3 million states would be needed.
    """
    arrivals = arrivals or Arrivals.poisson(server.arrival_rate)
    if math.isinf(server.effective_batch_size):
        raise NotSolvableError("A chain needs a finite batch_size; give a large one, or use method='auto'.")
    size = int(server.effective_batch_size)
    if truncation is not None:
        _require_affordable(size * truncation * len(arrivals.with_job), size)
        return truncated_chain(server, truncation, arrivals)
    level = 4 * size + math.ceil(8 / server.slack)
    chain: Chain | None = None
    while True:
        _require_affordable(level * size * len(arrivals.with_job), size)
        finer = truncated_chain(server, level, arrivals)
        if chain is not None and abs(finer.mean_jobs - chain.mean_jobs) <= tolerance * finer.mean_jobs:
            return finer
        chain = finer
        level *= 2


def _require_affordable(states: int, size: int) -> None:
    if states > _LARGEST_CHAIN:
        raise NotSolvableError(
            f"The chain needs {states:,} states for batch_size {size} at this load, but at most "
            f"{_LARGEST_CHAIN:,} are allowed; use method='auto', or simulate()."
        )


def truncated_chain(server: "StreamServer", level: int, arrivals: Arrivals) -> Chain:
    """Solve the balance equations (9)-(13) or (28)-(34) with at most ``level`` jobs in the internal queue.

    Raises:
        NotSolvableError: the timer rate is infinite.
    """
    if math.isinf(server.timer_rate):
        raise NotSolvableError("method='chain' needs a finite timer_rate; give a large one, or use method='auto'.")
    size = int(server.effective_batch_size)
    instant = math.isinf(server.transfer_rate)
    most_jobs = level + size
    modes = len(arrivals.with_job)
    ready = np.arange((level + 1) * size * modes).reshape(level + 1, size, modes)
    transfer = ready.size + np.arange((most_jobs + 1) * modes).reshape(most_jobs + 1, modes)
    flows = _Flows()
    inside = np.arange(level + 1)

    def moved(total: Integers) -> Integers:  # the state after a transfer of all jobs starts
        return ready[np.minimum(total, level), 0] if instant else transfer[np.minimum(total, most_jobs)]

    # An arrival that completes a batch starts a transfer; any other joins the external queue, or the transfer under way.
    started = []
    for a, b in zip(*arrivals.with_job.nonzero(), strict=True):
        rate = arrivals.with_job[a, b]
        started.append(flows.add(ready[:, -1, a], moved(inside + size)[..., b], rate))
        flows.add(ready[:, :-1, a], ready[:, 1:, b], rate)
        if not instant:
            flows.add(transfer[:-1, a], transfer[1:, b], rate)
    for a, b in zip(*arrivals.without_job.nonzero(), strict=True):
        rate = arrivals.without_job[a, b]
        flows.add(ready[..., a], ready[..., b], rate)
        if not instant:
            flows.add(transfer[..., a], transfer[..., b], rate)
    flows.add(ready[1:], ready[:-1], server.service_rate)
    if server.timer_rate > 0 and size > 1:
        timed = slice(0, 1) if server.timer == "idle" else slice(None)
        total = inside[timed, None] + np.arange(1, size)[None, :]
        started.append(flows.add(ready[timed, 1:], moved(total), server.timer_rate))
    if not instant:
        flows.add(transfer, ready[np.minimum(np.arange(most_jobs + 1), level), 0], server.transfer_rate)
    probabilities = flows.stationary(int(transfer[-1, -1]) + 1)
    transfers = sum(float(probabilities[source] @ rate) for source, rate in started)
    return Chain(
        probabilities[: ready.size].reshape(ready.shape).sum(axis=2),
        probabilities[ready.size :].reshape(transfer.shape).sum(axis=1),
        transfers,
    )


class _Flows:
    """Transition rates of a Markov chain with numbered states."""

    def __init__(self) -> None:
        self.sources: list[Integers] = []
        self.targets: list[Integers] = []
        self.rates: list[Real] = []

    def add(self, source: Integers, target: Integers, rate: float | Real) -> tuple[Integers, Real]:
        """Add transitions, broadcast against each other; return their sources and rates, flattened."""
        arrays = np.broadcast_arrays(source, target, np.asarray(rate, dtype=float))
        flat = [array.ravel() for array in arrays]
        self.sources.append(flat[0])
        self.targets.append(flat[1])
        self.rates.append(flat[2])
        return flat[0], flat[2]

    def stationary(self, states: int) -> Real:
        source, target = np.concatenate(self.sources), np.concatenate(self.targets)
        rate = np.concatenate(self.rates)
        away = np.bincount(source, rate, states)
        away[np.bincount(target, rate, states) + away == 0] = 1.0  # states without transitions get probability 0
        numbers = np.arange(states)
        rows, columns = np.append(target, numbers), np.append(source, numbers)
        balance = coo_array((np.append(rate, -away), (rows, columns)), shape=(states, states)).tocsc()
        # One balance equation follows from the others: fix pi_{0,0} = 1 instead, then normalise.
        solution = splu(balance[1:, 1:]).solve(-balance[1:, [0]].toarray().ravel())
        probabilities = np.append(1.0, solution)
        return np.asarray(probabilities / probabilities.sum())
