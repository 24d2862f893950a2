"""Several queries on one driver: their micro-batches compete for its cores, and each lasts longer than alone.

A micro-batch has a fixed part, which keeps one core busy, and a part for its rows, which keeps as many cores busy as the query
has tasks. While more cores are wanted than there are, all micro-batches run at the same share of their speed (Spark's fair
pools). Triggers of the same interval begin at the same moments, for Spark counts them from the epoch.
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
"""Seconds that are simulated, and the share of them at the beginning that is ignored."""
POINTS = 20
"""Rows per micro-batch whose latency is computed, evenly spaced."""


@dataclass(frozen=True)
class Load:
    """The load of a query on a driver.

    Args:
        rate: rows per second.
        trigger: seconds between the starts of micro-batches, 0 for none.
        fixed: seconds of one core per micro-batch.
        per_row: seconds of ``tasks`` cores per row.
        ratios: recorded durations over fitted ones, in order; they are repeated.
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
        """Mean number of cores that the query keeps busy, if it keeps up with its trigger."""
        interval = self.trigger or max(self.fixed / max(1 - self.rate * self.per_row, 1e-9), 1e-3)
        return self.fixed / interval + self.rate * self.per_row * self.tasks

    @property
    def forced(self) -> float:
        """Mean number of cores without which rows would pile up. Where micro-batches outlast their trigger, they grow, so that
        their fixed part takes ever less.
        """
        rows = self.rate * self.per_row
        fits = self.trigger > 0 and self.fixed + rows * self.trigger <= self.trigger
        return rows * self.tasks + (self.fixed / self.trigger if fits else 0.0)


def load_of(name: str, calibration: Calibration) -> Load:
    """The load of a recorded run at its present setting; several queries are taken together."""
    setting = calibration.today
    durations = [(query, query.under(gate_of(setting))) for query in calibration.queries]
    tasks = min(setting.cores or 1.0, setting.partitions or math.inf)
    return Load(
        name,
        calibration.arrivals.rate,
        setting.interval,
        sum(model.fixed * model.mean_ratio for _, model in durations),
        sum(model.per_row * model.mean_ratio * query.observed.rows_per_source_row for query, model in durations),
        tasks,
        tuple((np.concatenate(durations[0][1].ratios) / durations[0][1].mean_ratio).tolist()),
    )


@dataclass
class _Running:
    """The state of a query in the simulation: the rest of its micro-batch, in seconds alone, and when that began."""

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
        """Cores that the present part of the micro-batch can use."""
        return 1.0 if self.fixed_left > 0 else self.load.tasks

    def left(self) -> float:
        """Seconds to the end of the present part at full speed."""
        return self.fixed_left if self.fixed_left > 0 else self.rows_left


def shared(loads: Sequence[Load], cores: float, *, span: float = SPAN_S) -> dict[str, dict[str, float]]:
    """Simulate queries that share a driver: latency figures by query, in seconds; infinite if the cores do not suffice,
    or one does not keep up by itself.
    """
    if sum(load.forced for load in loads) >= cores or any(load.rate * load.per_row >= 1 for load in loads):
        return {load.name: dict.fromkeys(("mean", *QUANTILES), math.inf) for load in loads}
    running = [_Running(load, load.trigger, 0.0) for load in loads]
    latencies: dict[str, list[Real]] = {load.name: [] for load in loads}
    rows: dict[str, list[float]] = {load.name: [] for load in loads}
    time = 0.0
    # From one event to the next, a start or the end of a part, all speeds stay the same.
    while time < span:
        active = [query for query in running if query.busy]
        speed = min(1.0, cores / sum(query.wanted for query in active)) if active else 1.0
        starts = [query.next_start for query in running if not query.busy]
        ends = [time + query.left() / speed for query in active]
        after = min([*starts, *ends])
        for query in active:
            _work(query, (after - time) * speed)
        time = after
        for query in running:
            if not query.busy and query.began > 0:
                _finish(query, time, span, latencies[query.load.name], rows[query.load.name])
            if not query.busy and query.next_start <= time + 1e-9:
                _begin(query, time)
    return {load.name: _summary(latencies[load.name], rows[load.name]) for load in loads}


def _begin(one: _Running, time: float) -> None:
    """Begin a micro-batch with the rows that arrived since the one before began."""
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
    """End a micro-batch: note the latencies of its rows, and when the next one may start."""
    if time > WARMING * span:
        births = one.opened + (np.arange(POINTS) + 0.5) / POINTS * (one.admitted - one.opened)
        latencies.append(time - births)
        rows.append(one.admitted - one.opened)
    trigger = one.load.trigger
    one.next_start = max(time, (math.floor(one.began / trigger + 1e-9) + 1) * trigger) if trigger else time
    one.began = 0.0


def _summary(latencies: list[Real], weights: list[float]) -> dict[str, float]:
    """Mean and quantiles, in which a micro-batch weighs as much as its rows."""
    if not latencies:
        return dict.fromkeys(("mean", *QUANTILES), math.inf)
    values = np.concatenate(latencies)
    weight = np.repeat(weights, POINTS)
    order = np.argsort(values)
    cumulated = np.cumsum(weight[order]) / weight.sum()
    places = {name: min(int(np.searchsorted(cumulated, p)), len(order) - 1) for name, p in QUANTILES.items()}
    quantiles = {name: float(values[order[place]]) for name, place in places.items()}
    return {"mean": float(np.average(values, weights=weight)), **quantiles}
