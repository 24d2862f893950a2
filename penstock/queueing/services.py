"""Distributions of the number of arrivals during i services: negative binomial, without their negligible tails."""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Real = NDArray[np.float64]

_NEGLIGIBLE = 1e-18  # relative to a row's largest entry


class ArrivalsDuringServices:
    """The coefficients of w^n in (1 / (1 + c (1 - w)))^i for i = 0..K-1, in a band around n = c i for each i.

    Args:
        size: K, the number of rows.
        c: mean number of arrivals during one service; rho for a timer that runs only while the processor is idle.
    """

    def __init__(self, size: int, c: float) -> None:
        reach = 9 * math.sqrt(c * (1 + c) * size) + 60 * (1 + c)
        width = min(int(2 * reach) + 2, int(c * size + reach) + 2)
        self.starts, self.rows = _bands(size, width, c)

    def compose(self, weights: Real) -> Real:
        """Coefficients, not reduced modulo omega, of the series sum_i weights_i / (1 + c (1 - w))^i."""
        return np.asarray(_compose(weights, self.starts, self.rows))


@njit(cache=True)
def _bands(size, width, c):  # type: ignore[no-untyped-def]
    starts = np.zeros(size, dtype=np.int64)
    rows = np.zeros((size, width))
    rows[0, 0] = 1.0
    log_p, log_q, q = -math.log1p(c), math.log(c) - math.log1p(c), c / (1 + c)
    for i in range(1, size):
        mode = max(0, int((i - 1) * c))
        peak = math.exp(math.lgamma(mode + i) - math.lgamma(mode + 1) - math.lgamma(i) + i * log_p + mode * log_q)
        # Down from the mode to the first negligible entry, which starts the band; then up from the mode.
        n, value = mode, peak
        while n > 0 and value > _NEGLIGIBLE * peak and mode - n < width // 2:
            value *= n / (q * (n + i - 1))
            n -= 1
        starts[i] = n
        rows[i, 0] = value
        for k in range(1, width):
            n += 1
            value *= q * (n + i - 1) / n
            rows[i, k] = value
            if n > mode and value < _NEGLIGIBLE * peak:
                break
        total = rows[i].sum()
        for k in range(width):
            rows[i, k] /= total  # corrects rounding errors of lgamma
    return starts, rows


@njit(cache=True, fastmath=True)
def _compose(weights, starts, rows):  # type: ignore[no-untyped-def]
    size, width = rows.shape
    result = np.zeros(starts[size - 1] + width)
    for i in range(size):
        weight = weights[i]
        if weight != 0.0:
            start = starts[i]
            for k in range(width):
                result[start + k] += weight * rows[i, k]
    return result
