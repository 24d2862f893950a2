"""How what was recorded goes on beyond its largest values: as a Pareto distribution, where these fall that slowly."""

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.planner.series import Real

SHARE, LEAST, STEADY = 0.05, 15, 1.5
"""The largest values that tell: such a share of all, and so many at least; and by how much the index may grow with the
values.
"""
HEAVY, HEAVIEST = 4.0, 1.3
"""Tail indices beyond which what was recorded tells all that matters, and below which none is believed."""


@dataclass(frozen=True)
class Tail:
    """Values from ``threshold`` on are redrawn: they fall as ``x ** -index``. An infinite index leaves all as it is.

    Parameters
    ----------
    count: values that the index was estimated from.
    """

    threshold: float
    index: float
    count: int

    def drawn(self, random: np.random.Generator) -> "Tail":
        """An index that these values might as well have come from (the estimate is asymptotically normal)."""
        if math.isinf(self.index):
            return self
        factor = math.exp(random.normal(0.0, 1 / math.sqrt(self.count)))
        return replace(self, index=max(HEAVIEST, self.index * factor))

    def extended(self, values: Real, random: np.random.Generator) -> Real:
        """The values with those from the threshold on redrawn."""
        if math.isinf(self.index):
            return values
        drawn = self.threshold * random.random(len(values)) ** (-1 / self.index)
        return np.where(values >= self.threshold, drawn, values)


def tail_of(values: Real) -> Tail:
    """Hill's estimate (1975, Annals of Statistics 3(5)) of the tail's index."""
    none = Tail(math.inf, math.inf, 0)
    count = int(SHARE * len(values))
    if count < LEAST:
        return none
    largest = np.sort(values)[-count - 1 :]
    index, further = _hill(largest), _hill(largest[-count // 2 :])
    if not index < HEAVY or further > STEADY * index:  # it falls faster and faster, as no Pareto distribution does
        return none
    return Tail(float(largest[0]), max(HEAVIEST, index), count)


def _hill(largest: Real) -> float:
    """The index that values beyond the first show."""
    if largest[0] <= 0:
        return math.inf
    mean = float(np.mean(np.log(largest[1:] / largest[0])))
    return 1 / mean if mean > 0 else math.inf
