"""Simulates, batch by batch, when Spark begins micro-batches and with how many rows, as Spark documents and measurements show.

Triggers lie on a grid that counts from the epoch; a batch that outlasts its interval is followed by the next one at once.
Without an interval, Spark asks the gate when a batch has ended, and every 10 ms while the gate is closed.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.planner.arrivals import Flow, counted, reached

Real = NDArray[np.float64]

POLL_S = 0.01
"""How often Spark asks a closed gate if no trigger interval is set."""
SAMPLES = 40_000
"""Number of rows whose latency is computed, evenly spaced among all."""
LEAST_S = 1e-4
"""The shortest duration of a micro-batch."""


def _ones() -> Real:
    return np.ones(1)


def _none() -> Real:
    return np.zeros(1)


def _empty() -> Real:
    return np.empty(0)


@dataclass(frozen=True)
class Work:
    """The durations of simulated micro-batches. Arrays have one entry per micro-batch, and are repeated. Times are in seconds.

    Args:
        fixed, per_row, below_knee, knee: a micro-batch of n rows lasts ``fixed + per_row n + below_knee min(n, knee)``.
        ratios: factors of that duration.
        pauses: added to it.
        planning, planning_per_row, planned: time until the rows are fixed: per micro-batch, per row, and factors of both.
        closing: from when results are visible to the end.
        stops, stands: times at which all work pauses, and durations of the pauses; not repeated.
        longer: added to the durations of the first micro-batches; not repeated.
    """

    fixed: float
    per_row: float = 0.0
    below_knee: float = 0.0
    knee: float = 0.0
    ratios: Real = field(default_factory=_ones)
    pauses: Real = field(default_factory=_none)
    planning: float = 0.0
    planning_per_row: float = 0.0
    planned: Real = field(default_factory=_ones)
    closing: Real = field(default_factory=_none)
    stops: Real = field(default_factory=_empty)
    stands: Real = field(default_factory=_empty)
    longer: Real = field(default_factory=_empty)


@dataclass(frozen=True)
class Gate:
    """When a micro-batch begins, and how many rows it takes; ``trigger`` (0 for none) and ``max_delay`` are in seconds."""

    trigger: float = 0.0
    min_rows: float = 1.0
    max_delay: float = 900.0
    max_rows: float = math.inf


@dataclass(frozen=True)
class SimulatedBatches:
    """The micro-batches of a simulation: times in seconds, and ``taken``, the cumulative rows taken by the end of each."""

    started: Real
    admitted: Real
    visible: Real
    ended: Real
    taken: Real

    @property
    def rows(self) -> Real:
        """The rows of each micro-batch."""
        return np.diff(self.taken, prepend=0.0)

    @property
    def departures(self) -> Flow:
        """The flow of rows as they become visible, which arrives at a query that reads this query's results."""
        times, counts = np.repeat(self.visible, 2), np.repeat(self.taken, 2)
        return Flow(np.append(0.0, times), np.append([0.0, 0.0], counts)[:-1])

    def latencies(self, births: Flow, since: float = 0.0, until: float = math.inf) -> tuple[Real, Real]:
        """Arrival times of rows, sampled evenly among those that arrived in a span, and their latencies until visible."""
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
    flow: Flow, gate: Gate, work: Work, *, until: float, free: float = 0.0, first: float = math.inf, batches: int = 200_000
) -> SimulatedBatches:
    """Simulate the micro-batches of one query until a time.

    Args:
        until: the latest time at which a trigger may begin; later rows are not taken.
        free: the earliest time for the first trigger.
        first: most rows of the first micro-batch.
        batches: most micro-batches.
    """
    columns = _passed(
        flow.times,
        flow.counts,
        np.array([gate.trigger, max(1.0, gate.min_rows), gate.max_delay, gate.max_rows, until, free, first]),
        batches,
        np.array([work.fixed, work.per_row, work.below_knee, work.knee, work.planning, work.planning_per_row]),
        work.ratios,
        work.pauses,
        work.planned,
        work.closing,
        work.stops,
        work.stands,
        work.longer,
    )
    return SimulatedBatches(*columns)


def compiled() -> None:
    """Compile the simulation, if that has not been done yet."""
    pass_gate(Flow(np.zeros(1), np.zeros(1)), Gate(), Work(1.0), until=0.0)


@njit(cache=True)
def _next(time, interval):  # type: ignore[no-untyped-def]
    """Return the next trigger after a time, in seconds."""
    return (math.floor(time / interval + 1e-9) + 1) * interval


@njit(cache=True)
def _grid(time, step, target):  # type: ignore[no-untyped-def]
    """Return the first of the times ``time + k step``, k >= 0, that is not before a target."""
    return time + max(0.0, math.ceil((target - time) / step - 1e-9)) * step


@njit(cache=True)
def _passed(  # type: ignore[no-untyped-def]
    times, counts, rules, batches, costs, ratios, pauses, planned, closing, stops, stands, longer
):
    """`pass_gate`, compiled: the columns of a `SimulatedBatches`. ``rules`` has a `Gate` and ``until, free, first``; ``costs``
    has the scalars of a `Work`.
    """
    interval, needed, delay, most, until, free, first = rules
    fixed, per_row, below_knee, knee, planning_fixed, planning_per_row = costs
    columns = np.empty((5, 1024))
    taken, opened, number, stop = 0.0, -np.inf, 0, 0
    time = math.ceil(free / interval - 1e-9) * interval if interval > 0 else free
    while number < batches and time <= until:
        # Rows that arrive while Spark plans the micro-batch belong to it, so the rows are counted after planning.
        there = min(math.floor(counted(times, counts, time) + 1e-6) - taken, most)
        planning = (planning_fixed + planning_per_row * there) * planned[number % len(planned)]
        waiting = math.floor(counted(times, counts, time + planning) + 1e-6) - taken
        due = opened + delay
        # If the gate stays closed, go on to the first trigger that finds it open.
        if not (waiting >= needed or (waiting >= 1 and time + planning >= due)):
            if waiting < 1 and time + planning >= due:
                opened, due = time, time + delay  # a delay that ends without rows begins again
            opening = min(reached(times, counts, taken + needed), max(due, reached(times, counts, taken + 1)))
            if opening - planning > until:
                break
            if interval > 0:
                time = _grid(_next(time, interval), interval, opening - planning)
            else:
                time = _grid(time + POLL_S, POLL_S, opening - planning)
            continue
        rows = min(waiting, most)
        if number == 0:
            rows = min(rows, first)
        lasting = (fixed + per_row * rows + below_knee * min(rows, knee)) * ratios[number % len(ratios)]
        lasting = max(lasting, LEAST_S) + pauses[number % len(pauses)]
        if number < len(longer):
            lasting += longer[number]
        # A pause that overlaps the micro-batch makes it longer.
        while stop < len(stops) and stops[stop] < time + lasting:
            lasting += max(0.0, min(stands[stop], stops[stop] + stands[stop] - time))  # of an earlier pause, only its rest
            stop += 1
        planning = min(planning, lasting)
        taken += rows
        if number == columns.shape[1]:
            wider = np.empty((5, 2 * number))
            wider[:, :number] = columns
            columns = wider
        columns[0, number] = time
        columns[1, number] = time + planning
        columns[2, number] = time + max(planning, lasting - closing[number % len(closing)])
        columns[3, number] = time + lasting
        columns[4, number] = taken
        opened = time
        number += 1
        time = max(time + lasting, _next(time, interval)) if interval > 0 else time + lasting
    return columns[:, :number]
