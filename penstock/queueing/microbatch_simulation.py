"""Simulating a micro-batch server row by row: any arrivals, any residual, seeded, with confidence intervals."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.errors import ConfigurationError
from penstock.queueing import parameter
from penstock.queueing.cost import cost_per_second
from penstock.queueing.distribution import Deterministic, Distribution, Exponential
from penstock.queueing.estimate import Estimate, quantile_estimate, ratio_estimate, warm_up
from penstock.queueing.simulation import Pool, Progress, require_same_mean

if TYPE_CHECKING:
    from penstock.queueing.microbatch import MicroBatchServer

Real = NDArray[np.float64]


@dataclass(frozen=True)
class MicroBatchSimulation:
    """What a simulated micro-batch server did after its warm-up.

    Args:
        mean_latency: from a row's arrival to the end of its batch, seconds.
        rows_per_batch, batches_per_second: means.
        busy_fraction: fraction of time during which a batch runs.
        latencies: of every row after the warm-up, in the order of arrival, in seconds.
        rows: rows simulated, warm-up included.
        seconds: wall-clock time that the simulation took.
    """

    mean_latency: Estimate
    rows_per_batch: Estimate
    batches_per_second: Estimate
    busy_fraction: Estimate
    latencies: Real
    rows: int
    seconds: float

    FIGURES: ClassVar[Mapping[str, str]] = {
        "rows_per_batch": "rows",
        "batches_per_second": "1/s",
        "busy_fraction": "",
        "mean_latency": "s",
    }
    BRIEF: ClassVar[Sequence[str]] = ("mean_latency", "rows_per_batch", "batches_per_second", "busy_fraction")

    def quantile(self, p: float, confidence: float = 0.95) -> Estimate:
        """The latency that a fraction ``p`` of rows does not exceed, in seconds."""
        return quantile_estimate(self.latencies, p, confidence)

    def cost(self, holding_cost: float, transfer_cost: float) -> float:
        """Cost per second: ``holding_cost`` per row and second (by Little's law) plus ``transfer_cost`` per batch."""
        batches = self.batches_per_second.value
        rows = self.mean_latency.value * self.rows_per_batch.value * batches
        return cost_per_second(rows, batches, holding_cost, transfer_cost)


def simulate_micro_batches(
    server: "MicroBatchServer",
    *,
    jobs: int = 2_000_000,
    seed: int = 0,
    interarrival: Distribution | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> MicroBatchSimulation:
    """Simulate ``jobs`` rows in a single run; see :func:`penstock.queueing.simulate`."""
    confidence, seed = parameter.fraction("confidence", confidence), parameter.seed(seed)
    jobs = parameter.jobs(jobs, 1000)
    server.require_stable()
    require_same_mean("interarrival", server.arrival_rate, interarrival)
    arrivals, residuals = np.random.default_rng(seed).spawn(2)
    started = perf_counter()
    times = np.cumsum(Pool(interarrival or Exponential(1 / server.arrival_rate), arrivals).refill(jobs))
    constant = isinstance(server.residual, Deterministic)
    factors = np.ones(1) if constant else server.residual.sample(residuals, jobs)  # there are no more batches than rows
    threshold, delay = (1.0, math.inf) if server.delay == 0 else (server.threshold, server.delay)
    starts, rows, durations, latencies, batches, admitted = _run(
        times,
        factors,
        threshold,
        delay,
        server.cap,
        server.trigger_interval,
        server.poll,
        server.fixed,
        server.per_row,
        server.per_key,
        server.keys,
    )
    seconds = perf_counter() - started
    cycles, latencies = np.diff(starts[:batches]), latencies[:admitted]
    rows, durations = rows[: batches - 1], durations[: batches - 1]
    if len(rows) < 64:
        raise ConfigurationError(
            f"{jobs:,} rows make {len(rows)} batches, and confidence intervals need 64 or more; simulate more jobs, about "
            f"{math.ceil(64 * jobs / max(len(rows), 1)) * 2:,}."
        )
    first = warm_up(rows)
    all_rows = rows
    rows, durations, cycles = rows[first:], durations[first:], cycles[first:]
    used_latencies = latencies[int(all_rows[:first].sum()) :]
    # The rows of one batch depend on each other, so sum their latencies by batch.
    ends = np.minimum(np.cumsum(rows).astype(int), len(used_latencies))
    sums = np.diff(np.append(0.0, np.cumsum(used_latencies)[np.maximum(ends - 1, 0)]))
    ones = np.ones_like(rows)
    return MicroBatchSimulation(
        ratio_estimate(sums, rows, confidence),
        ratio_estimate(rows, ones, confidence),
        ratio_estimate(ones, cycles, confidence),
        ratio_estimate(durations, cycles, confidence),
        used_latencies,
        jobs,
        seconds,
    )


@njit(cache=True)
def _run(  # type: ignore[no-untyped-def]
    times, factors, threshold, delay, cap, interval, poll, fixed, per_row, per_key, keys
):
    total = len(times)
    starts, rows, durations = np.empty(total), np.empty(total), np.empty(total)
    latencies = np.empty(total)
    batches = 0
    admitted_before = 0  # rows admitted to batches
    present = 0  # rows that have arrived
    free = 0.0  # when the last batch ended
    deadline = 0.0  # when the delay runs out; at the start it has
    asked = 0.0  # when the gate is asked
    next_grid = 0.0  # the next trigger
    while True:
        asked = max(free, next_grid) if interval > 0 else free
        while True:
            while present < total and times[present] <= asked:
                present += 1
            waiting = present - admitted_before
            if waiting >= threshold or (asked >= deadline and waiting >= 1):
                break
            if asked >= deadline:
                # No row waits, so the delay starts again, as often as it takes until one does.
                deadline = asked + delay
                if poll == 0 and interval == 0 and admitted_before < total:
                    deadline = max(deadline, asked + math.ceil((times[admitted_before] - asked) / delay) * delay)
                    if deadline < times[admitted_before]:
                        deadline = times[admitted_before]
            opening = admitted_before + int(threshold) - 1
            if opening >= total:
                return starts, rows, durations, latencies, batches, admitted_before
            event = min(times[opening], deadline)
            step = interval if interval > 0 else poll
            if step == 0:
                asked = event
            elif interval > 0:
                asked = step * max(math.floor(asked / step) + 1, math.ceil(event / step))
            else:
                asked += step * max(1.0, math.ceil((event - asked) / step))
        admitted = int(min(float(waiting), cap))
        distinct = 0.0
        if keys > 1:
            distinct = -keys * math.expm1(admitted * math.log1p(-1 / keys))
        elif keys == 1:
            distinct = 1.0
        duration = (fixed + per_row * admitted + per_key * distinct) * factors[batches % len(factors)]
        starts[batches], rows[batches], durations[batches] = asked, admitted, duration
        batches += 1
        free = asked + duration
        deadline = asked + delay
        if interval > 0:
            next_grid = (math.floor(asked / interval * (1 + 1e-12)) + 1) * interval
        for row in range(admitted_before, admitted_before + admitted):
            latencies[row] = free - times[row]
        admitted_before += admitted
