"""Pauses: micro-batches that last far longer than all others, by a time of their own or in proportion, by number or by clock.

Garbage collection, a compaction or a slow disk make some micro-batches wait. In another setting such a wait may last as
long as before, or as many times longer as a micro-batch is; and it may come as often by the clock, or as often by number.
Recordings of more than one setting tell; one alone does not, and then the bands have all of these.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.planner.series import Real, Series

TIMES, FAR = 2.0, 8.0
"""A pause lasts so many times what is fitted, and is so many robust standard deviations off."""
MOST = 0.1
"""A greater share of micro-batches has no pauses: it is how long they last."""
LIKELIER = 3.0
"""One explanation is taken for the point where it is so many times as likely as the one before it."""

Kind = Literal["own", "ratio", "clock"]
KINDS: tuple[Kind, ...] = ("own", "ratio", "clock")
"""A time of its own by number, in proportion by number, a time of its own by the clock."""


@dataclass(frozen=True)
class Pauses:
    """Pauses among the micro-batches that were recorded.

    Parameters
    ----------
    which: which of all micro-batches had one. lasting: seconds of each micro-batch beyond what is fitted; 0 where none.
    gap: seconds of the recordings for each pause.
    weights: how likely each of `KINDS` is. kind: the one that is taken.
    """

    which: NDArray[np.bool_]
    lasting: Real
    gap: float
    weights: tuple[float, float, float]
    kind: Kind

    def drawn(self, random: np.random.Generator) -> "Pauses":
        """These pauses by an explanation that is as likely as the recordings have it."""
        return replace(self, kind=KINDS[int(random.choice(3, p=self.weights))])

    def parted(
        self, ratios: Real, index: NDArray[np.intp], random: np.random.Generator, span: float
    ) -> tuple[Real, Real, Real, Real]:
        """Of micro-batches that were drawn: ratios and pauses apart, and moments and lengths of those by the clock."""
        none = np.empty(0)
        which = self.which[index]
        if self.kind == "ratio" or not self.which.any():
            return ratios, np.zeros(1), none, none
        apart = np.where(which, 1.0, ratios)
        if self.kind == "own":
            return apart, np.where(which, self.lasting[index], 0.0), none, none
        stops = np.cumsum(random.exponential(self.gap, int(span / self.gap * 1.5) + 20))
        return apart, np.zeros(1), stops, random.choice(self.lasting[self.which], len(stops))


def pauses_of(series: Sequence[Series], fitted: Sequence[Real]) -> Pauses:
    """The pauses of recorded micro-batches, beside what is fitted for each."""
    durations, lasting = np.concatenate([one.durations for one in series]), np.concatenate(list(fitted))
    logs = np.log(np.maximum(durations, 1e-6) / np.maximum(lasting, 1e-9))
    middle = float(np.median(logs))
    spread = 1.4826 * float(np.median(np.abs(logs - middle)))
    which = logs - middle > max(math.log(TIMES), FAR * spread)
    if which.mean() > MOST:
        which = np.zeros_like(which)
    excess = np.where(which, durations - lasting * math.exp(middle), 0.0)
    recorded = sum(one.span for one in series)
    gap = recorded / max(1, int(which.sum()))
    weights = _weights(series, which, excess, lasting)
    best = max(zip(weights, KINDS, strict=True), key=lambda pair: pair[0])
    kind = best[1] if best[0] > LIKELIER * weights[0] else KINDS[0]
    return Pauses(which, excess, gap, weights, kind)


def _weights(series: Sequence[Series], which: NDArray[np.bool_], excess: Real, fitted: Real) -> tuple[float, float, float]:
    """How likely each of `KINDS` is; about equally, where the recordings have one setting, or too few pauses."""
    count = int(which.sum())
    if count < 3:
        return (1 / 3, 1 / 3, 1 / 3)
    longest = np.log(excess[which])
    own, ratio = (float(values.std()) + 0.05 for values in (longest, longest - np.log(fitted[which])))
    proportion = min(count, 30) * (math.log(own) - math.log(ratio))  # of the logarithms of the likelihoods
    edges = np.cumsum([0, *map(len, series)])
    seen = np.array([which[low:high].sum() for low, high in pairwise(edges.tolist())], dtype=float)
    batches, spans = np.diff(edges).astype(float), np.array([one.span for one in series])
    clock = _poisson(seen, spans) - _poisson(seen, batches)
    logs = np.array([0.0, proportion, clock])
    values = np.exp(np.clip(logs - logs.max(), -50.0, 0.0))
    own_weight, ratio_weight, clock_weight = (values / values.sum()).tolist()
    return own_weight, ratio_weight, clock_weight


def _poisson(seen: Real, exposures: Real) -> float:
    """The likelihood's logarithm of counts that are Poisson with a rate per exposure, at the best rate."""
    means = np.maximum(exposures * seen.sum() / exposures.sum(), 1e-9)
    return float((seen * np.log(means) - means).sum())
