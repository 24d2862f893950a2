"""How long a micro-batch lasts, by its rows: fitted robustly, with what the data say of the fit.

A duration is ``fixed + per_row * rows + below_knee * min(rows, knee)``, times a ratio that is drawn from those recorded,
in blocks, for successive ratios are correlated. Small micro-batches are often slower per row than large ones: that is
the knee, which is there only where recordings that were held back are predicted better with it. Beyond the largest
micro-batch that was recorded a duration goes on with the slope of the large ones.

What lasts far longer than all others is a pause (`pauses`), which may belong to a micro-batch or to the clock, and may be
a time of its own or in proportion. Beyond what was recorded ratios go on as their largest do (`tail`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from penstock.planner.gate import Work
from penstock.planner.pauses import Pauses, pauses_of
from penstock.planner.series import Real, Series
from penstock.planner.tail import Tail, tail_of

BLOCK = 8
"""Successive ratios that are drawn together."""
HUBER = 1.5
"""Robust standard deviations beyond which a micro-batch weighs less in the fit."""
PAYS = 0.9
"""A further term must bring the error of what was held back below so much of the error without it."""
SPREAD_OF_ROWS = 1.3
"""The largest batches must have so many times the rows of the smallest, or nothing is known of ``per_row``."""
RUN_TO_RUN = 0.07
"""Relative standard deviation of a run's speed, assumed where too few recordings show it: that of sixty runs of three
queries (docs/background/predictions.md)."""
ENOUGH_RUNS = 6
"""Recordings that show how runs differ; with fewer, the fit takes most of the difference for something else."""

LEAST_FOR_KNEE, BENT = 3, 0.3
"""Recordings that tell whether there is a knee; with fewer, such a share of the draws has one somewhere."""
KNEES = 6
"""Places of a knee that are tried, evenly by ratio between small and large micro-batches."""


@dataclass(frozen=True)
class DurationModel:
    """How long micro-batches of a query last.

    Parameters
    ----------
    fixed, per_row, below_knee: seconds: per micro-batch, per row, and per row up to ``knee`` rows besides.
    errors: standard errors of the three, by name.
    ratios: recorded over fitted durations, in the order of the micro-batches; one array per series.
    times: when those micro-batches ended, in the same shape.
    planning: seconds before rows are fixed, per micro-batch and per row. planned: recorded over those, in the same shape.
    closing: seconds after results are visible, in the same shape.
    pauses: which of the micro-batches had one. tail: how ratios go on beyond those recorded.
    correlation: of successive ratios.
    run_to_run: relative standard deviation of the speed from run to run. assumed_run_to_run: whether it is assumed.
    rows: the least and the most rows of a micro-batch that was recorded (5% and 95%).
    identified: whether the recorded micro-batches differ enough in their rows to tell ``per_row`` from ``fixed``.
    draws: further fits to resampled micro-batches, shape (draws, 4): coefficients and knee, the fit's uncertainty.
    outliers: micro-batches that lasted over twice as long as fitted: pauses of the machine, mostly garbage collection.
    """

    fixed: float
    per_row: float
    below_knee: float
    knee: float
    errors: dict[str, float]
    ratios: tuple[Real, ...]
    times: tuple[Real, ...]
    planning: tuple[float, float]
    planned: tuple[Real, ...]
    closing: tuple[Real, ...]
    pauses: Pauses
    tail: Tail
    correlation: float
    run_to_run: float
    assumed_run_to_run: bool
    rows: tuple[float, float]
    identified: bool
    draws: NDArray[np.float64]
    outliers: int

    def duration(self, rows: float) -> float:
        """Fitted duration of a micro-batch, seconds."""
        return self.fixed + self.per_row * rows + self.below_knee * min(rows, self.knee)

    @property
    def mean_ratio(self) -> float:
        """Mean of the recorded ratios: pauses are in it, and not in the fit."""
        return float(np.concatenate(self.ratios).mean())

    def sustained(self, rows: float) -> float:
        """Seconds that micro-batches of so many rows, one after the other, take in the mean, with their pauses."""
        ratios, pauses = np.concatenate(self.ratios), self.pauses
        if pauses.kind == "ratio" or not pauses.which.any():
            return self.duration(rows) * float(ratios.mean())
        usual = self.duration(rows) * float(np.where(pauses.which, 1.0, ratios).mean())
        if pauses.kind == "own":
            return usual + float(pauses.lasting.mean())
        return usual * (1 + float(pauses.lasting[pauses.which].mean()) / pauses.gap)

    @property
    def scv(self) -> float:
        """Squared coefficient of variation of the ratios."""
        ratios = np.concatenate(self.ratios)
        return float(ratios.var() / ratios.mean() ** 2)

    def drawn(self, random: np.random.Generator) -> "DurationModel":
        """A model that the recordings might as well have led to, of a run with a speed of its own."""
        fixed, per_row, below, knee = self.draws[random.integers(len(self.draws))].tolist()
        speed = float(np.exp(random.normal(0.0, self.run_to_run)))
        return replace(
            self,
            fixed=fixed * speed,
            per_row=per_row * speed,
            below_knee=below * speed,
            knee=knee,
            pauses=self.pauses.drawn(random),
            tail=self.tail.drawn(random),
        )

    def work(self, random: np.random.Generator, rows_per_row: float, span: float, count: int = 4096) -> Work:
        """What micro-batches take during so many seconds, drawn in blocks as they were recorded; in rows of the run's
        source.
        """
        index = self._blocks(random, count)
        ratios, planned, closing = (np.concatenate(values)[index] for values in (self.ratios, self.planned, self.closing))
        ratios = np.where(self.pauses.which[index], ratios, self.tail.extended(ratios, random))
        ratios, pauses, stops, stands = self.pauses.parted(ratios, index, random, span)
        return Work(
            self.fixed,
            self.per_row * rows_per_row,
            self.below_knee * rows_per_row,
            self.knee / rows_per_row,
            ratios,
            pauses,
            self.planning[0],
            self.planning[1] * rows_per_row,
            planned,
            closing,
            stops,
            stands,
        )

    def _blocks(self, random: np.random.Generator, count: int) -> NDArray[np.intp]:
        """Places of micro-batches among all, in blocks of successive ones."""
        lengths = np.array([len(ratios) for ratios in self.ratios])
        blocks = -(-count // BLOCK)
        which = random.choice(len(lengths), size=blocks, p=lengths / lengths.sum())
        first = (random.random(blocks) * lengths[which]).astype(int)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        index = offsets[which][:, None] + (first[:, None] + np.arange(BLOCK)) % lengths[which][:, None]
        return np.asarray(index.ravel()[:count])

    def beside(self, series: Sequence[Series]) -> "DurationModel":
        """A model with these coefficients, and the ratios, planning and closing times of other micro-batches."""
        coefficients = np.array([self.fixed, self.per_row, self.below_knee])
        return replace(self, **_beside(series, self.knee, coefficients, self.identified))

    def longer(self, factor: float) -> "DurationModel":
        """With all micro-batches so many times as long."""
        return replace(
            self,
            fixed=self.fixed * factor,
            per_row=self.per_row * factor,
            below_knee=self.below_knee * factor,
            draws=self.draws * np.array([factor, factor, factor, 1.0]),
        )

    def scaled(self, parallel: float) -> "DurationModel":
        """With so many times the parallel speed: what is spent per row shrinks, what is spent per batch does not."""
        draws = self.draws / np.array([1.0, parallel, parallel, 1.0])
        return replace(self, per_row=self.per_row / parallel, below_knee=self.below_knee / parallel, draws=draws)


def durations_of(series: Sequence[Series], random: np.random.Generator, draws: int = 60) -> DurationModel:
    """Fit the model to the warm micro-batches of one or more series."""
    rows, durations = (np.concatenate([getattr(one, name) for one in series]) for name in ("rows", "durations"))
    least, most = np.quantile(rows, [0.05, 0.95])
    identified = bool(most >= SPREAD_OF_ROWS * least and len(rows) >= 6)
    knee = _knee(series) if identified else 0.0
    if identified:
        chosen = _fit(rows, durations, knee)
        resampled = np.array([_drawn(series, random, knee) for _ in range(draws)])
    else:
        chosen, resampled = _unidentified(series, draws)
    seen = _beside(series, knee, chosen, identified)
    means = np.array([ratio.mean() for ratio in seen["ratios"]])
    between = float(means.std(ddof=1)) if len(means) > 1 else 0.0
    names = ("fixed", "per_row", "below_knee")
    return DurationModel(
        fixed=float(chosen[0]),
        per_row=float(chosen[1]),
        below_knee=float(chosen[2]),
        knee=knee,
        errors=dict(zip(names, resampled[:, :3].std(axis=0).tolist(), strict=True)),
        run_to_run=between if len(series) >= ENOUGH_RUNS else max(between, RUN_TO_RUN),
        assumed_run_to_run=len(series) < ENOUGH_RUNS and between < RUN_TO_RUN,
        rows=(float(least), float(most)),
        identified=identified,
        draws=resampled,
        **seen,
    )


def _beside(series: Sequence[Series], knee: float, coefficients: Real, identified: bool) -> dict[str, Any]:
    """What micro-batches show beside the fit."""
    fitted = [_columns(one.rows, knee) @ coefficients for one in series]
    ratios = tuple(one.durations / lasting for one, lasting in zip(series, fitted, strict=True))
    planning = [np.maximum(one.admitted - one.started, 0.0) for one in series]
    of_rows = _planning(np.concatenate([one.rows for one in series]), np.concatenate(planning), identified)
    pauses = pauses_of(series, fitted)
    return {
        "ratios": ratios,
        "times": tuple(one.ended for one in series),
        "planning": of_rows,
        "planned": tuple(seconds / (of_rows[0] + of_rows[1] * one.rows) for seconds, one in zip(planning, series, strict=True)),
        "closing": tuple(one.ended - one.visible for one in series),
        "pauses": pauses,
        "tail": tail_of(np.concatenate(ratios)[~pauses.which]),
        "correlation": _correlation(ratios),
        "outliers": int(sum((ratio > 2).sum() for ratio in ratios)),
    }


def _planning(rows: Real, seconds: Real, identified: bool) -> tuple[float, float]:
    """Seconds until rows are fixed, per micro-batch and per row; a millisecond at least, so that ratios to it exist."""
    if not identified:
        return max(float(np.median(seconds)), 1e-3), 0.0
    fixed, per_row, _ = _fit(rows, np.maximum(seconds, 1e-3), 0.0).tolist()
    return max(fixed, 1e-3), per_row


def _drawn(series: Sequence[Series], random: np.random.Generator, knee: float) -> Real:
    """A fit to resampled micro-batches, and its knee: any, in some, where too few recordings tell whether there is one."""
    rows, durations = _resampled(series, random, RUN_TO_RUN)
    if not knee and len(series) < LEAST_FOR_KNEE and random.random() < BENT:
        least, most = np.quantile(rows, [0.05, 0.95])
        knee = float(np.exp(random.uniform(np.log(max(least, 1.0)), np.log(max(most, 2.0)))))
    return np.append(_fit(rows, durations, knee), knee)


def _columns(rows: Real, knee: float) -> NDArray[np.float64]:
    return np.stack([np.ones_like(rows), rows, np.minimum(rows, knee)], axis=1)


def _fit(rows: Real, durations: Real, knee: float) -> Real:
    """Least squares of relative errors, those of outliers weighing less; no coefficient is below zero."""
    matrix = _columns(rows, knee)[:, : 3 if knee else 2]
    scale = matrix.max(axis=0)
    weights = 1 / durations
    found = np.zeros(matrix.shape[1])
    for _ in range(6):
        found = lsq_linear(matrix / scale * weights[:, None], durations * weights, bounds=(0, np.inf)).x / scale
        fitted = np.maximum(matrix @ found, 1e-9)
        relative = durations / fitted - 1
        spread = max(1.4826 * float(np.median(np.abs(relative - np.median(relative)))), 1e-6)
        weights = np.sqrt(np.minimum(1.0, HUBER * spread / np.maximum(np.abs(relative), 1e-12))) / fitted
    return np.append(found, np.zeros(3 - len(found)))


def _knee(series: Sequence[Series]) -> float:
    """Where a knee predicts held-back series better than none; 0, where it does not."""
    if len(series) < LEAST_FOR_KNEE:
        return 0.0
    folds = [(one, [other for other in series if other is not one]) for one in series]
    rows = np.concatenate([one.rows for one in series])

    def error(knee: float) -> float:
        total = 0.0
        for held, others in folds:
            known, durations = (np.concatenate([getattr(one, name) for one in others]) for name in ("rows", "durations"))
            predicted = _columns(held.rows, knee) @ _fit(known, durations, knee)
            total += abs(float(np.median(held.durations / np.maximum(predicted, 1e-9))) - 1)
        return total

    least, most = np.quantile(rows, [0.05, 0.95]).tolist()
    places = np.geomspace(max(least, 1.0), max(most, 1.0), KNEES + 2)[1:-1]
    errors = {knee: error(knee) for knee in (0.0, *places.tolist())}
    best = min(errors, key=lambda knee: errors[knee])
    return best if errors[best] < PAYS * errors[0.0] else 0.0


def _resampled(series: Sequence[Series], random: np.random.Generator, spread: float) -> tuple[Real, Real]:
    """Blocks of successive micro-batches, drawn with replacement from each series, each of which has had a speed of its own."""
    rows, durations = [], []
    for one in series:
        starts = random.integers(len(one), size=-(-len(one) // BLOCK))
        index = ((starts[:, None] + np.arange(BLOCK)) % len(one)).ravel()[: len(one)]
        rows.append(one.rows[index])
        durations.append(one.durations[index] * np.exp(random.normal(0.0, spread)))
    return np.concatenate(rows), np.concatenate(durations)


def _unidentified(series: Sequence[Series], draws: int) -> tuple[Real, NDArray[np.float64]]:
    """All batches have about the same rows, so any part of their work may be per row: all shares, from none to the whole."""
    rows = float(np.median(np.concatenate([one.rows for one in series])))
    duration = float(np.median(np.concatenate([one.durations for one in series])))

    def split(share: float) -> list[float]:
        return [(1 - share) * duration, share * duration / rows, 0.0]

    # More of them near none and near all, which are the bounds.
    shares = (1 - np.cos(np.pi * np.linspace(0.0, 1.0, draws))) / 2
    return np.array(split(0.4)), np.array([[*split(share), 0.0] for share in shares.tolist()])


def _correlation(ratios: Sequence[Real]) -> float:
    pairs = [(one[:-1] - one.mean(), one[1:] - one.mean()) for one in ratios if len(one) > 3]
    if not pairs:
        return 0.0
    above = sum(float(a @ b) for a, b in pairs)
    below = sum(float(((one - one.mean()) ** 2).sum()) for one in ratios)
    return above / below if below else 0.0
