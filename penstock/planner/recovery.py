"""Recovery after an outage, a deployment or a step in the rate: the course of backlog and latency, and when they are usual."""

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.errors import ConfigurationError, UnstableServerError
from penstock.planner.arrivals import Flow
from penstock.planner.calibration import Calibration, QueryModel, gate_of
from penstock.planner.durations import DurationModel
from penstock.planner.gate import SimulatedBatches, pass_gate
from penstock.planner.series import Real
from penstock.planner.setting import Setting
from penstock.queueing import parameter

REPLICATES = 20
"""Simulated runs: so many of the fitted model, and as many of models that the recordings also allow."""
COLD = 12
"""Number of micro-batches after a start that may last longer than later ones."""
STEADY_CYCLES = 200
"""Number of micro-batches that are simulated before the outage or the step."""


@dataclass(frozen=True)
class Recovery:
    """The course after an outage or a step; all predicted. Times are in seconds from the outage's end, or from the step.

    Args:
        seconds: until the latency is usual again, the median of runs.
        low, high: bounds of it in 90% of the runs of models that the recordings also allow; infinite where these do not keep
            up.
        usual_p95: of the latency once it is steady again; a step of the rate changes it.
        times, backlog, latency: of the median run, at the end of each micro-batch: rows that wait, and the oldest row's
            latency.
    """

    seconds: float
    low: float
    high: float
    usual_p95: float
    times: Real
    backlog: Real
    latency: Real


