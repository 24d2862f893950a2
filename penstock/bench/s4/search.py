"""The search for the sustainable throughput: the greatest rate at which words do not wait ever longer."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

from penstock.bench.s4.cells import Cell, Scale

BOUND_S = 15.0
"""A rate is sustained if no word waits longer, in seconds: two successive micro-batches fit in; a growing queue does not."""
TRIAL_S = 30.0
"""Seconds of words in a trial, twice the bound: at 1.1 times the sustainable rate, the last words wait for longer than it."""
LEAST, MOST = 0.6, 3.0
"""First limits of the search, relative to the throughput of words that all wait already, whose first batches are slowest."""
SMALLEST, LARGEST = 100.0, 50_000.0
"""Limits of the rates that are tried, in words per second."""


@dataclass(frozen=True)
class Sustained:
    """The result of a search so far, in words per second.

    Args:
        rate: the greatest rate that was sustained, or None.
        over: the least rate that was not sustained, or None.
    """

    rate: float | None
    over: float | None


@dataclass(frozen=True)
class Search:
    """A geometric bisection for one number of nodes and of keys.

    Args:
        trials: largest number of trials; each halves the logarithm of the range, which is a factor 5 at first.
    """

    nodes: int
    keys: int
    trials: int

    def next(self, cells: Iterable[dict[str, Any]]) -> Cell | None:
        """The next trial, given the results so far; None if the search is over or cannot begin."""
        results = [cell for cell in cells if (cell["kind"], cell["nodes"], cell["keys"]) == ("grid", self.nodes, self.keys)]
        drained = [cell["throughput"] for cell in results if cell["rate"] is None and "throughput" in cell]
        trials = [cell for cell in results if cell["trial"]]
        if not drained or len(trials) >= self.trials:
            return None
        so_far = sustained(trials)
        guess = max(drained)
        low = so_far.rate or min(LEAST * guess, (so_far.over or LARGEST) * LEAST / MOST)
        high = so_far.over or max(MOST * guess, low * MOST / LEAST)
        rate = float(round(min(LARGEST, max(SMALLEST, (low * high) ** 0.5))))
        if any(cell["rate"] == rate for cell in trials):
            return None
        return Cell("grid", self.nodes, self.keys, rate, round(rate * TRIAL_S), trial=True)


def sustained(trials: Iterable[dict[str, Any]]) -> Sustained:
    """Return the greatest rate that trials have sustained, and the least that they have not.

    A trial that failed has not sustained its rate. A rate counts only if no lower one has failed.
    """
    verdicts = sorted((cell["rate"], "error" not in cell and cell["latency"].get("max", BOUND_S) < BOUND_S) for cell in trials)
    over = min((rate for rate, held in verdicts if not held), default=None)
    return Sustained(max((rate for rate, held in verdicts if held and (over is None or rate < over)), default=None), over)


def searches_of(scale: Scale) -> list[Search]:
    """The searches of a scale: none if quick; otherwise with more trials for 8 keys, where nodes help most."""
    if scale == "quick":
        return []
    more = 2 if scale == "full" else 0
    return [Search(nodes, keys, more + (4 if keys == 8 else 2)) for nodes, keys in product((1, 2, 3), (8, 1, 2, 4))]
