"""The matrix-analytic solution that the paper's section 4 rejects as too slow, for comparison.

The chain is of M/G/1 type: the internal queue falls by one job at a time and rises by up to K. Its matrix G has the
probabilities of each phase at the first passage from one level to the next lower one. G satisfies

    (lambda + mu) G = mu I + lambda U G + lambda e_{K-1} e_0' G^(K+1),

with U the shift to the next phase. The paper estimates O(K^5) per step of the iteration, for K + 1 dense blocks. But only
one block beyond the shift is not zero, and it has rank one, so a step takes K products of a vector and G.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.errors import NotSolvableError
from penstock.queueing.boundary import Boundary
from penstock.queueing.server import StreamServer

Real = NDArray[np.float64]

_MOST_STEPS = 100_000


@dataclass(frozen=True)
class MatrixAnalytic:
    """The boundary probabilities, and the number of iterations that they took.

    Args:
        boundary: pi_{0,j}.
        steps: iterations for G.
    """

    boundary: Boundary
    steps: int


def solve_matrix_analytic(server: StreamServer, tolerance: float = 1e-13) -> MatrixAnalytic:
    """Solve a stable server with instantaneous transfers, the paper's timer and a finite batch size.

    Raises:
        NotSolvableError: the server has other parameters than these, or 100,000 steps did not suffice.
    """
    if server.timer != "idle" or np.isfinite(server.transfer_rate) or not np.isfinite(server.batch_size):
        raise NotSolvableError("This method takes only instantaneous transfers, timer='idle' and a finite batch_size.")
    size = int(server.batch_size)
    rate, service = server.arrival_rate, server.service_rate
    # (lambda + mu) I - lambda U is bidiagonal: its inverse is upper triangular with powers of onward.
    onward = rate / (rate + service)
    distance = np.arange(size)[None, :] - np.arange(size)[:, None]
    upper = np.where(distance >= 0, onward ** np.maximum(distance, 0), 0.0) / (rate + service)
    constant = service * upper
    full = rate * upper[:, -1]
    g = constant.copy()
    steps, change = 0, np.inf
    while change >= tolerance:
        steps += 1
        if steps > _MOST_STEPS:
            raise NotSolvableError(f"The iteration for G did not converge within {_MOST_STEPS:,} steps.")
        row = g[0]
        for _ in range(size):
            row = row @ g
        new = constant + full[:, None] * row[None, :]
        change = float(np.abs(new - g).max())
        g = new
    return MatrixAnalytic(boundary_from(server, g), steps)


def boundary_from(server: StreamServer, g: Real) -> Boundary:
    """Compute pi_{0,j} from G: after a transfer of n jobs, e_0' G^n has the phase when the internal queue is next empty."""
    size = len(g)
    rate = server.arrival_rate
    generator = np.zeros((size, size))
    row = np.eye(size)[0]
    for n in range(1, size + 1):
        row = row @ g
        if n < size:
            generator[n] += server.timer_rate * row
            generator[n, n] -= server.timer_rate + rate
            generator[n - 1, n] += rate
        else:
            generator[-1] += rate * row
    generator[0, 0] -= rate
    system = generator.T.copy()
    system[0] = 1.0
    probabilities = np.linalg.solve(system, np.eye(size)[0])
    flows = server.timer_rate * probabilities
    flows[0] = 0.0
    return Boundary(probabilities, flows).normalised(server)
