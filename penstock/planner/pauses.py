"""Pauses: micro-batches that last far longer than all others, and three explanations of how they recur at another setting.

Garbage collection, a compaction or a slow disk make some micro-batches wait. At another setting such a wait may last as
long as before, or scale with the duration of a micro-batch; and it may recur per time, or per number of micro-batches.
Recordings of several settings tell which; a recording of one setting does not, and then the bands contain all of these.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from penstock.planner.series import Real, Series
from penstock.planner.spread import robust_spread

TIMES, FAR = 2.0, 8.0
"""A micro-batch with a pause lasts this multiple of the fit, and is this many robust standard deviations off."""
MOST = 0.1
"""If a greater share of micro-batches seems to have pauses, these are no pauses: it is how long micro-batches last."""
LIKELIER = 3.0
"""An explanation other than "own" is used for the figures if it is this many times as likely."""

Kind = Literal["own", "ratio", "clock"]
KINDS: tuple[Kind, ...] = ("own", "ratio", "clock")
"""Explanations of pauses. own: a fixed time, once in so many micro-batches. ratio: in proportion to the duration, once in so
many micro-batches. clock: a fixed time, once in so many seconds."""


@dataclass(frozen=True)
class Pauses:
    """Pauses among the micro-batches that were recorded.

    Args:
        which: whether each micro-batch had a pause.
        lasting: seconds of the pause, beyond the fit; 0 where there is none.
        gap: mean seconds of the recordings per pause.
        weights: probabilities of the `KINDS`.
        kind: the one that is used.
        often: how often pauses recur, as a multiple of how often they were recorded.
    """

    which: NDArray[np.bool_]
    lasting: Real
    gap: float
    weights: tuple[float, float, float]
    kind: Kind
    often: float = 1.0

    def drawn(self, random: np.random.Generator) -> "Pauses":
        """These pauses with a random explanation, drawn by the weights, as often as their number in the recording allows: the
        posterior of a Poisson rate with Jeffreys' prior.
        """
        count = int(self.which.sum())
        often = float(random.gamma(count + 0.5)) / count if count else 1.0
        return replace(self, kind=KINDS[int(random.choice(3, p=self.weights))], often=often)

    def parted(
        self, ratios: Real, index: NDArray[np.intp], random: np.random.Generator, span: float
    ) -> tuple[Real, Real, Real, Real]:
        """For drawn micro-batches: ratios without pauses, pauses by micro-batch, moments and lengths of pauses by the clock.

        ``index`` has the drawn micro-batches, ``ratios`` their ratios; ``span`` is the seconds to simulate.
        """
        none = np.empty(0)
        if not self.which.any():
            return ratios, np.zeros(1), none, none
        which = self.which[index]
        apart = np.where(which, 1.0, ratios)
        if self.kind == "clock":
            gap = self.gap / self.often
            stops = np.cumsum(random.exponential(gap, int(span / gap * 1.5) + 20))
            return apart, np.zeros(1), stops, random.choice(self.lasting[self.which], len(stops))
        paused = self._recurring(which, random)
        if self.kind == "own":
            return apart, np.where(paused, random.choice(self.lasting[self.which], len(which)), 0.0), none, none
        ratio = random.choice(ratios[which], len(which)) if which.any() else ratios
        return np.where(paused, np.where(which, ratios, ratio), apart), np.zeros(1), none, none

    def _recurring(self, which: NDArray[np.bool_], random: np.random.Generator) -> NDArray[np.bool_]:
        """Which of the drawn micro-batches have a pause: ``often`` as many as were recorded with one."""
        chance = random.random(len(which))
        if self.often < 1:
            return which & (chance < self.often)
        return which | (chance < (self.often - 1) * float(which.mean()))


def pauses_of(series: Sequence[Series], fitted: Sequence[Real]) -> Pauses:
    """Find the pauses of recorded micro-batches, from the durations fitted to them."""
    durations, lasting = np.concatenate([start.durations for start in series]), np.concatenate(list(fitted))
    logs = np.log(np.maximum(durations, 1e-6) / np.maximum(lasting, 1e-9))
    middle = float(np.median(logs))
    which = logs - middle > max(math.log(TIMES), FAR * robust_spread(logs))
    if which.mean() > MOST:
        which = np.zeros_like(which)
    excess = np.where(which, durations - lasting * math.exp(middle), 0.0)
    recorded = sum(start.span for start in series)
    gap = recorded / max(1, int(which.sum()))
    weights = _weights(series, which, excess, lasting)
    best = max(zip(weights, KINDS, strict=True), key=lambda pair: pair[0])
    kind = best[1] if best[0] > LIKELIER * weights[0] else KINDS[0]
    return Pauses(which, excess, gap, weights, kind)


def _weights(series: Sequence[Series], which: NDArray[np.bool_], excess: Real, fitted: Real) -> tuple[float, float, float]:
    """Probabilities of the `KINDS`; about equal where the recordings have only one setting, or too few pauses."""
    count = int(which.sum())
    if count < 3:
        return (1 / 3, 1 / 3, 1 / 3)
    longest = np.log(excess[which])
    own, ratio = (float(values.std()) + 0.05 for values in (longest, longest - np.log(fitted[which])))
    proportion = min(count, 30) * (math.log(own) - math.log(ratio))  # log-likelihood ratio
    edges = np.cumsum([0, *map(len, series)])
    seen = np.array([which[low:high].sum() for low, high in pairwise(edges.tolist())], dtype=float)
    batches, spans = np.diff(edges).astype(float), np.array([start.span for start in series])
    clock = _poisson(seen, spans) - _poisson(seen, batches)
    logs = np.array([0.0, proportion, clock])
    values = np.exp(np.clip(logs - logs.max(), -50.0, 0.0))
    own_weight, ratio_weight, clock_weight = (values / values.sum()).tolist()
    return own_weight, ratio_weight, clock_weight


def _poisson(seen: Real, exposures: Real) -> float:
    """The log-likelihood of Poisson counts with one rate per exposure, at the best rate."""
    means = np.maximum(exposures * seen.sum() / exposures.sum(), 1e-9)
    return float((seen * np.log(means) - means).sum())
