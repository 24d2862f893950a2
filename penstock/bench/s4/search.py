"""The sustainable throughput: the greatest rate at which words do not wait ever longer, found by trials."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

from penstock.bench.s4.cells import Cell, Scale

BOUND_S = 15.0
"""A rate is sustained where no word waits longer. Micro-batches back to back need two of theirs; a queue that grows needs
more.
"""
TRIAL_S = 30.0
"""Of words in a trial, twice the bound: at 1.1 times what can be sustained, the last words wait for longer than it."""
LEAST, MOST = 0.6, 3.0
"""Where the rate is looked for, in throughputs of words that all wait already, whose first micro-batches take longest."""
SMALLEST, LARGEST = 100.0, 50_000.0
"""Words per second that are tried at all."""


@dataclass(frozen=True)
class Sustained:
    """What has been found: words per second.

    Parameters
    ----------
    rate: the greatest that was sustained; None where none was. over: the least that was not.
    """

    rate: float | None
    over: float | None


@dataclass(frozen=True)
class Search:
    """A bisection, in ratios, for one number of nodes and keys.

    Parameters
    ----------
    trials: it may take; each halves what is left, of 5 times at first.
    """

    nodes: int
    keys: int
    trials: int

    def next(self, cells: Iterable[dict[str, Any]]) -> Cell | None:
        """The trial that comes next, by the cells measured so far; None where the search is over or cannot begin."""
        own = [cell for cell in cells if (cell["kind"], cell["nodes"], cell["keys"]) == ("grid", self.nodes, self.keys)]
        drained = [cell["throughput"] for cell in own if cell["rate"] is None and "throughput" in cell]
        tried = [cell for cell in own if cell["trial"]]
        if not drained or len(tried) >= self.trials:
            return None
        found = sustained(tried)
        guess = max(drained)
        low = found.rate or min(LEAST * guess, (found.over or LARGEST) * LEAST / MOST)
        high = found.over or max(MOST * guess, low * MOST / LEAST)
        rate = float(round(min(LARGEST, max(SMALLEST, (low * high) ** 0.5))))
        if any(cell["rate"] == rate for cell in tried):
            return None
        return Cell("grid", self.nodes, self.keys, rate, round(rate * TRIAL_S), trial=True)


def sustained(trials: Iterable[dict[str, Any]]) -> Sustained:
    """What trials say. One that did not end in time was not sustained; a rate above one that was not is not believed."""
    verdicts = sorted((cell["rate"], "error" not in cell and cell["latency"].get("max", BOUND_S) < BOUND_S) for cell in trials)
    over = min((rate for rate, kept in verdicts if not kept), default=None)
    return Sustained(max((rate for rate, kept in verdicts if kept and (over is None or rate < over)), default=None), over)


def searches_of(scale: Scale) -> list[Search]:
    """The searches of a scale: none in the quick one; elsewhere the more exact with 8 keys, where nodes help most."""
    if scale == "quick":
        return []
    more = 2 if scale == "full" else 0
    return [Search(nodes, keys, more + (4 if keys == 8 else 2)) for nodes, keys in product((1, 2, 3), (8, 1, 2, 4))]
