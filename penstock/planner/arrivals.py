"""Arrivals: a model of how rows arrive, fitted to recordings, which draws flows of rows like the recorded ones at any rate."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.stats import chi2

from penstock.planner.change import level_change, local_dispersion
from penstock.planner.pieces import grouped, in_moments, in_stretches, in_turn, landings, period_of, spikes_of
from penstock.planner.setting import Arrivals
from penstock.queueing.distribution import with_scv

Real = NDArray[np.float64]
Kind = Literal["poisson", "regular", "bursty", "recorded"]

SCALES = (1, 2, 4, 8, 16, 32)
"""Numbers of successive windows that are joined to measure the dispersion."""
REGULAR, BURSTY, GROWING = 0.3, 1.5, 2.5
"""Dispersions below which arrivals are regular, and above which they come in bursts; and the growth of the dispersion with the
scale from which on it is the rate that changes."""
SIGNIFICANT, EVEN = 4.0, 1.25
"""Standard errors from which a correlation of successive windows counts; and the largest third cumulant, relative to the
second, of bursts that are about equal."""
INEXACT_S = 0.2
"""Seconds by which the recorded time of a window's edge may be wrong. Variation beyond that is taken to be of the arrivals."""
MOST_BINS, MOST_POINTS, FINEST_S = 200_000, 100_000, 0.005


class Flow:
    """The cumulative count of rows over time: linear between the points, with a jump where two points have one time."""

    def __init__(self, times: Real, counts: Real) -> None:
        self.times, self.counts = np.ascontiguousarray(times, float), np.ascontiguousarray(counts, float)

    def count(self, time: float) -> float:
        """Number of rows that have arrived by a time."""
        return float(counted(self.times, self.counts, time))

    def when(self, count: float) -> float:
        """The time by which ``count`` rows have arrived; infinite if they never do."""
        return float(reached(self.times, self.counts, count))

    def until(self, time: float) -> "Flow":
        """The flow up to a time, at which it ends with a point of its own."""
        before = self.times <= time
        return Flow(np.append(self.times[before], time), np.append(self.counts[before], self.count(time)))

    def births(self, rows: Real) -> Real:
        """The times at which the rows with these numbers arrived."""
        return np.asarray(np.interp(rows, self.counts, self.times))


@njit(cache=True)
def counted(times, counts, time):  # type: ignore[no-untyped-def]
    """`Flow.count`, compiled."""
    after = np.searchsorted(times, time, side="right")
    if after == 0:
        return 0.0
    if after == len(times):
        return counts[-1]
    share = (time - times[after - 1]) / (times[after] - times[after - 1])
    return counts[after - 1] + (counts[after] - counts[after - 1]) * share


@njit(cache=True)
def reached(times, counts, count):  # type: ignore[no-untyped-def]
    """`Flow.when`, compiled."""
    place = np.searchsorted(counts, count)
    if place == len(counts):
        return np.inf
    if place == 0 or counts[place] == counts[place - 1]:
        return times[place]
    share = (count - counts[place - 1]) / (counts[place] - counts[place - 1])
    return times[place - 1] + (times[place] - times[place - 1]) * share


