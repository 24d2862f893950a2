"""Arithmetic of phase distributions: polynomials in w modulo omega(w), all of whose operations are sums of positives.

The coefficient of w^j is the weight of phase j. ``1 / (1 + c(1 - w))`` is what a phase distribution becomes while a
geometric number of jobs arrive, so dividing by it moves weight upwards, round the corner at K, and never subtracts.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtbtrs

Real = NDArray[np.float64]


class PhaseRing:
    """Polynomials of degree below K modulo omega(w) = w^K - phi(w).

    Parameters
    ----------
    phi: the K coefficients of w^K modulo omega, scaled by ``inner_zero``^(j - K): they add up to 1.
    inner_zero: the largest real zero of omega in the disc, y0. Arrays are held scaled by y0^j, which makes the zero 1.
    """

    def __init__(self, phi: Real, inner_zero: float = 1.0) -> None:
        self.phi = phi
        self.inner_zero = inner_zero
        self.size = len(phi)

    def divide(self, polynomial: Real, a: float, c: float) -> Real:
        """polynomial / (a - c w), for a > c y0 > 0 or c = 0."""
        return np.asarray(_divide(self.phi, polynomial, a, c * self.inner_zero))

    def shift(self, polynomial: Real) -> Real:
        """W times the polynomial: one job arrives."""
        shifted = np.empty_like(polynomial)
        shifted[0] = 0.0
        shifted[1:] = polynomial[:-1]
        return np.asarray(self.inner_zero * (shifted + polynomial[-1] * self.phi))

    def powers(self, first: Real, a: float, c: float) -> Real:
        """The K x K matrix whose row i is first / (a - c w)^i."""
        return np.asarray(_powers(self.phi, first, a, c * self.inner_zero))

    def reduce(self, series: Real) -> Real:
        """A polynomial of any degree modulo omega, both scaled."""
        padded = np.zeros(max(self.size, len(series)))
        padded[: len(series)] = series
        return np.asarray(_reduce(self.phi, padded))


def _closing(phi: Real, a: float, c: float) -> float:
    """1 - c h_{K-1}, with h = phi / (a - c w) before the corner: sum of phi_j (1 - (c/a)^(K-j)), as phi adds up to 1."""
    return -float(phi @ np.expm1(np.arange(len(phi), 0, -1) * math.log(c / a)))


def _straight(polynomial: Real, a: float, c: float) -> Real:
    """The first coefficients of polynomial / (a - c w) as a series: x_j = (p_j + c x_{j-1}) / a."""
    bands = np.empty((2, len(polynomial)))
    bands[0], bands[1] = a, -c
    series, _ = dtbtrs(bands, polynomial, uplo="L")
    return np.asarray(series)


def _divide(phi: Real, polynomial: Real, a: float, c: float) -> Real:
    if c == 0.0:
        return polynomial / a
    straight = _straight(polynomial, a, c)
    corner = c * straight[-1] / _closing(phi, a, c)
    return straight + _straight(corner * phi, a, c)


def _powers(phi: Real, first: Real, a: float, c: float) -> Real:
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
    size = len(phi)
    for n in range(len(series) - 1, size - 1, -1):
        series[n - size : n] += series[n] * phi
    return series[:size]
