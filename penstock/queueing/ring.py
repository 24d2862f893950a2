"""Arithmetic of phase distributions: polynomials in w modulo omega(w), all of whose operations are sums of positives.

The coefficient of w^j is the weight of phase j. ``1 / (1 + c(1 - w))`` is what a phase distribution becomes while a
geometric number of jobs arrive, so dividing by it moves weight upwards, round the corner at K, and never subtracts.
"""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

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


@njit(cache=True)
def _closing(phi, a, c):  # type: ignore[no-untyped-def]
    # 1 - c h_{K-1}, with h = phi / (a - c w) before the corner: sum of phi_j (1 - (c/a)^(K-j)), as phi adds up to 1.
    size = len(phi)
    log_ratio = math.log(c / a)
    total = 0.0
    for j in range(size):
        total -= phi[j] * math.expm1((size - j) * log_ratio)
    return total


@njit(cache=True)
def _divide(phi, polynomial, a, c):  # type: ignore[no-untyped-def]
    size = len(phi)
    result = np.empty(size)
    if c == 0.0:
        return polynomial / a
    carry = 0.0
    for j in range(size):
        carry = (polynomial[j] + c * carry) / a
        result[j] = carry
    corner = c * carry / _closing(phi, a, c)
    carry = 0.0
    for j in range(size):
        carry = (corner * phi[j] + c * carry) / a
        result[j] += carry
    return result


@njit(cache=True)
def _powers(phi, first, a, c):  # type: ignore[no-untyped-def]
    size = len(phi)
    result = np.empty((size, size))
    round_the_corner = np.empty(size)  # phi / (a - c w)
    inverse, ratio = 1 / a, c / a
    carry = 0.0
    for j in range(size):
        carry = phi[j] * inverse + ratio * carry
        round_the_corner[j] = carry
    closing = c / _closing(phi, a, c)
    result[0] = first
    for i in range(1, size):
        carry = 0.0
        for j in range(size):
            carry = result[i - 1, j] * inverse + ratio * carry
            result[i, j] = carry
        corner = carry * closing
        for j in range(size):
            result[i, j] += corner * round_the_corner[j]
    return result


@njit(cache=True)
def _reduce(phi, series):  # type: ignore[no-untyped-def]
    size = len(phi)
    for n in range(len(series) - 1, size - 1, -1):
        for j in range(size):
            series[n - size + j] += series[n] * phi[j]
    return series[:size]
