"""Arithmetic of phase distributions: polynomials in w modulo omega(w), by operations that only add positive numbers.

The coefficient of w^j is the weight of phase j. Multiplying by ``1 / (1 + c(1 - w))`` is what a geometric number of
arrivals does to a phase distribution: it moves weight to higher phases, and from phase K back to phi, without subtractions.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtbtrs

Real = NDArray[np.float64]


class PhaseRing:
    """Polynomials of degree below K modulo omega(w) = w^K - phi(w).

    Args:
        phi: the K coefficients of w^K modulo omega, scaled by ``inner_zero``^(j - K): they add up to 1.
        inner_zero: the largest real zero of omega in the disc, y0. Coefficients are scaled by y0^j, which makes the zero 1.
    """

    def __init__(self, phi: Real, inner_zero: float = 1.0) -> None:
        self.phi = phi
        self.inner_zero = inner_zero
        self.size = len(phi)

    def divide(self, polynomial: Real, a: float, c: float) -> Real:
        """Divide a polynomial by (a - c w), for a > c y0 > 0 or c = 0."""
        return np.asarray(_divide(self.phi, polynomial, a, c * self.inner_zero))

    def shift(self, polynomial: Real) -> Real:
        """Multiply a polynomial by w, which is what one arrival does."""
        shifted = np.empty_like(polynomial)
        shifted[0] = 0.0
        shifted[1:] = polynomial[:-1]
        return np.asarray(self.inner_zero * (shifted + polynomial[-1] * self.phi))

    def powers(self, first: Real, a: float, c: float) -> Real:
        """The K x K matrix whose row i is the polynomial first / (a - c w)^i."""
        return np.asarray(_powers(self.phi, first, a, c * self.inner_zero))

    def reduce(self, series: Real) -> Real:
        """Reduce a polynomial of any degree modulo omega; both are scaled by y0^j."""
        padded = np.zeros(max(self.size, len(series)))
        padded[: len(series)] = series
        return np.asarray(_reduce(self.phi, padded))


def _closing(phi: Real, a: float, c: float) -> float:
    """1 - c h_{K-1}, where h is the series phi / (a - c w): the sum of phi_j (1 - (c/a)^(K-j)), because phi sums to 1."""
    return -float(phi @ np.expm1(np.arange(len(phi), 0, -1) * math.log(c / a)))


def _straight(polynomial: Real, a: float, c: float) -> Real:
    """The first K coefficients of the power series polynomial / (a - c w): x_j = (p_j + c x_{j-1}) / a."""
    bands = np.empty((2, len(polynomial)))
    bands[0], bands[1] = a, -c
    series, _ = dtbtrs(bands, polynomial, uplo="L")
    return np.asarray(series)


def _divide(phi: Real, polynomial: Real, a: float, c: float) -> Real:
    """polynomial / (a - c w) modulo omega: the power series, plus what overflows at w^K and returns as phi."""
    if c == 0.0:
        return polynomial / a
    straight = _straight(polynomial, a, c)
    corner = c * straight[-1] / _closing(phi, a, c)
    return straight + _straight(corner * phi, a, c)


def _powers(phi: Real, first: Real, a: float, c: float) -> Real:
    """The matrix of :meth:`PhaseRing.powers`, which divides phi only once."""
    size = len(phi)
    result = np.empty((size, size))
    round_the_corner = _straight(phi, a, c)
    closing = c / _closing(phi, a, c)
    result[0] = first
    for i in range(1, size):
        straight = _straight(result[i - 1], a, c)
        result[i] = straight + straight[-1] * closing * round_the_corner
    return result


def _reduce(phi: Real, series: Real) -> Real:
    """Replace w^n by w^(n-K) phi from the highest power down, in place."""
    size = len(phi)
    for n in range(len(series) - 1, size - 1, -1):
        series[n - size : n] += series[n] * phi
    return series[:size]
