"""The micro-batches of one start of a query, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from penstock.planner.spread import robust_spread
from penstock.runs.record import Record

Real = NDArray[np.float64]

BACK_TO_BACK_S = 0.05
"""A micro-batch that starts so soon after the end of the last one has waited for no trigger."""
HURRIED = 0.9
"""Where the starts are too few to tell, micro-batches are taken to be back to back if this share of the time is busy."""
LEAST_MAXIMUM = 50
"""From so many rows on, three micro-batches with exactly the largest number of rows are no chance: they hit a maximum."""
LEAST_CAPPED, CAPPED = 8, 0.98
"""Micro-batches that are needed to infer a maximum of rows, and the share of the maximum that counts as reaching it."""
IDLE_S, LOOKS_S = 10.0, 0.1
"""Seconds after which an idle query reports that it found nothing, and the tolerance of that where no trigger is set."""
HELD, VARIES, PIECES = 0.9, 0.01, 0.5
"""How a gate that holds rows back shows: the smallest micro-batch has at least the first share of the median rows; the gaps
vary by at least the second more than the rows do (coefficients of variation), and by no more than the third."""
GATED = (0.3, 4.0)
"""The least and the most dispersion of arrivals with which a gate is believed."""
NO_GATE = ("FileStreamSource", "DeltaSource", "CloudFilesSource", "RateStream", "Iceberg", "Kinesis")
"""Beginnings of the descriptions of sources that cannot be told to hold rows back until there are more."""
SHORTEST_S, POLL_S = 1e-3, 0.01
"""The shortest window between two looks at a source; the interval at which Spark looks again where no trigger is set."""
MOSTLY = 0.9
"""Where this share of the starts waited for a trigger, those after missing progress are taken to have waited, too."""
LATE_S = 0.5
"""How far starts may lie off the grid of a trigger interval for it to be recognised."""
LEAST_DIVISOR_S, MOST_TRIGGERS = 1.0, 400
"""The shortest trigger interval that is inferred, in seconds, as any starts fit a finer grid; the most triggers of which only
one may find rows."""
GRID_S, POLLED_S = (0.005, 0.06), (0.001, 0.015)
"""How far before and after Spark's grid the starts of a trigger lie, at most; the spread of starts that waited for rows, in
standard deviations; the standard deviation of a normal distribution over its median absolute deviation."""
ROUND_S = (3600, 600, 300, 60, 30, 10, 5, 1, 0.5, 0.25, 0.1, 0.05, 0.01)
"""Steps of which the intervals that people choose are multiples, the largest first."""
TRIGGERS_S = (
    *(0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.8),
    *(half / 2 for half in range(2, 21)),
    *range(11, 61),
    *(90, 120, 180, 300, 600, 900, 1200, 1800, 3600),
)
"""Trigger intervals that people choose, of which one is recognised from the starts of micro-batches."""


@dataclass(frozen=True)
class Series:
    """Micro-batches with data, in order; every array has one entry per micro-batch. Times are in seconds since the epoch.

    Args:
        numbers: of the micro-batches.
        started, ended: when their triggers did.
        admitted: when it was fixed which rows they take.
        visible: when their results became visible.
        rows: taken.
        waiting: rows that were there and left for later.
        keys: number of distinct keys, nan where unknown.
        whole: whether the progress of the micro-batch before was recorded, too.
        outstanding: files, bytes or rows that were left for later; nan where the source does not say.
        gated: whether all its sources may hold rows back.
        empty, again, since: when, after the micro-batch before, a trigger was reported to find nothing for the first, the
            second and the last time; nan where no such report is known.
    """

    numbers: Real
    started: Real
    admitted: Real
    visible: Real
    ended: Real
    rows: Real
    waiting: Real
    keys: Real
    whole: NDArray[np.bool_]
    outstanding: Real
    gated: NDArray[np.bool_]
    empty: Real
    again: Real
    since: Real

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, which: slice | NDArray[np.bool_]) -> "Series":
        return replace(self, **{field.name: getattr(self, field.name)[which] for field in fields(self)})

    @property
    def durations(self) -> Real:
        """Seconds from the start to the end of each micro-batch."""
        return self.ended - self.started

    @property
    def span(self) -> float:
        """Seconds from the first start to the last end. Where progress is missing behind a micro-batch, those until the next
        start are reckoned from its duration, as they are in proportion elsewhere: the others had unknown micro-batches.
        """
        if not len(self):
            return 0.0
        gaps, lasting, known = np.diff(self.started), self.durations[:-1], self.whole[1:]
        busy = float(lasting[known].sum() / gaps[known].sum()) if known.any() else 1.0
        return float(np.where(known, gaps, lasting / max(busy, 1e-9)).sum() + self.durations[-1])

    @property
    def busy(self) -> float:
        """Share of the time during which a micro-batch ran."""
        return float(self.durations.sum() / self.span) if len(self) else 0.0

    @property
    def hurried(self) -> bool:
        """Whether micro-batches follow each other at once."""
        trigger = self.trigger()
        return self.busy > HURRIED if trigger is None else trigger == 0

    @property
    def ceiling(self) -> float | None:
        """The maximum of rows per trigger, if most micro-batches reach it while more rows wait or may wait; else None."""
        if len(self) < LEAST_CAPPED:
            return None
        most = float(self.rows.max())
        capped = self.rows >= CAPPED * most
        waits = self.outstanding[capped] > 0
        known = np.isfinite(self.outstanding[capped])
        if most < 2 or capped.mean() < 0.5 or not (waits | ~known).mean() > 0.5:
            return None
        exact = float((self.rows == most).mean()) > 0.5
        return most if waits.mean() > 0.5 or (exact and self.busy > HURRIED) else None

    @property
    def maximum(self) -> float | None:
        """The maximum of rows per trigger, if at least some micro-batches seem to reach it; else None."""
        if self.ceiling is not None or len(self) < LEAST_CAPPED:
            return self.ceiling
        most = float(self.rows.max())
        capped = self.rows == most
        outstanding = self.outstanding[capped]
        if most < LEAST_MAXIMUM or capped.sum() < 3 or capped.mean() > 0.5 or (outstanding == 0).any():
            return None
        return most

    @property
    def hides(self) -> bool:
        """Whether micro-batches reach a maximum of rows and the source does not say how many wait behind it."""
        return self.maximum is not None and bool(np.isnan(self.outstanding[self.rows == self.rows.max()]).any())

    def windows(self, *, quiet: bool = False) -> tuple[Real, Real]:
        """The windows between successive admissions: their seconds, and the rows that arrived in them.

        Args:
            quiet: whether to split a window where a trigger found nothing (not for a source whose gate holds rows back).
        """
        begins, ends = self.admitted[:-1], self.admitted[1:]
        counts = np.maximum(self.rows[1:] + np.diff(self.waiting), 0.0)
        valid = self.whole[1:] & (ends > begins)
        # A window of which a trigger last found nothing has no rows before that moment, and all of them after it.
        last = np.clip(np.nan_to_num(self.quiet()[1:], nan=-np.inf), begins, ends) if quiet else begins
        widths = np.stack([last - begins, ends - last], axis=1)[valid]
        parted = np.stack([np.zeros(len(counts)), counts], axis=1)[valid]
        some = widths > 0
        some[:, 1] |= parted[:, 1] > 0
        return np.maximum(widths[some], SHORTEST_S), parted[some]

    def quiet(self) -> Real:
        """For each micro-batch, when a trigger last found none of its rows there; nan where that is not known.

        It follows from progress (`since`), or from the interval: had a row been there at the trigger before, a micro-batch
        would have begun then.
        """
        if self.holds:
            return np.full(len(self), np.nan)
        interval = self.trigger()
        if interval is None or not len(self) or not self._keeps(interval):
            return self.since
        before = np.append(np.inf, np.where(self.whole[1:], self.ended[:-1], np.inf))
        at = self.started - interval
        if not interval:  # without an interval, Spark looks again every POLL_S
            at = np.where(self.started - before > BACK_TO_BACK_S, 2 * self.started - self.admitted - POLL_S, -np.inf)
        proved = np.where(at >= before, at, np.nan)
        return np.fmax(self.since, np.where(self.outstanding > 0, np.nan, proved))

    @property
    def holds(self) -> bool:
        """Whether a gate seems to hold rows back: no micro-batch is small, and the gaps between them vary more than rows do."""
        if len(self) < LEAST_CAPPED:
            return False
        rows, gaps = self.rows, np.diff(self.started)
        varies = float(gaps.std() / gaps.mean())
        # Gaps that vary far more, or less, than those until so many rows have come are of pieces, not of a gate.
        usual = GATED[0] < varies**2 * float(rows.mean()) < GATED[1]
        if not self.gated.all() or rows.min() <= 1 or varies > PIECES or not usual:
            return False
        beyond = varies - float(rows.std() / rows.mean())
        return bool(rows.min() >= HELD * np.median(rows) and beyond > VARIES and self.busy < HURRIED)

    def _keeps(self, interval: float) -> bool:
        """Whether all parts of the series fit the interval, which is not so if it was adapted during the run."""
        edges = np.linspace(0, len(self), max(1, min(8, len(self) // 12)) + 1).astype(int).tolist()
        return all(self[slice(low, high)].trigger() in (None, interval) for low, high in pairwise(edges))

    def trigger(self) -> float | None:
        """The trigger interval that the starts fit, seconds: 0 if micro-batches follow each other at once, None if unclear."""
        waited = self.started[1:] - self.ended[:-1] > BACK_TO_BACK_S
        if waited[self.whole[1:]].mean() < MOSTLY if self.whole[1:].any() else True:
            waited &= self.whole[1:]  # a start after missing progress may have been late; where few are, most were not
        starts = self.started[1:][waited]
        if len(starts) < max(3, 0.1 * len(self)):
            return 0.0 if len(self) > 10 and not len(starts) else None
        reported = (self.empty - np.append(np.nan, self.ended[:-1]))[np.isfinite(self.empty)]
        if len(reported) >= 3 and float(np.mean(np.abs(reported - IDLE_S) < LOOKS_S)) > 0.9:
            return 0.0  # idleness is reported exactly ten seconds later: no grid of triggers is waited for
        # Triggers that found nothing lie on the grid, too. Any steady grid is tried first, then the usual intervals.
        looked = np.concatenate([self.empty, self.again, self.since])
        starts = np.unique(np.concatenate([starts, looked[np.isfinite(looked)]]))
        if (steady := _steady(starts)) is not None:
            return 0.0 if _polled(starts, steady) else _divided(starts, steady)
        for interval in sorted(TRIGGERS_S, reverse=True):
            phases = np.mod(starts, interval)
            if np.mean(phases < min(0.06, interval / 10)) > 0.9 and np.median(np.diff(starts)) >= 0.9 * interval:
                return float(interval)
        return 0.0 if len(self) > 10 else None


def series_of(records: Sequence[Record], visible: dict[int, float]) -> Series:
    """Make the series of one start of a query.

    Args:
        records: of one run identifier, in order.
        visible: by micro-batch, when its results became visible; where that is not known, the end of the sink's work counts.
    """
    ran = [record for record in records if record.ran]
    latest = {record.number: record for record in ran}  # of a repeated micro-batch the last record counts
    taking = sorted((record for record in latest.values() if record.taken > 0), key=lambda record: record.number)
    empty = {record.number for record in ran} - {record.number for record in taking}
    numbers = [record.number for record in taking]
    before = [None, *numbers][: len(numbers)]
    first, again, last = _empty([record for record in records if not record.taken], taking)
    return Series(
        numbers=np.array(numbers, dtype=float),
        started=np.array([record.started for record in taking]),
        admitted=np.array([record.started + record.planning for record in taking]),
        visible=np.array([visible.get(record.number, record.started + record.duration - record.closing) for record in taking]),
        ended=np.array([record.started + record.duration for record in taking]),
        rows=np.array([float(record.taken) for record in taking]),
        waiting=np.array([float(sum(source.waiting or 0 for source in record.sources)) for record in taking]),
        keys=np.array([np.nan if record.keys is None else float(record.keys) for record in taking]),
        whole=np.array(
            [
                last is not None and all(missing in empty for missing in range(last + 1, number))
                for last, number in zip(before, numbers, strict=True)
            ],
            dtype=bool,
        ),
        outstanding=np.array([_outstanding(record) for record in taking]),
        gated=np.array(
            [not any(source.description.startswith(NO_GATE) for source in record.sources) for record in taking], bool
        ),
        empty=first,
        again=again,
        since=last,
    )


def _empty(empty: Sequence[Record], kept: Sequence[Record]) -> tuple[Real, Real, Real]:
    """For each micro-batch, when a trigger found nothing for the first, second and last time since the one before."""
    looked = np.sort([record.started for record in empty])
    started = np.array([record.started for record in kept])
    none = np.full(len(started), np.nan)
    if not len(looked) or not len(started):
        return none, none, none
    before = np.concatenate([[-np.inf], [record.started + record.duration for record in kept[:-1]]])
    first = np.searchsorted(looked, before, side="right")
    last = np.searchsorted(looked, started - BACK_TO_BACK_S) - 1
    some = first <= last
    at = np.append(looked, np.nan)
    return (
        np.where(some, at[np.minimum(first, len(looked))], np.nan),
        np.where(first < last, at[np.minimum(first + 1, len(looked))], np.nan),
        np.where(some, at[last], np.nan),
    )


def _steady(starts: Real) -> float | None:
    """The interval of the grid on which the starts lie, even if some are late or left out; None where there is none."""
    gaps = np.diff(starts)
    gaps = gaps[gaps > BACK_TO_BACK_S]
    if len(gaps) < 3:
        return None
    typical = float(np.median(gaps[gaps <= 1.5 * np.quantile(gaps, 0.1)]))
    turns = np.concatenate([[0], np.cumsum(np.round(gaps / typical))])
    at = np.concatenate([[0], np.cumsum(gaps)])
    slope, phase = np.polyfit(turns, at, 1)
    off = np.abs(at - slope * turns - phase)
    if np.mean(off < min(LATE_S, slope / 8)) < 0.9 or np.median(turns[1:] - turns[:-1]) > 1:
        return None
    for step in ROUND_S:
        interval = round(slope / step) * step
        if interval and abs(interval - slope) <= 0.005 * slope:
            return float(round(interval, 3))
    return float(slope)


def _divided(starts: Real, interval: float) -> float:
    """The trigger interval behind starts at even distances, which may be the source's: files that come each minute, say.

    Spark's triggers count from the epoch. Starts that do not, at this interval, but do at one of its usual divisors, are of
    that trigger, the longest of them.
    """
    early, late = GRID_S
    for divisor in (interval, *sorted(TRIGGERS_S, reverse=True)):
        whole = abs(interval / divisor - round(interval / divisor)) < 1e-9
        usual = whole and max(LEAST_DIVISOR_S, interval / MOST_TRIGGERS) <= divisor <= interval
        if usual and np.mean(np.mod(starts + early, divisor) < early + late) > 0.9:
            return float(divisor)
    return interval


def _polled(starts: Real, interval: float) -> bool:
    """Whether a steady interval is the source's, whose rows come in pieces, and not that of a trigger.

    Spark's triggers lie on a grid that counts from the epoch, and start within a millisecond, or late. Without a trigger Spark
    looks each `POLL_S` whether rows have come, so its starts are spread over that time, at any phase.
    """
    turns = np.append(0.0, np.cumsum(np.round(np.diff(starts) / interval)))  # the interval is rounded, and would drift
    slope, phase = np.polyfit(turns, starts - starts[0], 1)
    off = starts - starts[0] - slope * turns - phase
    spread = robust_spread(off, about=0.0)
    early, late = GRID_S
    on_grid = float(np.mean(np.mod(starts + early, interval) < early + min(late, interval / 10))) > 0.5
    return not on_grid and POLLED_S[0] < spread < POLLED_S[1]


def _outstanding(record: Record) -> float:
    """What is left waiting at the sources (rows, files or bytes), as far as they say; nan where none says it."""
    amounts = [source.waiting if source.waiting is not None else source.outstanding for source in record.sources]
    known = [float(amount) for amount in amounts if amount is not None]
    return sum(known) if known else float("nan")
