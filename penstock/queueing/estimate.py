"""Estimates from simulations with confidence intervals: warm-up detection and batch means."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import stdtrit

from penstock.queueing import parameter

Real = NDArray[np.float64]

_GROUPS = 32
_FINE = 1600
"""Groups in which a long series is judged; as many as simulations sum by."""

ENOUGH = 200
"""With fewer independent observations an interval of 95% covers the true value in fewer than nine of ten runs."""


@dataclass(frozen=True)
class Estimate:
    """A mean or quantile from a simulation, with its confidence interval.

    Args:
        value: the point estimate.
        half_width: half of the confidence interval's width, in the same unit.
        confidence: the probability that the interval covers the true value.
        independent: how many independent observations the simulated ones are worth; near saturation queues change slowly, so
            that many jobs are worth few. With fewer than `ENOUGH` the interval is too narrow.
    """

    value: float
    half_width: float
    confidence: float = 0.95
    independent: float = math.inf

    def covers(self, number: float, widths: float = 1.0) -> bool:
        """Whether ``number`` lies within ``widths`` half-widths of the value."""
        return abs(number - self.value) <= widths * self.half_width

    def __format__(self, spec: str) -> str:
        return f"{self.value:{spec or '.6g'}} ± {self.half_width:.2g}"

    def __str__(self) -> str:
        return format(self)


def warm_up(series: Real) -> int:
    """How many leading values to leave out: the MSER-5 rule (White 1997), at most a quarter of the series.

    The rule takes means of five consecutive values, and drops as many as make the standard error of the mean of the
    remaining ones smallest. It drops at most a quarter, because choosing by the series that is averaged biases the mean.
    """
    fives = series[: len(series) // 5 * 5].reshape(-1, 5).mean(axis=1)
    if len(fives) < 4:
        return 0
    tails = np.arange(len(fives), 0, -1)
    sums = np.cumsum(fives[::-1])[::-1]
    squares = np.cumsum((fives**2)[::-1])[::-1]
    errors = (squares - sums**2 / tails) / tails**2
    return 5 * int(np.argmin(errors[: max(1, len(fives) // 4)]))


def ratio_estimate(numerators: Real, denominators: Real, confidence: float) -> Estimate:
    """Sum of numerators over sum of denominators, with an interval from batch means over 32 groups (delta method)."""
    usable = len(numerators) // _GROUPS * _GROUPS
    if not usable:
        return Estimate(float(numerators.sum() / denominators.sum()), math.inf, confidence, len(numerators))
    top = numerators[len(numerators) - usable :].reshape(_GROUPS, -1).sum(axis=1)
    bottom = denominators[len(denominators) - usable :].reshape(_GROUPS, -1).sum(axis=1)
    value = top.sum() / bottom.sum()
    half_width = _half_width((top - value * bottom) / bottom.mean(), confidence)
    return Estimate(float(value), half_width, confidence, independent(numerators - value * denominators))


def mean_estimate(values: Real, confidence: float) -> Estimate:
    """Return the mean of a correlated series, with its interval."""
    groups = min(_FINE, len(values))
    sums = values[: len(values) // groups * groups].reshape(groups, -1).sum(axis=1)
    return ratio_estimate(sums, np.full(groups, float(len(values) // groups)), confidence)


def _half_width(deviations: Real, confidence: float) -> float:
    """Half-width of the interval of a mean, from the groups' deviations; wider if successive groups are correlated."""
    variance = (deviations**2).sum() / (_GROUPS - 1)
    if variance > 0:
        correlation = (deviations[1:] * deviations[:-1]).mean() / variance
        if correlation > 2 / np.sqrt(_GROUPS):  # more than by chance
            variance *= (1 + correlation) / (1 - min(correlation, 0.9))
    return float(np.sqrt(variance / _GROUPS) * stdtrit(_GROUPS - 1, (1 + confidence) / 2))


def quantile_estimate(values: Real, p: float, confidence: float) -> Estimate:
    """A quantile of a correlated series, with an interval from the quantiles of 32 consecutive groups."""
    p, confidence = parameter.fraction("p", p), parameter.fraction("confidence", confidence)
    usable = len(values) // _GROUPS * _GROUPS
    if not usable:
        return Estimate(float(np.quantile(values, p)), math.inf, confidence, len(values))
    groups = np.quantile(values[:usable].reshape(_GROUPS, -1), p, axis=1)
    quantile = float(np.quantile(values, p))
    half_width = _half_width(groups - groups.mean(), confidence)
    return Estimate(quantile, half_width, confidence, independent((values <= quantile).astype(float)))


def independent(series: Real) -> float:
    """Return how many independent observations a stationary series is worth: its length over its autocorrelation time.

    The autocorrelations are summed as long as the sums of two neighbours are positive and fall (Geyer 1992, the initial
    monotone sequence).
    """
    fine = series[len(series) % _FINE :].reshape(_FINE, -1).mean(axis=1) if len(series) >= _FINE else series
    deviations = fine - fine.mean()
    spectrum = rfft(deviations, next_fast_len(2 * len(fine), real=True))
    covariances = irfft((spectrum * spectrum.conj()).real)[: len(fine) // 2 * 2] / len(fine)
    if len(covariances) == 0 or covariances[0] <= 0:
        return float(len(fine))
    pairs = covariances[0::2] + covariances[1::2]
    falling = np.minimum.accumulate(pairs[: int(np.argmax(np.append(pairs, -1.0) <= 0))])
    return float(len(fine) / max(1.0, (2 * falling.sum() - covariances[0]) / covariances[0]))