def recover(
    calibration: Calibration,
    setting: Setting | None = None,
    *,
    outage: float = 0.0,
    restart: bool = True,
    step: float = 1.0,
    seed: int = 0,
) -> Recovery:
    """Predict the recovery from an outage, after which a backlog waits, or from a step in the rate.

    Args:
        outage: seconds during which rows arrive and nothing runs.
        restart: whether the query is started anew after the outage, with the warm-up that was recorded.
        step: factor of the rate from the beginning of the outage on; without an outage, from time 0 on.

    Raises:
        ConfigurationError: neither an outage nor a step is given, or there are several queries.
        UnstableServerError: the query does not keep up with the rate after the step, so it never recovers.

    Examples:
        >>> from penstock.planner import Setting, calibrate, observe
        >>> seen = observe("examples/recordings/digests-1.jsonl", "examples/recordings/digests-2.jsonl")
        >>> after = recover(calibrate(seen), Setting(rate=500), outage=60.0)
        >>> after.low <= after.seconds <= after.high
        True
    """
    outage = parameter.rate("outage", outage, zero=True)
    step = parameter.rate("step", step)
    if not outage and step == 1.0:
        raise ConfigurationError("Give an outage in seconds, or a step of the rate other than 1.")
    if len(calibration.queries) > 1:
        raise ConfigurationError("The recovery of queries joined by hops is not modelled; observe one with query=.")
    whole = calibration.complete(setting)
    rate, limit = float(whole.rate or 0.0), calibration.throughput_limit(whole)
    if rate * step >= limit:
        raise UnstableServerError(
            f"After the step {rate * step:,.0f} rows arrive per second and the query keeps up with {limit:,.0f} (predicted): "
            "it never recovers. Give it more cores, or a larger max_rows if that is set."
        )
    random = np.random.default_rng(seed)
    model = calibration.queries[0]
    cycle = calibration.cycle(whole)
    # The runs must be long enough for the backlog to go: the less headroom, the longer that takes.
    event = STEADY_CYCLES * max(cycle, 1 / rate)
    headroom = 1 - rate * step / limit if math.isfinite(limit) else 1.0
    horizon = event + outage + (outage + 60.0) * (2 + 2 / headroom) + 20 * cycle
    usual = calibration.scaled(model, whole)
    models = [usual] * REPLICATES
    models += [calibration.scaled(model, whole, model.under(gate_of(whole)).drawn(random)) for _ in range(REPLICATES)]
    runs = [
        _once(calibration, model, durations, whole, event, outage, restart and outage > 0, step, horizon, random)
        for durations in models
    ]
    times = np.array([run[0] for run in runs])
    middle = int(np.argsort(times[:REPLICATES])[REPLICATES // 2])
    low, high = np.quantile(times[REPLICATES:], [0.05, 0.95], method="higher")  # some may be infinite
    return Recovery(float(times[middle]), min(float(low), times[middle]), max(float(high), times[middle]), *runs[middle][1:])


def _once(
    calibration: Calibration,
    model: QueryModel,
    durations: DurationModel,
    whole: Setting,
    event: float,
    outage: float,
    restart: bool,
    step: float,
    horizon: float,
    random: np.random.Generator,
) -> tuple[float, float, Real, Real, Real]:
    """Simulate one run; returns the seconds to recover, and the other fields of a `Recovery` from ``usual_p95`` on."""
    rate = float(whole.rate or 0.0)
    changes = event + outage if step == 1.0 else event
    before = calibration.arrivals.flow(rate, changes, random, whole.arrivals).until(changes)
    after = calibration.arrivals.flow(rate * step, horizon - changes, random, whole.arrivals)
    flow = Flow(
        np.concatenate([before.times, changes + after.times[1:]]),
        np.concatenate([before.counts, before.counts[-1] + after.counts[1:]]),
    )
    gate = gate_of(whole)
    work = durations.work(random, model.observed.rows_per_source_row, horizon)
    steady = pass_gate(flow, gate, work, until=event)
    back = event + outage
    flying = len(steady.ended) - (1 if outage and (steady.ended[-1:] > event).any() else 0)
    taken = float(steady.taken[flying - 1]) if flying else 0.0
    # After the event only rows that were not taken before it arrive.
    late = Flow(flow.times, np.maximum(flow.counts - taken, 0.0))
    # Spark first repeats the micro-batch that was under way, as it was planned; rows that came since are in the next.
    planned = float(steady.rows[-1]) if flying < len(steady.ended) else math.inf
    thawing = replace(work, longer=np.array(_thawing(model) if restart else []))
    begin = back if outage else max([event, *steady.ended[-1:].tolist()])
    rest = pass_gate(late, gate, thawing, until=horizon, free=begin, first=planned)
    last = float(rest.started[-1]) if len(rest.started) else horizon
    _, usual = rest.latencies(late, (back + last) / 2, last)
    return _judged(rest, late, float(np.quantile(usual, 0.95)) if len(usual) else 0.0, back)


def _judged(rest: SimulatedBatches, late: Flow, usual: float, back: float) -> tuple[float, float, Real, Real, Real]:
    """The result of a run: it has recovered once the middle rows of two successive micro-batches have the usual latency."""
    edges = np.concatenate([[0.0], rest.taken])
    oldest = rest.visible - late.births(edges[:-1] + 1e-6)
    middle = rest.visible - late.births((edges[:-1] + edges[1:]) / 2)
    waiting = np.array([late.count(time) for time in rest.ended.tolist()]) - rest.taken
    fine = middle <= usual
    settled = fine & np.append(fine[1:], True)
    seconds = float(rest.visible[int(np.argmax(settled))] - back) if settled.any() else math.inf
    return max(0.0, seconds), usual, rest.ended - back, waiting, oldest


def _thawing(model: QueryModel) -> list[float]:
    """Seconds by which the first micro-batches after a start last longer than warm ones with as many rows: recorded medians."""
    speed = (
        1.0 if model.speed is None else model.speed.factor
    )  # the durations contain the speed of a followed run, the recorded starts do not
    starts = [
        start.durations[:COLD] - np.array([model.durations.duration(rows) / speed for rows in start.rows[:COLD]])
        for start in model.observed.cold
        if len(start) >= COLD and start.numbers[0] <= 1
    ]
    return np.maximum(np.median(starts, axis=0), 0.0).tolist() if starts else []
