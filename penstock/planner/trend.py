"""Trends of measurements: the change over their length, and the probability that it is chance."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import kendalltau, theilslopes

COMPARED = 1_000
"""The most values that are compared pairwise: time and memory grow as the square."""


@dataclass(frozen=True)
class Trend:
    """A robust straight line (Theil and Sen's) through values over time.

    Args:
        change: from the first value to the last, relative to the median.
        p: probability of such an order by chance (Kendall's).
    """

    change: float
    p: float

    def grows(self, least: float) -> bool:
        """Whether the values grow by more than the share ``least``, and not by chance."""
        return self.change > least and self.p < 0.001


def trend_of(times: ArrayLike, values: ArrayLike) -> Trend:
    """The trend of values over times in seconds; no change if there are fewer than eight."""
    at, seen = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    if len(seen) < 8 or float(seen.max()) == float(seen.min()):
        return Trend(0.0, 1.0)
    slope = float(theilslopes(*_thinned(seen, at))[0])
    middle = float(np.median(np.abs(seen)))
    change = slope * float(at[-1] - at[0]) / middle if middle else 0.0
    return Trend(change, float(kendalltau(at, seen).pvalue))


def _thinned(*arrays: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """The medians of successive parts of the arrays, which are few enough to compare pairwise."""
    if len(arrays[0]) <= COMPARED:
        return list(arrays)
    return [np.array([np.median(part) for part in np.array_split(values, COMPARED)]) for values in arrays]
