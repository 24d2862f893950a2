"""How long a micro-batch lasts, by its rows: a robust fit, and its uncertainty.

A duration is ``fixed + per_row * rows + below_knee * min(rows, knee)``, times a ratio that is drawn from the recorded ratios,
in blocks, for successive ratios are correlated. Small micro-batches are often slower per row than large ones: the knee
models that. It is fitted only if it predicts held-back recordings better. Beyond the largest recorded micro-batch,
durations grow with the slope of the large ones.

A micro-batch that lasts far longer than all others has a pause (`pauses`): a fixed time, or in proportion to its duration,
and recurring by the number of micro-batches or by the clock. Ratios beyond the recorded ones follow the `tail` of these.
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
from penstock.planner.spread import robust_spread
from penstock.planner.tail import HeavyTail, tail_of

BLOCK = 8
"""Number of successive ratios that are drawn together."""
HUBER = 1.5
"""Robust standard deviations beyond which a micro-batch weighs less in the fit."""
PAYS = 0.9
"""A knee must bring the error on held-back recordings below this share of the error without it."""
SPREAD_OF_ROWS = 1.3
"""The largest batches must have this multiple of the rows of the smallest, or else ``per_row`` cannot be identified."""
AT_BOUND = 0.01
"""A part of a duration below this share of it is at its bound of zero."""
LARGE, LEAST_LARGE = 3.0, 20
"""Three micro-batches with this multiple of the rows of most others tell ``per_row``, too, among so many."""
RUN_TO_RUN = 0.09
"""Relative standard deviation of the speed from run to run, assumed where too few recordings show it: measured on 212
runs of ten queries (docs/background/predictions.md)."""
ENOUGH_RUNS = 6
"""Recordings that are needed to measure how runs differ; with fewer, the fit explains most of the difference otherwise."""

LEAST_FOR_KNEE, BENT = 3, 0.3
"""Recordings that are needed to fit a knee; with fewer, this share of the draws has a knee at a random place."""
KNEES = 6
"""Number of places at which a knee is tried, spaced geometrically between small and large micro-batches."""


@dataclass(frozen=True)
class DurationModel:
    """How long micro-batches of a query last.

    Args:
        fixed, per_row, below_knee: seconds per micro-batch, per row, and additionally per row up to ``knee`` rows.
        errors: standard errors of these three, by name.
        ratios: recorded over fitted durations, in the order of the micro-batches; one array per series.
        times: when those micro-batches ended, in the same shape.
        planning: seconds until the rows are fixed, per micro-batch and per row.
        planned: recorded over fitted planning times, in the same shape.
        closing: seconds from when results are visible to the end, in the same shape.
        pauses: of the recorded micro-batches.
        tail: the distribution of ratios beyond the recorded ones.
        correlation: of successive ratios.
        run_to_run: relative standard deviation of the speed from run to run.
        assumed_run_to_run: whether it is assumed.
        rows: the 5% and 95% quantiles of the rows of a recorded micro-batch; the third largest where that is far larger.
        identified: whether the recorded micro-batches differ enough in their rows to tell ``per_row`` from ``fixed``.
        draws: fits to resampled micro-batches, for the uncertainty of the fit; shape (draws, 4): coefficients and knee.
        outliers: number of micro-batches that lasted over twice as long as fitted, mostly by garbage collection.
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
    tail: HeavyTail
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
        """Mean of the recorded ratios, which contains the pauses; the robust fit does not."""
        return float(np.concatenate(self.ratios).mean())

    def sustained(self, rows: float) -> float:
        """Return the mean duration of a micro-batch of so many rows, in seconds, if each starts as the one before it ends.

        It includes pauses, by their kind: ``ratio`` lengthen a micro-batch by a factor, ``own`` add a time to some
        micro-batches, and the others add a time to each second of work.
        """
        ratios, pauses = np.concatenate(self.ratios), self.pauses
        if pauses.kind == "ratio" or not pauses.which.any():
            return self.duration(rows) * float(ratios.mean())
        usual = self.duration(rows) * float(np.where(pauses.which, 1.0, ratios).mean())
        if pauses.kind == "own":
            return usual + pauses.often * float(pauses.lasting.mean())
        return usual * (1 + pauses.often * float(pauses.lasting[pauses.which].mean()) / pauses.gap)

    @property
    def scv(self) -> float:
        """Squared coefficient of variation of the ratios."""
        ratios = np.concatenate(self.ratios)
        return float(ratios.var() / ratios.mean() ** 2)

    def drawn(self, random: np.random.Generator) -> "DurationModel":
        """A random model that the recordings also allow, for a run with a random speed."""
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
        """Draw what ``count`` micro-batches of a simulation take, by drawing recorded ones in blocks, which keeps slow spells.

        Args:
            rows_per_row: rows that this query reads for each row of the run's source; the result is per row of the source.
            span: the length of the simulation in seconds, over which the pauses are spread.
        """
        index = self._blocks(random, count)
        ratios, planned, closing = (np.concatenate(values)[index] for values in (self.ratios, self.planned, self.closing))
        # A recording is short, so ratios beyond its greatest are drawn from the fitted tail; those of pauses are kept apart.
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
        """Random indices into all recorded micro-batches, in blocks of successive ones."""
        lengths = np.array([len(ratios) for ratios in self.ratios])
        blocks = -(-count // BLOCK)
        which = random.choice(len(lengths), size=blocks, p=lengths / lengths.sum())
        first = (random.random(blocks) * lengths[which]).astype(int)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        index = offsets[which][:, None] + (first[:, None] + np.arange(BLOCK)) % lengths[which][:, None]
        return np.asarray(index.ravel()[:count])

    def beside(self, series: Sequence[Series]) -> "DurationModel":
        """The model with these coefficients, but the ratios, planning and closing times of ``series``."""
        coefficients = np.array([self.fixed, self.per_row, self.below_knee])
        return replace(self, **_beside(series, self.knee, coefficients, self.identified))

    def longer(self, factor: float) -> "DurationModel":
        """The model with all micro-batches ``factor`` times as long."""
        return replace(
            self,
            fixed=self.fixed * factor,
            per_row=self.per_row * factor,
            below_knee=self.below_knee * factor,
            draws=self.draws * np.array([factor, factor, factor, 1.0]),
        )

    def scaled(self, parallel: float) -> "DurationModel":
        """The model at a multiple of the parallel speed: the time per row shrinks, the fixed time stays."""
        draws = self.draws / np.array([1.0, parallel, parallel, 1.0])
        return replace(self, per_row=self.per_row / parallel, below_knee=self.below_knee / parallel, draws=draws)


def durations_of(series: Sequence[Series], random: np.random.Generator, draws: int = 60) -> DurationModel:
    """Fit the model to the warm micro-batches of one or more series."""
    rows, durations = (np.concatenate([getattr(start, name) for start in series]) for name in ("rows", "durations"))
    least, most = np.quantile(rows, [0.05, 0.95])
    if len(rows) >= LEAST_LARGE and (large := np.sort(rows)[-3]) >= LARGE * most:
        most = large
    identified = bool(most >= SPREAD_OF_ROWS * least and len(rows) >= 6)
    knee = _knee(series) if identified else 0.0
    if identified:
        chosen = _fit(rows, durations, knee)
        resampled = np.array([_drawn(series, random, knee) for _ in range(draws)])
        if min(chosen[0], chosen[1] * most) < AT_BOUND * float(np.median(durations)):
            chosen = resampled[:, :3].mean(axis=0)  # recordings at several speeds may fit best where all is the rows', or none
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
    """The fields of a `DurationModel` that compare micro-batches with a fit: ratios, planning, closing, pauses, tail."""
    fitted = [_columns(start.rows, knee) @ coefficients for start in series]
    ratios = tuple(start.durations / lasting for start, lasting in zip(series, fitted, strict=True))
    planning = [np.maximum(start.admitted - start.started, 0.0) for start in series]
    of_rows = _planning(np.concatenate([start.rows for start in series]), np.concatenate(planning), identified)
    pauses = pauses_of(series, fitted)
    return {
        "ratios": ratios,
        "times": tuple(start.ended for start in series),
        "planning": of_rows,
        "planned": tuple(
            seconds / (of_rows[0] + of_rows[1] * start.rows) for seconds, start in zip(planning, series, strict=True)
        ),
        "closing": tuple(start.ended - start.visible for start in series),
        "pauses": pauses,
        "tail": tail_of(np.concatenate(ratios)[~pauses.which]),
        "correlation": _correlation(ratios),
        "outliers": int(sum((ratio > 2).sum() for ratio in ratios)),
    }


def _planning(rows: Real, seconds: Real, identified: bool) -> tuple[float, float]:
    """Fit the seconds until rows are fixed, per micro-batch (at least 1 ms, so that ratios to it exist) and per row."""
    if not identified:
        return max(float(np.median(seconds)), 1e-3), 0.0
    fixed, per_row, _ = _fit(rows, np.maximum(seconds, 1e-3), 0.0).tolist()
    return max(fixed, 1e-3), per_row


def _drawn(series: Sequence[Series], random: np.random.Generator, knee: float) -> Real:
    """A fit to resampled micro-batches, and its knee: at a random place in some, if too few recordings tell about a knee."""
    rows, durations = _resampled(series, random, RUN_TO_RUN)
    if not knee and len(series) < LEAST_FOR_KNEE and random.random() < BENT:
        least, most = np.quantile(rows, [0.05, 0.95])
        knee = float(np.exp(random.uniform(np.log(max(least, 1.0)), np.log(max(most, 2.0)))))
    return np.append(_fit(rows, durations, knee), knee)


def _columns(rows: Real, knee: float) -> NDArray[np.float64]:
    """The matrix of the fit, with one column for each of ``fixed``, ``per_row`` and ``below_knee``."""
    return np.stack([np.ones_like(rows), rows, np.minimum(rows, knee)], axis=1)


def _fit(rows: Real, durations: Real, knee: float) -> Real:
    """Least squares of the relative errors, in which outliers weigh less (Huber's weights); no coefficient is negative."""
    matrix = _columns(rows, knee)[:, : 3 if knee else 2]
    scale = matrix.max(axis=0)
    weights = 1 / durations
    coefficients = np.zeros(matrix.shape[1])
    for _ in range(6):
        with np.errstate(invalid="ignore"):  # its steps to a bound of infinity may be 0 times it
            coefficients = lsq_linear(matrix / scale * weights[:, None], durations * weights, bounds=(0, np.inf)).x / scale
        fitted = np.maximum(matrix @ coefficients, 1e-9)
        relative = durations / fitted - 1
        spread = max(robust_spread(relative), 1e-6)
        weights = np.sqrt(np.minimum(1.0, HUBER * spread / np.maximum(np.abs(relative), 1e-12))) / fitted
    return np.append(coefficients, np.zeros(3 - len(coefficients)))


def _knee(series: Sequence[Series]) -> float:
    """The rows at which a knee predicts held-back series best; 0 if no knee is clearly better than none."""
    if len(series) < LEAST_FOR_KNEE:
        return 0.0
    folds = [(held, [other for other in series if other is not held]) for held in series]
    rows = np.concatenate([start.rows for start in series])

    def error(knee: float) -> float:
        total = 0.0
        for held, others in folds:
            known, durations = (np.concatenate([getattr(other, name) for other in others]) for name in ("rows", "durations"))
            predicted = _columns(held.rows, knee) @ _fit(known, durations, knee)
            total += abs(float(np.median(held.durations / np.maximum(predicted, 1e-9))) - 1)
        return total

    least, most = np.quantile(rows, [0.05, 0.95]).tolist()
    places = np.geomspace(max(least, 1.0), max(most, 1.0), KNEES + 2)[1:-1]
    errors = {knee: error(knee) for knee in (0.0, *places.tolist())}
    best = min(errors, key=lambda knee: errors[knee])
    return best if errors[best] < PAYS * errors[0.0] else 0.0


def _resampled(series: Sequence[Series], random: np.random.Generator, spread: float) -> tuple[Real, Real]:
    """Rows and durations of blocks of micro-batches, drawn with replacement from each series, which gets a random speed."""
    rows, durations = [], []
    for start in series:
        starts = random.integers(len(start), size=-(-len(start) // BLOCK))
        index = ((starts[:, None] + np.arange(BLOCK)) % len(start)).ravel()[: len(start)]
        rows.append(start.rows[index])
        durations.append(start.durations[index] * np.exp(random.normal(0.0, spread)))
    return np.concatenate(rows), np.concatenate(durations)


def _unidentified(series: Sequence[Series], draws: int) -> tuple[Real, NDArray[np.float64]]:
    """The fit and its draws where all batches have about the same rows: any share of their work, 0 to 1, may be per row."""
    rows = float(np.median(np.concatenate([start.rows for start in series])))
    duration = float(np.median(np.concatenate([start.durations for start in series])))

    def split(share: float) -> list[float]:
        return [(1 - share) * duration, share * duration / rows, 0.0]

    # Most shares are near 0 and near 1, which decide the bounds of the bands.
    shares = (1 - np.cos(np.pi * np.linspace(0.0, 1.0, draws))) / 2
    return np.array(split(0.4)), np.array([[*split(share), 0.0] for share in shares.tolist()])


def _correlation(ratios: Sequence[Real]) -> float:
    pairs = [(own[:-1] - own.mean(), own[1:] - own.mean()) for own in ratios if len(own) > 3]
    if not pairs:
        return 0.0
    above = sum(float(a @ b) for a, b in pairs)
    below = sum(float(((own - own.mean()) ** 2).sum()) for own in ratios)
    return above / below if below else 0.0
