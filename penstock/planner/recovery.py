"""After an outage, a deployment or a step in the rate: how the backlog and the latency go, and when all is as before."""

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.errors import ConfigurationError, UnstableServerError
from penstock.planner.arrivals import Flow
from penstock.planner.calibration import Calibration, QueryModel, gate_of
from penstock.planner.durations import DurationModel
from penstock.planner.gate import Passage, pass_gate
from penstock.planner.series import Real
from penstock.planner.setting import Setting
from penstock.queueing import parameter

REPLICATES = 20
COLD = 12
"""Micro-batches of a start that may last longer than later ones."""
STEADY_CYCLES = 200
"""Micro-batches before the event, from which it is known what is usual."""


@dataclass(frozen=True)
class Recovery:
    """What follows an outage or a step; all predicted. Times are in seconds from the outage's end, or from the step.

    Parameters
    ----------
    seconds: until results are as fresh as they are to be (the median of runs). low, high: in 90% of runs of models that the
        recording might have led to; infinite where those do not keep up.
    usual_p95: of the latency once all is steady again, which a step of the rate has changed.
    times, backlog, latency: of one replicate, at the end of each micro-batch: rows that wait, and the oldest row's latency.
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
    """Predict what follows an outage, after which a backlog waits, or a step in the rate.

    Parameters
    ----------
    outage: seconds during which rows arrive and nothing runs.
    restart: whether the query is started anew after it, with the warm-up that was recorded.
    step: what the rate is multiplied by from then on.

    Raises
    ------
    ConfigurationError: neither an outage nor a step is given, or there are several queries.
    UnstableServerError: the query does not keep up with the rate after the step, so it never recovers.

    Examples
    --------
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
    event = STEADY_CYCLES * max(cycle, 1 / rate)
    headroom = 1 - rate * step / limit if math.isfinite(limit) else 1.0
    horizon = event + outage + (outage + 60.0) * (2 + 2 / headroom) + 20 * cycle
    usual = calibration.scaled(model, whole)
    models = [usual] * REPLICATES
    models += [calibration.scaled(model, whole, model.under(gate_of(whole)).drawn(random)) for _ in range(REPLICATES)]
    runs = [
        _once(calibration, model, one, whole, event, outage, restart and outage > 0, step, horizon, random) for one in models
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
    rate = float(whole.rate or 0.0)
    before = calibration.arrivals.flow(rate, event + outage if step == 1.0 else event, random, whole.arrivals)
    after = calibration.arrivals.flow(rate * step, horizon - before.times[-1], random, whole.arrivals)
    flow = Flow(
        np.concatenate([before.times, before.times[-1] + after.times[1:]]),
        np.concatenate([before.counts, before.counts[-1] + after.counts[1:]]),
    )
    gate = gate_of(whole)
    work = durations.work(random, model.observed.rows_per_source_row, horizon)
    steady = pass_gate(flow, gate, work, until=event)
    back = event + outage
    flying = len(steady.ended) - (1 if outage and (steady.ended[-1:] > event).any() else 0)
    taken = float(steady.taken[flying - 1]) if flying else 0.0
    late = Flow(flow.times, np.maximum(flow.counts - taken, 0.0))
    # Spark begins with the micro-batch that was under way, as it was planned; what has come since is in the next.
    planned = float(steady.rows[-1]) if flying < len(steady.ended) else math.inf
    thawing = replace(work, longer=np.array(_thawing(model) if restart else []))
    begin = back if outage else max([event, *steady.ended[-1:].tolist()])
    rest = pass_gate(late, gate, thawing, until=horizon, free=begin, first=planned)
    last = float(rest.started[-1]) if len(rest.started) else horizon
    _, usual = rest.latencies(late, (back + last) / 2, last)
    return _judged(rest, late, float(np.quantile(usual, 0.95)) if len(usual) else 0.0, back)


def _judged(rest: Passage, late: Flow, usual: float, back: float) -> tuple[float, float, Real, Real, Real]:
    """When the mean latency of a micro-batch, and of the next, is no longer than usual."""
    edges = np.concatenate([[0.0], rest.taken])
    oldest = rest.visible - late.births(edges[:-1] + 1e-6)
    middle = rest.visible - late.births((edges[:-1] + edges[1:]) / 2)
    waiting = np.array([late.count(time) for time in rest.ended.tolist()]) - rest.taken
    fine = middle <= usual
    settled = fine & np.append(fine[1:], True)
    seconds = float(rest.visible[int(np.argmax(settled))] - back) if settled.any() else math.inf
    return max(0.0, seconds), usual, rest.ended - back, waiting, oldest


def _thawing(model: QueryModel) -> list[float]:
    """How many seconds longer the first micro-batches after a start last than warm ones of their rows: the recorded median."""
    speed = 1.0 if model.speed is None else model.speed.factor  # of a run that is followed, not of the starts recorded
    starts = [
        one.durations[:COLD] - np.array([model.durations.duration(rows) / speed for rows in one.rows[:COLD]])
        for one in model.observed.cold
        if len(one) >= COLD and one.numbers[0] <= 1
    ]
    return np.maximum(np.median(starts, axis=0), 0.0).tolist() if starts else []
