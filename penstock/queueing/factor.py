"""The polynomial omega, modulo which the ``auto`` method calculates, computed without its roots.

A job waiting in the external queue has a *phase*, its number j = 0..K-1. When the phase would reach K it falls back
to phase j with probability phi_j, so that w^K = phi(w) modulo omega(w) = w^K - phi(w), whose zeros are the K zeros of
w^K = F(w) in the disc where the model lives (docs/background/queueing.md). Read the same equation as a random walk
with steps N - K, where N has the generating function F: then phi is the law of the walk's first descent, and

    1 - w^-K F(w) = (1 - w^-K phi(w)) x (a function without zeros in the disc)

is its Wiener-Hopf factorisation. Taking logarithms on a circle splits the product into negative and positive powers.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from penstock.errors import NotSolvableError

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

_LARGEST_TRANSFORM = 2**24


def expm1(t: Complex) -> Complex:
    """exp(t) - 1 of complex numbers, to full relative accuracy near 0."""
    a, b = t.real, t.imag
    half = np.sin(b / 2)
    result = np.empty_like(t)
    result.real = np.expm1(a) * np.cos(b) - 2 * half * half
    result.imag = np.exp(a) * np.sin(b)
    return result


def log1p(x: Complex) -> Complex:
    """log(1 + x) of complex numbers, to full relative accuracy near 0."""
    a, b = x.real, x.imag
    result = np.empty_like(x)
    result.real = np.log1p(a * (2 + a) + b * b) / 2
    result.imag = np.arctan2(b, 1 + a)
    return result


def descent(size: int, log_ascent: Callable[[Complex], Complex], outer_zero: float, inner_zero: float = 1.0) -> Real:
    """Find phi, the coefficients of w^K modulo omega.

    Args:
        size: K.
        log_ascent: t -> log(1 - w^-K F(w)) at w = inner_zero exp(t), on the right half-plane.
        outer_zero: log of the smallest zero of 1 - w^-K F beyond ``inner_zero``, relative to it; positive.
        inner_zero: the largest zero in the disc, real; 1 where F is a probability generating function.

    Returns:
        phi: array of ``size`` numbers; phi_j is scaled by inner_zero^(j - K), so that they always add up to 1.

    Raises:
        NotSolvableError: the transform would need more than 16 million points.

    Notes:
        Both real zeros are divided out before the logarithm is taken, so that the transform converges near the limit of
        stability as well as far from it. The circle's radius exceeds 1 by 2/K at most, which bounds the rounding error of
        a coefficient by e^2 times the machine precision. The coefficients beyond K must vanish: their size is the error.
    """
    if size == 1:
        return np.ones(1)
    log_radius = min(outer_zero / 2, 2 / size)
    points = 1 << max(9, math.ceil(math.log2(8 * size)))
    error = math.inf
    while points <= _LARGEST_TRANSFORM:
        # The coefficients are real, so half of the circle is enough.
        angles = np.pi * np.arange(points // 2 + 1) / (points // 2)
        t: Complex = np.asarray(log_radius + 1j * angles, dtype=np.complex128)
        logarithm = log_ascent(t) - np.log(-expm1(-t)) - np.log(-expm1(t - outer_zero))
        # Keep the negative powers of w only: their exponential is the factor 1 - w^-K phi(w).
        powers = np.fft.irfft(logarithm, points)  # at m: the coefficient of w^-m
        powers[0] = 0
        powers[points // 2 :] = 0
        scaled = np.fft.irfft(np.exp(np.fft.rfft(powers)), points)[: points // 2]
        error = float(np.abs(scaled[size:]).max())
        if error < 2e-14:
            coefficients = scaled[:size] * np.exp(log_radius * np.arange(size))  # (1 - phi) / (1 - 1/w): tails of phi
            return np.maximum(-np.diff(np.append(coefficients, 0.0)), 0.0)[::-1]
        points *= 2
    raise NotSolvableError(
        f"The server is too close to its limit of stability: the factorisation still has an error of {error:.1e} with "
        f"{_LARGEST_TRANSFORM} points; leave it more slack, or use method='chain'."
    )
