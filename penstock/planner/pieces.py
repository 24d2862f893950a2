"""Rows that come in pieces, in loads, or for a while: whether windows between two looks at a source show them, and which.

A window is the time between two looks, with the rows that arrived in it; a piece is rows that come at one moment.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from penstock.planner.series import POLL_S, Real
from penstock.planner.spread import robust_spread

MOMENTS = 5.0
"""The factor by which the dispersion grows, if rows come in a few moments, when windows are split where a trigger found
nothing."""
STRETCHES = 2.5
"""Standard errors beyond which windows with rows follow each other by no chance."""
STEADY, LANDING, MISSING = 0.1, 0.6, 0.05
"""How far gaps between regular pieces are from multiples of their median, over that; the least share of windows with rows
before which a trigger found nothing, where rows come in pieces; how far their number may be off from one in each period."""
EVENLY = 0.3
"""Over eight windows, the rows of pieces at even distances have at most this share of the dispersion of those at random."""
WHOLE, DISTINCT, LARGE = 0.12, 0.1, 30
"""Counts are multiples of a piece if this is their mean distance from one, over the piece; each of two multiples has this share
of the windows; and a piece has so many rows, as those of Poisson arrivals then do not differ as much."""
BRIEF = 0.1
"""The greatest share of the time of windows with rows, where rows come in pieces."""
SPIKE, SPIKE_TIMES, SPIKE_ROWS = 8.0, 3.0, 0.02
"""A spike is a window with so many robust standard deviations more rows than others of its width, and this multiple of them;
it matters if this share of all rows come in spikes."""


def spikes_of(widths: Real, counts: Real) -> NDArray[np.bool_] | None:
    """Which windows have far more rows than all around them; None if few rows come in such windows."""
    expected = widths * float(np.median(counts / widths))
    more = counts - expected
    spread = np.maximum(robust_spread(more), np.sqrt(np.maximum(expected, 1.0)))
    high = (more > SPIKE * spread) & (counts > SPIKE_TIMES * expected)
    spikes = high & ~np.append(high[1:], False) & ~np.append(False, high[:-1])  # a rate that stays high is no spike
    return spikes if counts[spikes].sum() > SPIKE_ROWS * counts.sum() else None


def in_moments(series: Sequence[tuple[tuple[Real, Real], tuple[Real, Real]]]) -> tuple[Real, Real] | None:
    """Return the windows of the recording that shows best that rows come in a few moments, as those of a file do.

    Returns None if no recording shows it. A query without a trigger interval shows it best: it looks for rows every `POLL_S`,
    so the window before rows that have just come is empty, and that with them is short. Rows that come at one moment are called
    a piece below. Pieces at even distances are returned as such.

    Args:
        series: of each recording, the widths (seconds) and rows of its windows; and the same, where a window that ends at a
            trigger without rows is a window of its own.
    """
    shown = [split for whole, split in series if scatter(split) > MOMENTS * max(scatter(whole), 1.0) or _in_pieces(*split)]
    if not shown:
        return None
    widths, counts = min(shown, key=lambda pair: float(pair[0][pair[1] > 0].sum() / pair[0].sum()))
    period = period_of(widths, landings(counts))
    if period is None or landings(counts).sum() < LANDING * (counts > 0).sum():
        return widths, counts
    # A piece that came while a micro-batch ran, so that no trigger found nothing before it, has landed at once, too. All are
    # exactly a period apart, so that they keep their phase to a grid of triggers, whichever it is.
    number = int((counts > 0).sum())
    if abs(number * period - widths.sum()) > MISSING * widths.sum():
        return widths, counts  # some are left out, or two came together
    pieces = np.full(number, min(float(np.median(widths[landings(counts)])), period / 2))
    apart = np.stack([period - pieces, pieces], axis=1).ravel()
    return apart, np.stack([np.zeros(len(pieces)), counts[counts > 0]], axis=1).ravel()


def in_turn(widths: Real, counts: Real, rate: float) -> tuple[Real, Real] | None:
    """Windows with a piece each at even distances, where the given ones have one piece, two or more, in turn: a job sends as
    much each so many seconds, and the trigger is longer. None where they do not.
    """
    some = counts[counts > 0]
    if len(some) < 12:
        return None
    piece = float(np.median(some[some < 1.5 * some.min()]))
    turns = np.round(some / piece)
    shares = np.unique(turns, return_counts=True)[1] / len(some)
    off = float(np.mean(np.abs(some / piece - turns)))
    multiples = off < WHOLE and len(shares) > 1 and float(np.sort(shares)[-2]) >= DISTINCT
    wide = grouped((widths, counts), 8)
    even = len(wide[0]) > 1 and scatter(wide) < EVENLY * piece
    if piece < LARGE or not multiples or not even:
        return None
    number, apart = max(4, round(float(widths.sum()) * rate / piece)), piece / rate
    short = min(POLL_S, apart / 2)
    return np.tile([apart - short, short], number), np.tile([0.0, piece], number)


def _in_pieces(widths: Real, counts: Real) -> bool:
    """Whether nearly all the time has no rows, and most windows with rows, all of them short, have several."""
    some = counts > 0
    short = float(widths[some].sum()) < BRIEF * float(widths.sum())
    return short and float(np.median(counts[some])) >= 2 and bool(landings(counts).sum() >= LANDING * some.sum())


def landings(counts: Real) -> NDArray[np.bool_]:
    """Which windows have rows after a window without any."""
    return np.asarray((counts > 0) & (np.roll(counts, 1) == 0))


def period_of(widths: Real, landing: NDArray[np.bool_]) -> float | None:
    """The seconds from one piece of rows that land at once to the next, by the windows they are in; None if not even."""
    landed = np.cumsum(widths)[landing]
    gaps = np.diff(landed)
    if len(gaps) < 3:
        return None
    turns = np.round(gaps / np.median(gaps))
    if float(np.quantile(np.abs(gaps / np.median(gaps) - turns), 0.9)) > STEADY:
        return None
    slope, _ = np.polyfit(np.cumsum(np.append(0.0, turns)), landed, 1)
    return float(slope)


def scatter(pair: tuple[Real, Real]) -> float:
    """Return the ratio of variance to mean of the rows of windows of any widths; about 1 for Poisson arrivals.

    The pair has the widths and rows of windows. The ratio is up to 3 for windows that are split before each arrival, as their
    bounds depend on the arrivals.
    """
    widths, counts = pair
    expected = widths * counts.sum() / widths.sum()
    return float(((counts - expected) ** 2).sum() / max(expected.sum(), 1e-9))


def in_stretches(widths: Real, counts: Real) -> bool:
    """Whether windows with rows follow each other more often than chance has it, as where rows come for a while."""
    some = counts > 0
    share = float(widths[some].sum() / widths.sum())
    number, follow = int(some[:-1].sum()), int((some[:-1] & some[1:]).sum())
    chance = math.sqrt(number * share * (1 - share))
    return chance > 0 and (follow - number * share) / chance > STRETCHES


def grouped(pair: tuple[Real, Real], scale: int) -> tuple[Real, Real]:
    """The windows, joined by so many."""
    count = len(pair[0]) // scale
    widths, counts = (values[: count * scale].reshape(count, scale).sum(axis=1) for values in pair)
    return widths, counts
