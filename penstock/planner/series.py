"""The micro-batches of one start of a query, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from penstock.runs.record import Record

Real = NDArray[np.float64]

BACK_TO_BACK_S = 0.05
"""A trigger that begins so soon after the last has waited for nothing."""
HURRIED = 0.9
"""A share of busy time that only micro-batches back to back have, where their starts are too few to tell."""
LEAST_MAXIMUM = 50
"""Rows of a micro-batch that three do not have by chance, and no more."""
LEAST_CAPPED, CAPPED = 8, 0.98
"""Micro-batches of which a maximum of rows is told, and the share of it that counts as all of it."""
IDLE_S, LOOKS_S = 10.0, 0.1
"""How long after a micro-batch Spark says that nothing was there, and how much later where no trigger is set."""
HELD, VARIES = 0.9, 0.01
"""Rows of the smallest micro-batch, of the median, where a gate holds rows back; and by how much the gaps then vary more."""
SHORTEST_S, POLL_S = 1e-3, 0.01
"""The shortest window between two looks at a source, and how often Spark looks again where no trigger is set."""
LATE_S = 0.5
"""How late a trigger may start, for its interval to be told."""
ROUND_S = (3600, 600, 300, 60, 30, 10, 5, 1, 0.5, 0.25, 0.1, 0.05, 0.01)
"""What intervals that people choose are multiples of."""
TRIGGERS_S = (
    0.1,
    0.2,
    0.25,
    0.3,
    0.4,
    0.5,
    0.6,
    0.75,
    0.8,
    *(half / 2 for half in range(2, 21)),
    *range(11, 61),
    90,
    120,
    180,
    300,
    600,
    900,
    1200,
    1800,
    3600,
)
"""Trigger intervals that people choose, of which one is recognised from the starts of micro-batches."""


@dataclass(frozen=True)
class Series:
    """Micro-batches with data, in order; all arrays have one entry for each.

    Parameters
    ----------
    numbers: of the micro-batches. started, ended: of their triggers, seconds since the epoch.
    admitted: when it was fixed which rows they take. visible: when their results were.
    rows: taken. waiting: there and left for later. keys: distinct ones, nan where unknown.
    whole: whether the progress of the micro-batch before is there, too.
    outstanding: files or bytes, or rows, that were left for later; nan where the source does not say.
    empty, again: when, after the micro-batch before, a trigger first and then next was said to have found nothing. since: when
        one last did. Nan where none is known.
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
    empty: Real
    again: Real
    since: Real

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, which: slice | NDArray[np.bool_]) -> "Series":
        return replace(self, **{field.name: getattr(self, field.name)[which] for field in fields(self)})

    @property
    def durations(self) -> Real:
        """Seconds from start to end."""
        return self.ended - self.started

    @property
    def span(self) -> float:
        """Seconds from the first start to the last end."""
        return float(self.ended[-1] - self.started[0]) if len(self) else 0.0

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
        """The most rows of a micro-batch, where most have just as many, and more wait or may wait: a maximum per trigger."""
        if len(self) < LEAST_CAPPED:
            return None
        most = float(self.rows.max())
        capped = self.rows >= CAPPED * most
        waits = self.outstanding[capped] > 0
        told = np.isfinite(self.outstanding[capped])
        if most < 2 or capped.mean() < 0.5 or not (waits | ~told).mean() > 0.5:
            return None
        exact = float((self.rows == most).mean()) > 0.5
        return most if waits.mean() > 0.5 or (exact and self.busy > HURRIED) else None

    @property
    def maximum(self) -> float | None:
        """The most rows that a micro-batch takes, where some have just as many, while others differ: a maximum that is
        reached.
        """
        if self.ceiling is not None or len(self) < LEAST_CAPPED:
            return self.ceiling
        most = float(self.rows.max())
        capped = self.rows == most
        left = self.outstanding[capped]
        if most < LEAST_MAXIMUM or capped.sum() < 3 or capped.mean() > 0.5 or (left == 0).any():
            return None
        return most

    @property
    def hides(self) -> bool:
        """Whether a maximum is reached of which the source does not say what waits behind it."""
        return self.maximum is not None and bool(np.isnan(self.outstanding[self.rows == self.rows.max()]).any())

    def windows(self, *, quiet: bool = False) -> tuple[Real, Real]:
        """Between successive admissions: seconds, and rows that arrived in them.

        Parameters
        ----------
        quiet: whether a window is parted where a trigger found nothing; not where a gate holds rows back.
        """
        begins, ends = self.admitted[:-1], self.admitted[1:]
        counts = np.maximum(self.rows[1:] + np.diff(self.waiting), 0.0)
        kept = self.whole[1:] & (ends > begins)
        last = np.clip(np.nan_to_num(self.quiet()[1:], nan=-np.inf), begins, ends) if quiet else begins
        widths = np.stack([last - begins, ends - last], axis=1)[kept]
        parted = np.stack([np.zeros(len(counts)), counts], axis=1)[kept]
        some = widths > 0
        some[:, 1] |= parted[:, 1] > 0
        return np.maximum(widths[some], SHORTEST_S), parted[some]

    def quiet(self) -> Real:
        """For each micro-batch when a trigger last found that none of its rows was there; nan where none did.

        A progress says so (`since`), or the interval: had a row been there at the trigger before, that one would have begun.
        """
        if self.holds:
            return np.full(len(self), np.nan)
        interval = self.trigger()
        if interval is None or not len(self) or not self._keeps(interval):
            return self.since
        before = np.append(np.inf, np.where(self.whole[1:], self.ended[:-1], np.inf))
        at = self.started - interval
        if not interval:  # then it looks again and again
            at = np.where(self.started - before > BACK_TO_BACK_S, 2 * self.started - self.admitted - POLL_S, -np.inf)
        proved = np.where(at >= before, at, np.nan)
        return np.fmax(self.since, np.where(self.outstanding > 0, np.nan, proved))

    @property
    def holds(self) -> bool:
        """Whether a gate seems to hold rows back: none of the micro-batches is small, and the time between them varies more."""
        if len(self) < LEAST_CAPPED:
            return False
        rows, gaps = self.rows, np.diff(self.started)
        vary = float(gaps.std() / gaps.mean()) - float(rows.std() / rows.mean())
        return bool(rows.min() >= HELD * np.median(rows) and vary > VARIES and self.busy < HURRIED)

    def _keeps(self, interval: float) -> bool:
        """Whether all parts have the interval: one that adapts has another later."""
        edges = np.linspace(0, len(self), max(1, min(8, len(self) // 12)) + 1).astype(int).tolist()
        return all(self[slice(low, high)].trigger() in (None, interval) for low, high in pairwise(edges))

    def trigger(self) -> float | None:
        """The trigger interval that the starts fit: 0 where micro-batches follow each other at once, None where unclear."""
        waited = self.started[1:] - self.ended[:-1] > BACK_TO_BACK_S
        waited &= self.whole[1:]
        starts = self.started[1:][waited]
        if len(starts) < max(3, 0.1 * len(self)):
            return 0.0 if len(self) > 10 and not len(starts) else None
        reported = (self.empty - np.append(np.nan, self.ended[:-1]))[np.isfinite(self.empty)]
        if len(reported) >= 3 and float(np.mean(np.abs(reported - IDLE_S) < LOOKS_S)) > 0.9:
            return 0.0  # it says so ten seconds after, to the moment: no grid is waited for
        looked = np.concatenate([self.empty, self.again, self.since])
        starts = np.unique(np.concatenate([starts, looked[np.isfinite(looked)]]))
        if (steady := _steady(starts)) is not None:
            return steady
        for interval in sorted(TRIGGERS_S, reverse=True):
            phases = np.mod(starts, interval)
            if np.mean(phases < min(0.06, interval / 10)) > 0.9 and np.median(np.diff(starts)) >= 0.9 * interval:
                return float(interval)
        return 0.0 if len(self) > 10 else None


def series_of(records: Sequence[Record], visible: dict[int, float]) -> Series:
    """The series of one start.

    Parameters
    ----------
    records: of one run identifier, in order.
    visible: when results of micro-batches are known to have become visible; the sink's end otherwise.
    """
    ran = [record for record in records if record.ran]
    latest = {record.number: record for record in ran}  # of one that was repeated the last counts
    kept = sorted((record for record in latest.values() if record.taken > 0), key=lambda record: record.number)
    empty = {record.number for record in ran} - {record.number for record in kept}
    numbers = [record.number for record in kept]
    before = [None, *numbers][: len(numbers)]
    first, again, last = _empty([record for record in records if not record.taken], kept)
    return Series(
        numbers=np.array(numbers, dtype=float),
        started=np.array([record.started for record in kept]),
        admitted=np.array([record.started + record.planning for record in kept]),
        visible=np.array([visible.get(record.number, record.started + record.duration - record.closing) for record in kept]),
        ended=np.array([record.started + record.duration for record in kept]),
        rows=np.array([float(record.taken) for record in kept]),
        waiting=np.array([float(sum(source.waiting or 0 for source in record.sources)) for record in kept]),
        keys=np.array([np.nan if record.keys is None else float(record.keys) for record in kept]),
        whole=np.array(
            [
                last is not None and all(missing in empty for missing in range(last + 1, number))
                for last, number in zip(before, numbers, strict=True)
            ],
            dtype=bool,
        ),
        outstanding=np.array([_outstanding(record) for record in kept]),
        empty=first,
        again=again,
        since=last,
    )


def _empty(empty: Sequence[Record], kept: Sequence[Record]) -> tuple[Real, Real, Real]:
    """For each micro-batch when, after the one before, a trigger first, next and last found nothing."""
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
    """The interval of starts that all lie on one grid, whichever it is, be they late or some left out; None where they do
    not.
    """
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


def _outstanding(record: Record) -> float:
    """What waits at the sources, as far as they say; nan where none does."""
    said = [source.waiting if source.waiting is not None else source.outstanding for source in record.sources]
    known = [float(one) for one in said if one is not None]
    return sum(known) if known else float("nan")
