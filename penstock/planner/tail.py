"""The tail of recorded values: a Pareto distribution of the largest ones, where these fall off that slowly."""

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.planner.series import Real

SHARE, LEAST, STEADY = 0.05, 15, 1.5
"""The largest values that the index is estimated from: their share of all, and their least number; and the factor by which the
index may grow further out.
"""
HEAVY, HEAVIEST = 4.0, 1.3
"""Tail indices above which the recorded values suffice, and below which an estimate is not believed."""


@dataclass(frozen=True)
class HeavyTail:
    """Values from ``threshold`` on fall off as ``x ** -index`` and are redrawn; with an infinite index none are.

    Args:
        count: number of values that the index was estimated from.
    """

    threshold: float
    index: float
    count: int

    def drawn(self, random: np.random.Generator) -> "HeavyTail":
        """The tail with a random index, drawn by the uncertainty of the estimate (which is asymptotically normal)."""
        if math.isinf(self.index):
            return self
        factor = math.exp(random.normal(0.0, 1 / math.sqrt(self.count)))
        return replace(self, index=max(HEAVIEST, self.index * factor))

    def extended(self, values: Real, random: np.random.Generator) -> Real:
        """The values, with those from the threshold on redrawn."""
        if math.isinf(self.index):
            return values
        drawn = self.threshold * random.random(len(values)) ** (-1 / self.index)
        return np.where(values >= self.threshold, drawn, values)


def tail_of(values: Real) -> HeavyTail:
    """The tail of values, by Hill's estimate (1975, Annals of Statistics 3(5)) of its index; infinite if it is not heavy."""
    none = HeavyTail(math.inf, math.inf, 0)
    count = int(SHARE * len(values))
    if count < LEAST:
        return none
    largest = np.sort(values)[-count - 1 :]
    index, further = _hill(largest), _hill(largest[-count // 2 :])
    if not index < HEAVY or further > STEADY * index:  # no Pareto distribution falls off faster and faster
        return none
    return HeavyTail(float(largest[0]), max(HEAVIEST, index), count)


def _hill(largest: Real) -> float:
    """Hill's estimate of the index from ascending values, the first of which is the threshold."""
    if largest[0] <= 0:
        return math.inf
    mean = float(np.mean(np.log(largest[1:] / largest[0])))
    return 1 / mean if mean > 0 else math.inf
