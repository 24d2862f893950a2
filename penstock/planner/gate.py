"""Spark's gate between micro-batches, simulated batch by batch: what the documents say, and SPARK.md measured.

The trigger's grid is counted from the epoch; a batch that outlasts its interval is followed at once. Without an
interval the gate is asked when a batch has ended, and every 10 ms while it is closed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.planner.arrivals import Flow

Real = NDArray[np.float64]

POLL_S = 0.01
SAMPLES = 40_000
"""Rows whose latency is taken, evenly among all."""

Work = tuple[float, float, float]
"""Of a micro-batch, seconds from the trigger's start: until its rows are fixed, its results are visible, it is over."""


@dataclass(frozen=True)
class Gate:
    """When a micro-batch begins, and what it takes: seconds and rows."""

    trigger: float = 0.0
    min_rows: float = 1.0
    max_delay: float = 900.0
    max_rows: float = math.inf


@dataclass(frozen=True)
class Passage:
    """Micro-batches of a simulation: times in seconds, and ``taken``, the rows taken by the end of each."""

    started: Real
    admitted: Real
    visible: Real
    ended: Real
    taken: Real

    @property
    def rows(self) -> Real:
        """Rows of each."""
        return np.diff(self.taken, prepend=0.0)

    @property
    def departures(self) -> Flow:
        """The rows as they become visible: what arrives where this query's results are read."""
        times, counts = np.repeat(self.visible, 2), np.repeat(self.taken, 2)
        return Flow(np.append(0.0, times), np.append([0.0, 0.0], counts)[:-1])

    def latencies(self, births: Flow, since: float = 0.0, until: float = math.inf) -> tuple[Real, Real]:
        """Births of rows evenly chosen among those born in a span, and the time from there until they were visible."""
        if not len(self.taken):
            return np.empty(0), np.empty(0)
        low, high = births.count(since), min(births.count(until), float(self.taken[-1]))
        if high <= low:
            return np.empty(0), np.empty(0)
        rows = low + (np.arange(SAMPLES) + 0.5) * (high - low) / SAMPLES
        born = births.births(rows)
        batch = np.searchsorted(self.taken, rows, side="left")
        return born, self.visible[batch] - born


def pass_gate(
    flow: Flow,
    gate: Gate,
    work: Callable[[float, int], Work],
    *,
    until: float,
    free: float = 0.0,
    first: float = math.inf,
    batches: int = 200_000,
) -> Passage:
    """Run micro-batches until a time.

    Parameters
    ----------
    work: of a micro-batch of so many rows with a number.
    until: no trigger begins later; rows beyond are not taken.
    free: when the first trigger may begin. first: rows of the first micro-batch, at most. batches: at most.
    """
    started, admitted, visible, ended, sums = [], [], [], [], []
    taken, opened, number = 0.0, -math.inf, 0
    interval, needed = gate.trigger, max(1.0, gate.min_rows)
    time = free
    while number < batches:
        if interval > 0:
            time = math.ceil(time / interval - 1e-9) * interval if number == 0 else time
        if time > until:
            break
        planning = work(0.0, number)[0]
        waiting = math.floor(flow.count(time + planning) + 1e-6) - taken
        due = opened + gate.max_delay
        if not (waiting >= needed or (waiting >= 1 and time + planning >= due)):
            if waiting < 1 and time + planning >= due:
                opened, due = time, time + gate.max_delay  # a delay that ends without rows begins again
            opening = min(flow.when(taken + needed), max(due, flow.when(taken + 1)))
            if opening - planning > until:
                break
            if interval > 0:
                time = _grid(_next(time, interval), interval, opening - planning)
            else:
                time = _grid(time + POLL_S, POLL_S, opening - planning)
            continue
        rows = min(waiting, gate.max_rows, first if number == 0 else math.inf)
        fixed, shown, over = work(rows, number)
        started.append(time)
        admitted.append(time + fixed)
        visible.append(time + shown)
        ended.append(time + over)
        taken += rows
        sums.append(taken)
        opened = time
        number += 1
        time = max(time + over, _next(time, interval)) if interval > 0 else time + over
    return Passage(*(np.array(values) for values in (started, admitted, visible, ended, sums)))


def _next(time: float, interval: float) -> float:
    return (math.floor(time / interval + 1e-9) + 1) * interval


def _grid(time: float, step: float, target: float) -> float:
    """The first of the moments ``time + k step`` (those of the grid, for an interval) not before a target."""
    return time + max(0, math.ceil((target - time) / step - 1e-9)) * step