@dataclass(frozen=True)
class ArrivalModel:
    """The arrivals at a source, as they were recorded.

    Args:
        rate: rows per second.
        error: its standard error.
        widths, counts: seconds of the windows between admissions, and rows that arrived in them.
        dispersion: variance over mean of the rows in windows, by the mean width of the windows in seconds: 1 at every scale
            for Poisson arrivals.
        kind: the process that they are like; ``"recorded"`` replays the windows.
        burst: approximate rows that come at once while the rate stays: 1 for Poisson arrivals.
        even: whether bursts are about equal.
        changed: the rate before its only change, the windows of which are ignored; None where the rate did not change.
        spikes: which windows have far more rows than those around them, as where a load or a cron job sends its rows; None if
            there are none. A recording does not show whether such rows come at once, so half of the flows assume it.
        clumped: share of the flows in which rows come in bursts, where a recording does not show whether they do.
    """

    rate: float
    error: float
    widths: Real
    counts: Real
    dispersion: dict[float, float]
    kind: Kind
    burst: float = 1.0
    even: bool = False
    changed: float | None = None
    spikes: NDArray[np.bool_] | None = None
    clumped: float = 1.0

    @property
    def steady(self) -> bool:
        """Whether pieces of rows that land at once do so at even distances."""
        return period_of(self.widths, landings(self.counts) if self.spikes is None else self.spikes) is not None

    @property
    def scv(self) -> float:
        """Squared coefficient of variation of the gaps between rows, estimated from the widest windows."""
        return max(0.0, list(self.dispersion.values())[-1]) if self.dispersion else 1.0

    def flow(
        self, rate: float, horizon: float, random: np.random.Generator, like: Arrivals | None = None, *, step: float = FINEST_S
    ) -> Flow:
        """Draw a flow of rows at a rate over ``horizon`` seconds: like the recorded one, or as ``like`` (of a setting) says.

        Args:
            step: resolution in seconds; when within a step a row comes does not matter.
        """
        if like is not None and not isinstance(like, str | int | float):
            return _replayed(np.asarray(like), rate, horizon, random)
        if like is None and self.kind == "recorded":
            return self._again(rate, horizon, random, max(step, FINEST_S))
        if like is None and self.kind == "bursty" and self.even:
            return _landing(rate, horizon, random, max(1.0, self.scv))
        scv = {"poisson": 1.0, "regular": 0.0}.get(self.kind, self.scv) if like is None else like
        return _renewal(rate, horizon, random, 1.0 if isinstance(scv, str) else float(scv), max(step, FINEST_S))

    def _again(self, rate: float, horizon: float, random: np.random.Generator, step: float) -> Flow:
        """Repeat the recorded windows from a random moment on.

        Rows that come after a window without any land at once, as a file does, at any moment of their window; those of other
        windows are spread over them. Both vary as bursts do that are Poisson.
        """
        first = int(np.searchsorted(np.cumsum(self.widths), random.random() * self.widths.sum()))
        first = min(first, len(self.widths) - 1)
        order = np.arange(first, first + len(self.widths)) % len(self.widths)
        widths, counts = self.widths[order], self.counts[order] * rate * self.widths.sum() / self.counts.sum()
        landing = landings(counts)
        if self.spikes is not None and random.random() < 0.5:
            landing |= self.spikes[order]
        begun = random.random() * float(widths[0])  # triggers lie on a grid, and rows that come in pieces at any phase of it
        rounds = math.ceil((horizon + begun) / widths.sum())
        widths, counts, landing = np.tile(widths, rounds), np.tile(counts, rounds), np.tile(landing, rounds)
        pieces = np.maximum(1, np.ceil(widths / max(step, horizon / MOST_BINS))).astype(int)
        pieces[landing] = 2  # nothing until the moment, and then all
        begins, number = np.repeat(np.cumsum(widths) - widths, pieces), np.arange(pieces.sum()) - _starts(pieces)
        times = begins + np.repeat(widths / pieces, pieces) * (number + 1)
        split = np.repeat(counts / pieces, pieces)
        lands = np.repeat(landing, pieces)
        # Pieces that come regularly are all as far into their windows, wherever that is.
        within = random.random() if self.steady else random.random(int(landing.sum()))
        times[lands] = begins[lands] + np.repeat(within * widths[landing], 2)
        split[lands] = np.where(number[lands] == 0, 0.0, 2 * split[lands])
        burst = self.burst if random.random() < self.clumped else 1.0
        rows = burst * random.poisson(split / burst).astype(float)
        after = times > begun
        return _accumulated(times[after] - begun, rows[after])


def arrivals_of(windows: Iterable[tuple[Real, Real]], parted: Sequence[tuple[Real, Real]] = ()) -> ArrivalModel | None:
    """Fit the model: the rate to the last series, the dispersion to all; None with fewer than two windows, or without rows.

    Args:
        windows: of each series, the seconds and rows between admissions.
        parted: these, split where a trigger found nothing.
    """
    windows = list(windows)
    moments = in_moments([pair for pair in zip(windows, parted, strict=False) if len(pair[0][0])])
    series = [(widths, counts) for widths, counts in windows if len(widths)]
    if sum(len(widths) for widths, _ in series) < 2:
        return None
    changed = None  # after a single change of the rate, only the windows since count
    if (since := level_change(*series[-1])) is not None:
        widths, counts = series[-1]
        changed = float(counts[:since].sum() / widths[:since].sum())
        series[-1] = widths[since:], counts[since:]
    fine = [pair for pair in parted if len(pair[0])] if changed is None else []
    widths, counts = series[-1]
    rate = float(counts.sum() / widths.sum())
    if rate <= 0:
        return None
    # The dispersion at each scale: squared deviations from Poisson, less the variance due to inexact edges of windows.
    dispersion, uncorrected, excess = {}, list[float](), False
    means = [pair[1].sum() / pair[0].sum() for pair in series]
    jitters = [_jitter(*pair, mean) for pair, mean in zip(series, means, strict=True)]
    for scale in SCALES:
        groups = [grouped(pair, scale) for pair in series]
        wide = np.concatenate([group[0] for group in groups])
        if len(wide) < max(6, len(series) + 1):
            break
        # Pooled over the windows: one that an arrival ends is short, and would count too much by itself.
        squares, expected, edges = 0.0, 0.0, 0.0
        for (width, many), mean, jitter in zip(groups, means, jitters, strict=True):
            squares += float(((many - mean * width) ** 2).sum())
            expected += float((mean * width).sum())
            edges += 2 * jitter * len(width)
        freedom = len(wide) - len(series)
        bias = len(wide) / freedom
        uncorrected.append(bias * squares / expected)
        dispersion[float(wide.mean())] = max(0.0, bias * (squares - edges) / expected)
        excess = excess or dispersion[float(wide.mean())] > chi2.ppf(0.999, freedom) / freedom
    values = list(dispersion.values())
    spread = max(values[-1], 0.0) if values else 1.0
    error = math.sqrt(max(spread, 1e-9) * rate / float(widths.sum()))
    kind = _kind(values, uncorrected, excess)
    clumped = 1.0
    if kind == "bursty" and any(_correlated(*pair) for pair in series):
        kind = "recorded"
    elif kind == "bursty" and any(in_stretches(*pair) for pair in fine):
        kind, clumped = "recorded", 0.5
    if fine and kind == "recorded":
        widths, counts = fine[-1]
    finest = min(series, key=lambda pair: float(pair[0].mean()))
    even, spikes = _are_even(*finest), spikes_of(widths, counts)
    burst = local_dispersion(*finest)
    moments = moments or in_turn(*finest, rate)
    if moments is not None and changed is None:
        kind, (widths, counts), spikes = "recorded", moments, None
        burst = 1.0  # the pieces are what comes at once
    elif spikes is not None:
        kind = "recorded"
    return ArrivalModel(rate, error, widths, counts, dispersion, kind, burst, even, changed, spikes, clumped)


