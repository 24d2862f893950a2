"""Whether the rate of arrivals has changed since a plan was made: a generalised likelihood ratio, not one sample.

The rows of each window between two admissions are taken for Poisson's, with a dispersion that the windows themselves show.
For each moment since the plan, the likelihood of a new rate from then on is compared with that of the planned one; the
largest ratio is the statistic (Willsky and Jones, "A generalized likelihood ratio approach to the detection and estimation of
jumps in linear systems", 1976).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]

THRESHOLD = 12.0
"""A logarithm of the ratio beyond which chance is ruled out: never in the 120,000 windows of its test."""
LEAST = 0.15
"""A change by a smaller share matters to no plan."""
LEAST_WINDOWS = 3
"""A change is believed after so many windows."""


@dataclass(frozen=True)
class RateChange:
    """A change of the rate.

    Parameters
    ----------
    before, after: rows per second. error: standard error of ``after``.
    windows, seconds: since the change. statistic: logarithm of the likelihood ratio, over the dispersion.
    """

    before: float
    after: float
    error: float
    windows: int
    seconds: float
    statistic: float


def rate_change(widths: Real, counts: Real, planned: float) -> RateChange | None:
    """The change that windows show beside a planned rate; None where there is none that is significant and matters.

    Parameters
    ----------
    widths, counts: windows since the plan: seconds, and the rows that arrived in them.
    """
    if len(widths) < LEAST_WINDOWS:
        return None
    dispersion = local_dispersion(widths, counts)
    spans = np.cumsum(widths[::-1])
    rows = np.cumsum(counts[::-1])
    usual = spans * planned
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(rows > 0, rows * np.log(rows / usual), 0.0) - (rows - usual)
    ratio = ratio / dispersion
    after = rows / spans
    ratio[: LEAST_WINDOWS - 1] = -math.inf
    ratio[np.abs(after / planned - 1) < LEAST] = -math.inf
    place = int(np.argmax(ratio))
    if not ratio[place] > THRESHOLD:
        return None
    error = math.sqrt(dispersion * max(rows[place], 1.0)) / spans[place]
    return RateChange(planned, float(after[place]), float(error), place + 1, float(spans[place]), float(ratio[place]))


def local_dispersion(widths: Real, counts: Real) -> float:
    """Variance over mean of the rows in a window, from the differences of neighbours, which a drift hardly touches; at least 1.

    The median keeps a step, which is one large difference, from passing for dispersion.
    """
    if len(widths) < LEAST_WINDOWS:
        return 1.0
    rates = counts / widths
    mean = float(counts.sum() / widths.sum())
    if mean <= 0:
        return 1.0
    squares = np.diff(rates) ** 2 / (mean * (1 / widths[1:] + 1 / widths[:-1]))
    return max(
        1.0, float(np.median(squares)) / 0.4549
    )  # the median of a chi-squared variable with one degree of freedom
