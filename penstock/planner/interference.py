"""Several queries on one driver: their micro-batches compete for its cores, and each takes longer than alone.

A micro-batch has a part that costs the same whatever its rows, which keeps one core busy, and a part for its rows, which
keeps as many as the query has tasks at once. While more cores are wanted than there are, all go on at the same share of
their speed (Spark's fair pools). Triggers of one interval begin at the same moments, for Spark counts them from the epoch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.planner.calibration import Calibration, gate_of
from penstock.planner.prediction import QUANTILES

Real = NDArray[np.float64]

SPAN_S, WARMING = 600.0, 0.1
"""Seconds that are simulated, and the share at the beginning that is left out."""
POINTS = 20
"""Rows of a micro-batch whose latency is taken, evenly among all."""


@dataclass(frozen=True)
class Load:
    """What a query asks of a driver.

    Parameters
    ----------
    rate: rows per second. trigger: seconds between the starts of micro-batches, 0 for none.
    fixed: seconds of one core per micro-batch. per_row: seconds of ``tasks`` cores per row.
    ratios: recorded durations over those fitted, one after the other.
    """

    name: str
    rate: float
    trigger: float
    fixed: float
    per_row: float
    tasks: float
    ratios: tuple[float, ...]

    @property
    def cores(self) -> float:
        """Cores that it keeps busy in the mean, where its trigger leaves it time."""
        interval = self.trigger or max(self.fixed / max(1 - self.rate * self.per_row, 1e-9), 1e-3)
        return self.fixed / interval + self.rate * self.per_row * self.tasks


def load_of(name: str, calibration: Calibration) -> Load:
    """What a recorded run asks of a driver, as it is; of several queries, all together."""
    setting = calibration.today
    durations = [(query, query.under(gate_of(setting))) for query in calibration.queries]
    tasks = min(setting.cores or math.inf, setting.partitions or math.inf)
    return Load(
        name,
        calibration.arrivals.rate,
        setting.interval,
        sum(one.fixed * one.mean_ratio for _, one in durations),
        sum(one.per_row * one.mean_ratio * query.observed.rows_per_source_row for query, one in durations),
        tasks if math.isfinite(tasks) else 1.0,
        tuple((np.concatenate(durations[0][1].ratios) / durations[0][1].mean_ratio).tolist()),
    )


@dataclass
class _Running:
    """A query in the simulation: what is left of its micro-batch, and what it has done."""

    load: Load
    next_start: float
    admitted: float
    fixed_left: float = 0.0
    rows_left: float = 0.0
    began: float = 0.0
    opened: float = 0.0
    number: int = 0

    @property
    def busy(self) -> bool:
        return self.fixed_left > 0 or self.rows_left > 0

    @property
    def wanted(self) -> float:
        """Cores, now."""
        return 1.0 if self.fixed_left > 0 else self.load.tasks

    def left(self) -> float:
        """Seconds to the end of the present part, alone."""
        return self.fixed_left if self.fixed_left > 0 else self.rows_left


def shared(loads: Sequence[Load], cores: float, *, span: float = SPAN_S) -> dict[str, dict[str, float]]:
    """Latencies of queries that share a driver, by name; infinite for all, where the cores do not suffice."""
    if sum(load.cores for load in loads) >= cores:
        return {load.name: dict.fromkeys(("mean", *QUANTILES), math.inf) for load in loads}
    running = [_Running(load, load.trigger, 0.0) for load in loads]
    latencies: dict[str, list[Real]] = {load.name: [] for load in loads}
    rows: dict[str, list[float]] = {load.name: [] for load in loads}
    time = 0.0
    while time < span:
        active = [one for one in running if one.busy]
        speed = min(1.0, cores / sum(one.wanted for one in active)) if active else 1.0
        starts = [one.next_start for one in running if not one.busy]
        ends = [time + one.left() / speed for one in active]
        after = min([*starts, *ends])
        for one in active:
            _work(one, (after - time) * speed)
        time = after
        for one in running:
            if not one.busy and one.began > 0:
                _finish(one, time, span, latencies[one.load.name], rows[one.load.name])
            if not one.busy and one.next_start <= time + 1e-9:
                _begin(one, time)
    return {load.name: _summary(latencies[load.name], rows[load.name]) for load in loads}


def _begin(one: _Running, time: float) -> None:
    load = one.load
    ratio = load.ratios[one.number % len(load.ratios)]
    one.opened, one.admitted = one.admitted, time
    one.began, one.number = time, one.number + 1
    one.fixed_left = load.fixed * ratio
    one.rows_left = load.per_row * load.rate * (time - one.opened) * ratio


def _work(one: _Running, seconds: float) -> None:
    if one.fixed_left > 0:
        one.fixed_left = max(0.0, one.fixed_left - seconds)
        one.fixed_left = 0.0 if one.fixed_left < 1e-9 else one.fixed_left
    else:
        one.rows_left = max(0.0, one.rows_left - seconds)
        one.rows_left = 0.0 if one.rows_left < 1e-9 else one.rows_left


def _finish(one: _Running, time: float, span: float, latencies: list[Real], rows: list[float]) -> None:
    if time > WARMING * span:
        births = one.opened + (np.arange(POINTS) + 0.5) / POINTS * (one.admitted - one.opened)
        latencies.append(time - births)
        rows.append(one.admitted - one.opened)
    trigger = one.load.trigger
    one.next_start = max(time, (math.floor(one.began / trigger + 1e-9) + 1) * trigger) if trigger else time
    one.began = 0.0


def _summary(latencies: list[Real], weights: list[float]) -> dict[str, float]:
    if not latencies:
        return dict.fromkeys(("mean", *QUANTILES), math.inf)
    values = np.concatenate(latencies)
    weight = np.repeat(weights, POINTS)
    order = np.argsort(values)
    cumulated = np.cumsum(weight[order]) / weight.sum()
    places = {name: min(int(np.searchsorted(cumulated, p)), len(order) - 1) for name, p in QUANTILES.items()}
    found = {name: float(values[order[place]]) for name, place in places.items()}
    return {"mean": float(np.average(values, weights=weight)), **found}
