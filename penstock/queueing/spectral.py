"""The ``spectral`` method: the exact solution of the paper's sections 3 and 5, in arbitrary precision.

The determinant D(z) has K - 1 zeros in the unit disc; at each of them the numerator D_{K-1}(z) of equation (21) must
vanish too, which gives K - 1 equations for the K boundary probabilities. Their matrix is ill-conditioned: in double
precision it is useless beyond about K = 25, so the precision used here grows with K.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from mpmath import mp

from penstock.errors import NotSolvableError
from penstock.queueing.boundary import Boundary

if TYPE_CHECKING:
    from penstock.queueing.server import StreamServer

_LARGEST = 200


def solve_spectral(server: "StreamServer", digits: int | None = None) -> Boundary:
    """Solve for pi_{0,j} with ``digits`` decimal digits; by default 30 + K.

    Raises:
        NotSolvableError: the timer always runs, a parameter is infinite, K is above 200, or the digits are too few.
    """
    if server.timer == "always" or math.isinf(server.timer_rate) or not server.batch_size <= _LARGEST:
        raise NotSolvableError(
            "method='spectral' takes the paper's timer ('idle'), a finite timer_rate and a batch_size of at most "
            f"{_LARGEST}; use method='auto'."
        )
    size = int(server.batch_size)
    with mp.workdps(digits or 30 + size):
        rate, service = mp.mpf(server.arrival_rate), mp.mpf(server.service_rate)
        rho, sigma = rate / service, mp.mpf(server.timer_rate) / service
        xi = rate / mp.mpf(server.transfer_rate) if math.isfinite(server.transfer_rate) else mp.mpf(0)
        equations = mp.matrix(size, size)
        # (52), divided by K: eta = sigma xi / rho.
        eta = sigma * xi / rho
        for j in range(size):
            equations[0, j] = 1 + xi / size + (eta * (size - j) / size if j else 0)
        row = 1
        for k in range(1, size // 2 + 1):
            z = _zero(rho, xi, size, k)
            values = _numerator(z, rho, sigma, xi, size)
            for part in (mp.re, mp.im) if 2 * k < size else (mp.re,):  # the zero at k = K/2 is real
                for j in range(size):
                    equations[row, j] = part(values[j])
                row += 1
        right = mp.matrix(size, 1)
        right[0] = 1 - rho - rho * xi / size
        try:
            solution = mp.lu_solve(equations, right)
        except ZeroDivisionError:
            raise NotSolvableError(
                f"method='spectral' finds its equations singular with {mp.dps} digits, because the rates differ too much: "
                "give more digits, or use method='auto'."
            ) from None
        probabilities = np.array([float(value) for value in solution])
    flows = server.timer_rate * probabilities
    flows[0] = 0.0
    return Boundary(probabilities, flows)


def _zero(rho: Any, xi: Any, size: int, k: int) -> Any:
    """z_k with a(z) = e_k alpha(z)^(1/K) rho z^2, from (55) and (46), or from (59) for instantaneous transfers."""
    unit = mp.expjpi(mp.mpf(2 * k) / size)

    def quadratic(root: Any) -> Any:
        return 2 / (1 + rho + mp.sqrt((1 + rho) ** 2 - 4 * rho * root))  # (59), rationalised

    z = quadratic(unit)
    if xi == 0:
        return z

    def equation(z: Any) -> Any:
        return z - quadratic(unit * (1 + xi * (1 - z)) ** (-mp.mpf(1) / size))

    for _ in range(10):
        z = z - equation(z)
    return mp.findroot(equation, z, tol=mp.mpf(10) ** (-2 * mp.dps + 10))


def _numerator(z: Any, rho: Any, sigma: Any, xi: Any, size: int) -> list[Any]:
    """The coefficients of pi_{0,j} in D_{K-1}(z), equation (23) with b_0 of (38), divided by (rho z)^(K-1)."""
    ratio = (rho * z + z - 1) / (rho * z)
    past = 1 / (1 + xi * (1 - z))
    values = [z - 1]
    for j in range(1, size):
        values.append(past * sigma * z * z**j + (z - 1 - sigma * z) * ratio**j)
    return values
