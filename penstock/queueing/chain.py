"""The ``chain`` method: a truncated Markov chain, solved as a sparse linear system; slow, plain, for checking.

During a transfer only the total number n of jobs matters, because all of them are in the internal queue when it ends.
With those states labelled by n the chain is of M/G/1 type also where transfers take time.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.linalg import splu

from penstock.errors import NotSolvableError
from penstock.queueing.moments import Moments
from penstock.queueing.server import StreamServer

Real = NDArray[np.float64]

_LARGEST_CHAIN = 3_000_000


@dataclass(frozen=True)
class Chain:
    """Steady-state probabilities of the truncated chain.

    Parameters
    ----------
    ready: pi_{i,j}, shape (m + 1, K): i jobs inside, j outside, the processor ready.
    blocked: r_n, shape (m + K + 1,): n jobs in all, a transfer under way.
    """

    ready: Real
    blocked: Real

    @property
    def mean_jobs(self) -> float:
        """L, the mean number of jobs present."""
        inside, outside = np.indices(self.ready.shape)
        return float(((inside + outside) * self.ready).sum() + np.arange(len(self.blocked)) @ self.blocked)

    def moments(self, server: StreamServer) -> Moments:
        """Means by direct summation, with no formula of the paper but T's definition (8)."""
        outside = np.arange(self.ready.shape[1])
        timed = self.ready[:1] if server.timer == "idle" else self.ready
        timer_rate = server.timer_rate if math.isfinite(server.timer_rate) else 0.0
        transfers = server.arrival_rate * self.ready[:, -1].sum() + timer_rate * timed[:, 1:].sum()
        blocked = transfers / server.transfer_rate
        moving = server.arrival_rate * (1 - blocked) + server.arrivals_per_transfer_time * transfers
        external = (self.ready @ outside).sum() + moving / server.transfer_rate
        return Moments(self.mean_jobs, float(external), float(transfers), float(self.ready[0].sum()))


def solve_chain(server: StreamServer, tolerance: float, truncation: int | None = None) -> Chain:
    """Double the truncation until the mean number present changes by less than ``tolerance``, relatively.

    Raises
    ------
    NotSolvableError: more than 3 million states would be needed.
    """
    size = int(server.effective_batch_size)
    if truncation is not None:
        return truncated_chain(server, truncation)
    level = 4 * size + math.ceil(8 / server.slack)
    chain = truncated_chain(server, level)
    while True:
        level *= 2
        if level * size > _LARGEST_CHAIN:
            raise NotSolvableError(
                f"The chain needs more than {_LARGEST_CHAIN:,} states for batch_size {size} this close to its "
                "limit; use method='auto'."
            )
        finer = truncated_chain(server, level)
        if abs(finer.mean_jobs - chain.mean_jobs) <= tolerance * finer.mean_jobs:
            return finer
        chain = finer


def truncated_chain(server: StreamServer, level: int) -> Chain:
    """Solve the balance equations (9)-(13) or (28)-(34) with at most ``level`` jobs in the internal queue."""
    size = int(server.effective_batch_size)
    instant = math.isinf(server.transfer_rate)
    most = level + size
    ready = np.arange((level + 1) * size).reshape(level + 1, size)
    transfer = ready.size + np.arange(most + 1)
    sources: list[Real] = []
    targets: list[Real] = []
    rates: list[Real] = []

    def flow(source, target, rate) -> None:  # type: ignore[no-untyped-def]
        source, target, rate = np.broadcast_arrays(source, target, rate)
        sources.append(source.ravel())
        targets.append(target.ravel())
        rates.append(rate.ravel().astype(float))

    def moved(total):  # type: ignore[no-untyped-def]  # where a transfer of all jobs leads
        return ready[np.minimum(total, level), 0] if instant else transfer[np.minimum(total, most)]

    inside = np.arange(level + 1)
    flow(ready[:, :-1], ready[:, 1:], server.arrival_rate)
    flow(ready[:, -1], moved(inside + size), server.arrival_rate)
    flow(ready[1:], ready[:-1], server.service_rate)
    if server.timer_rate > 0 and size > 1:
        timed = slice(0, 1) if server.timer == "idle" else slice(None)
        outside = np.arange(1, size)
        if math.isinf(server.timer_rate):
            # A job that waits with the timer running is sent at once: a rate far above every other.
            raise NotSolvableError("method='chain' has no infinite timer_rate; give a large one, or use method='auto'.")
        flow(ready[timed, 1:], moved(inside[timed, None] + outside[None, :]), server.timer_rate)
    if not instant:
        flow(transfer[:-1], transfer[1:], server.arrival_rate)
        flow(transfer, ready[np.minimum(np.arange(most + 1), level), 0], server.transfer_rate)
    states = int(transfer[-1]) + 1
    source, target, rate = (np.concatenate(parts) for parts in (sources, targets, rates))
    away = np.bincount(source, rate, states)
    if instant:
        away[transfer] = 1.0  # states that are never entered
    everyone = np.arange(states)
    balance = coo_array(
        (np.append(rate, -away), (np.append(target, everyone), np.append(source, everyone))), shape=(states, states)
    ).tocsc()
    # The balance equations hold but for one: fix pi_{0,0} = 1 in its place, then normalise.
    keep = np.arange(1, states)
    solution = splu(balance[keep][:, keep]).solve(-balance[keep][:, [0]].toarray().ravel())
    probabilities = np.append(1.0, solution)
    probabilities /= probabilities.sum()
    return Chain(probabilities[: ready.size].reshape(level + 1, size), probabilities[ready.size :])
