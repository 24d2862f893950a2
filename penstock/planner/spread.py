"""The robust standard deviation of a sample, which single values far off do not change."""

import numpy as np
from numpy.typing import NDArray

MAD = 1.4826
"""The standard deviation of a normal distribution is so many times the median distance from its median."""


def robust_spread(values: NDArray[np.float64], about: float | None = None) -> float:
    """Return the robust standard deviation of values about a point; by default about their median."""
    middle = float(np.median(values)) if about is None else about
    return MAD * float(np.median(np.abs(values - middle)))
