"""Changes of the rate of arrivals: since a plan was made, by a generalised likelihood ratio, or a single one in a recording.

The rows of each window between two admissions are assumed to be Poisson, with a dispersion that is estimated from the windows.
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
"""Log-likelihood ratio above which chance is ruled out: it was never reached in the 120,000 windows of its test."""
LEAST = 0.15
"""The smallest relative change of the rate that matters to a plan."""
LEAST_WINDOWS = 3
"""Windows since a change that are needed to believe it."""

LEVEL, LEVEL_LEAST, LIKELY = 0.2, 40, 16.0
"""A recording has a single change of the rate if the rates before and after differ by at least this share, each side has this
many windows, and the squared difference is this multiple of its variance, which the best of all splits hardly reaches by
chance."""


@dataclass(frozen=True)
class RateChange:
    """A change of the rate.

    Args:
        before, after: rows per second.
        error: standard error of ``after``.
        windows, seconds: since the change.
        statistic: log-likelihood ratio, divided by the dispersion.
    """

    before: float
    after: float
    error: float
    windows: int
    seconds: float
    statistic: float


def rate_change(widths: Real, counts: Real, planned: float) -> RateChange | None:
    """The change of the rate from the planned one, if it is significant and large enough to matter; else None.

    Args:
        widths, counts: seconds of the windows since the plan, and the rows that arrived in them.
    """
    if len(widths) < LEAST_WINDOWS:
        return None
    # Each place stands for a change so many windows before the end; the sums run backwards from the last window.
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
    """Variance over mean of the rows in a window, at least 1, from the differences of neighbours, which a drift hardly changes.

    The median keeps a step of the rate, which is one large difference, from counting as dispersion.
    """
    if len(widths) < LEAST_WINDOWS:
        return 1.0
    rates = counts / widths
    mean = float(counts.sum() / widths.sum())
    if mean <= 0:
        return 1.0
    squares = np.diff(rates) ** 2 / (mean * (1 / widths[1:] + 1 / widths[:-1]))
    return max(1.0, float(np.median(squares)) / 0.4549)  # the median of a chi-squared variable with one degree of freedom


def level_change(widths: Real, counts: Real) -> int | None:
    """Index of the first window after a single, lasting change of the rate, as by a deployment upstream; None without one.

    It is the best split into two rates (least squares). It counts if it explains nearly all variation of the rate beyond
    chance: a rate that goes up and down is not explained by one change.
    """
    if len(widths) <= 2 * LEVEL_LEAST:
        return None
    rates = counts / widths
    total, done = np.cumsum(counts), np.cumsum(widths)
    places = np.arange(LEVEL_LEAST, len(widths) - LEVEL_LEAST)
    before = total[places - 1] / done[places - 1]
    after = (total[-1] - total[places - 1]) / (done[-1] - done[places - 1])
    gain = done[places - 1] * before**2 + (done[-1] - done[places - 1]) * after**2
    place = int(places[np.argmax(gain)])
    low, high = (
        float(total[place - 1] / done[place - 1]),
        float((total[-1] - total[place - 1]) / (done[-1] - done[place - 1])),
    )
    if abs(high - low) < LEVEL * max(low, high) or min(low, high) <= 0:
        return None
    fitted = np.where(np.arange(len(widths)) < place, low, high)
    spread = max(1.0, float(np.sum((counts - fitted * widths) ** 2) / np.sum(fitted * widths)))
    by_chance = spread * (low / done[place - 1] + high / (done[-1] - done[place - 1]))
    if (high - low) ** 2 < LIKELY * by_chance:
        return None
    chance = _variogram(rates / fitted)
    unexplained = [_wandering((rates / fitted)[part], chance) for part in (slice(0, place), slice(place, None))]
    apart = (high - low) ** 2 / 4 / ((high + low) / 2) ** 2
    return place if max(unexplained) < 0.1 * apart else None


def _variogram(values: Real) -> float:
    """The variance of values about a slowly moving level, estimated from successive differences."""
    return float(np.mean(np.diff(values) ** 2) / 2)


def _wandering(values: Real, chance: float) -> float:
    """The variance of the means of parts of the values, less the variance that is expected by chance."""
    parts = np.array_split(values, min(12, len(values) // 8))
    noise = float(np.mean([chance / len(part) for part in parts]))
    return max(0.0, float(np.var([part.mean() for part in parts])) - noise)