def _correlated(widths: Real, counts: Real) -> bool:
    """Whether successive windows are correlated beyond chance: then it is the rate that changes."""
    if len(widths) < 20:
        return False
    rates = (counts - widths * counts.sum() / widths.sum()) / np.sqrt(widths)
    variance = float(np.mean(rates**2))
    return variance > 0 and float(np.mean(rates[1:] * rates[:-1])) / variance > SIGNIFICANT / math.sqrt(len(rates))


def _are_even(widths: Real, counts: Real) -> bool:
    """Whether bursts have about one size: then the third cumulant over the second is that size, else half as much again."""
    off = counts - widths * counts.sum() / widths.sum()
    second, third = float(np.mean(off**2)), float(np.mean(off**3))
    mean = float(counts.mean())
    return second > 0 and mean > 0 and third * mean / second**2 < EVEN


def _jitter(widths: Real, counts: Real, rate: float) -> float:
    """Variance of the rows that are counted in the wrong window, since admissions are not timed exactly.

    Such rows are missing in one window and too many in the next, which makes successive windows negatively correlated.
    """
    residuals = counts - rate * widths
    if len(residuals) <= 8:
        return 0.0
    return float(np.clip(-np.mean(residuals[:-1] * residuals[1:]), 0.0, (rate * INEXACT_S) ** 2))


def _kind(dispersion: Sequence[float], uncorrected: Sequence[float], excess: bool) -> Kind:
    """The kind of arrivals by their dispersions; ``excess`` says whether any is significantly above Poisson's."""
    if uncorrected and max(uncorrected) < REGULAR:
        return "regular"
    if not excess or max(dispersion) < BURSTY:
        return "poisson"  # or not enough beyond it to matter
    return "bursty" if max(dispersion) < GROWING * max(dispersion[0], 1.0) else "recorded"


def _starts(pieces: NDArray[Any]) -> NDArray[Any]:
    """For each piece, the number of the first piece of its window."""
    return np.repeat(np.cumsum(pieces) - pieces, pieces)


def _accumulated(times: NDArray[Any], counts: NDArray[Any]) -> Flow:
    return Flow(np.append(0.0, times), np.append(0.0, np.cumsum(counts)))


def _landing(rate: float, horizon: float, random: np.random.Generator, size: float) -> Flow:
    """A flow of bursts of ``size`` rows at Poisson moments."""
    times = np.repeat(np.sort(random.random(random.poisson(rate * horizon / size)) * horizon), 2)
    counts = np.repeat(np.arange(len(times) // 2 + 1.0) * size, 2)[:-1]
    return Flow(np.append(0.0, times), counts)


def _renewal(rate: float, horizon: float, random: np.random.Generator, scv: float, step: float) -> Flow:
    """A flow whose gaps have this scv; Poisson and regular rows are drawn by bins of ``step`` seconds, others one by one."""
    if scv in (0.0, 1.0):
        bins = int(min(MOST_BINS, max(10, horizon / step)))
        times = np.arange(1, bins + 1) * (horizon / bins)
        mean = rate * horizon / bins
        return _accumulated(times, random.poisson(mean, bins).astype(float) if scv else np.full(bins, mean))
    count = int(rate * horizon + 10 * math.sqrt(max(scv, 1.0) * rate * horizon) + 10)
    times = np.cumsum(with_scv(1 / rate, scv).sample(random, count))
    return _numbered(times)


def _replayed(times: Real, rate: float, horizon: float, random: np.random.Generator) -> Flow:
    """A flow that repeats the gaps of ``times`` from a random one on, scaled to the rate."""
    gaps = np.diff(times)
    gaps *= len(gaps) / (rate * gaps.sum())
    count = int(rate * horizon) + 1
    first = int(random.integers(len(gaps)))
    return _numbered(np.cumsum(gaps[(first + np.arange(count)) % len(gaps)]))


def _numbered(times: NDArray[Any]) -> Flow:
    """A flow with one row at each time; very many times are thinned, so that one point stands for several rows."""
    every = -(-len(times) // MOST_POINTS)
    points = times[every - 1 :: every]
    return Flow(np.append(0.0, points), np.arange(len(points) + 1, dtype=float) * every)
