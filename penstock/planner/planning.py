"""From recordings and a goal to a plan: the gate that meets a latency target with the fewest micro-batches, or costs least."""

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from penstock.app.display import framed
from penstock.connectors.registry import is_gated
from penstock.errors import ConfigurationError, PenstockError
from penstock.planner.calibration import Calibration, calibrate
from penstock.planner.grouping import Choice, Elements, best_grouping, described
from penstock.planner.observation import Observation
from penstock.planner.plan import Plan, SourceGate, digest
from penstock.planner.plan_page import plan_page
from penstock.planner.prediction import LATENCIES, Prediction
from penstock.planner.prices import Prices
from penstock.planner.setting import Setting
from penstock.planner.tuning import STEPS, Target, Tuning, choose
from penstock.planner.verdict import Verdict, verdicts

Goal = Target | Prices
FEWEST_CORES = 64
"""Most cores that are tried."""
PATIENCE = (0.5, 1.0, 2.0, 4.0)
"""Delays that are tried with a threshold, in times of what the threshold takes to fill."""


@dataclass(frozen=True)
class Planning:
    """A plan, and how it came about.

    Parameters
    ----------
    plan: to be written, edited and run.
    today, chosen: predictions; ``today`` is None where the query does not keep up as it is.
    tried: predictions without bands.
    verdicts: what limits the query as it was recorded, the gravest first.
    grouping: whether other queries would pay; None where the recording does not tell.
    """

    plan: Plan
    goal: Goal
    today: Prediction | None
    chosen: Prediction
    tried: tuple[Prediction, ...]
    verdicts: tuple[Verdict, ...]
    grouping: Choice | None = None

    def _repr_html_(self) -> str:
        """In a notebook: the page that explains it."""
        return framed(plan_page(self, "query"))


def make_plan(
    observation: Observation,
    goal: Goal,
    what_if: Setting | None = None,
    *,
    fewest_cores: bool = False,
    recordings: Iterable[str] = (),
) -> Planning:
    """Choose how an application is to be run.

    Parameters
    ----------
    goal: a bound on a latency, which is met with the fewest micro-batches; or prices, whose sum is made least.
    what_if: a rate, arrivals or cores other than those recorded.
    fewest_cores: for a bound: the fewest cores with which it can be met.
    recordings: what the plan is to name as its evidence.

    Raises
    ------
    ConfigurationError: the recordings carry no prediction, or the goal cannot be met: says what can, and what it would take.

    Examples
    --------
    >>> from penstock.planner import Target, observe
    >>> plan = make_plan(observe("examples/recordings/digests-1.jsonl"), Target("p95", 5.0)).plan
    >>> plan.trigger_s > 1
    True
    """
    calibration = calibrate(observation)
    if isinstance(goal, Prices):
        chosen, today, tried, reason = _cheapest(
            calibration, goal, what_if, gated=all(map(is_gated, _sources(observation).values()))
        )
        holds_to = None
    else:
        tuning = _fewest(calibration, goal, what_if) if fewest_cores else choose(calibration, goal, what_if, fine=True)
        if tuning.chosen is None:
            raise ConfigurationError(f"A {goal.name} of {goal.seconds:g} s cannot be met. {tuning.reason}")
        chosen, today, tried, reason, holds_to = (tuning.chosen, tuning.today, tuning.tried, tuning.reason, tuning.max_rate)
    plan = plan_of(
        observation, chosen, goal, because=reason, holds_to=holds_to, fixes_cores=fewest_cores, recordings=recordings
    )
    grouping = None if isinstance(goal, Prices) or chosen.setting.min_rows else _grouped(observation, calibration, chosen)
    if grouping is not None and grouping.pays:
        apart = f"The figures expected are of one query; with these groups: {grouping.reason}"
        plan = msgspec.structs.replace(plan, groups=described(grouping.best.groups), assumed=[*plan.assumed, apart])
    return Planning(plan, goal, today, chosen, tried, tuple(verdicts(observation)), grouping)


def plan_of(
    observation: Observation,
    chosen: Prediction,
    goal: Goal | None,
    *,
    because: str,
    holds_to: float | None = None,
    fixes_cores: bool = False,
    recordings: Iterable[str] = (),
) -> Plan:
    """The plan that a choice amounts to; ``goal`` is None where somebody has made it."""
    manifest, setting = observation.manifest, chosen.setting
    gate = SourceGate(
        min_rows=None if setting.min_rows is None else int(setting.min_rows),
        max_delay_s=None if setting.min_rows is None else setting.delay,
    )
    goals = {goal.name: goal.seconds} if isinstance(goal, Target) else {} if goal is None else goal.to_json()
    return Plan(
        application=None if manifest is None else manifest.application,
        topology=None if manifest is None else digest(manifest.topology),
        trigger_s=setting.interval,
        sources=dict.fromkeys(_sources(observation), gate) if gate.options() else {},
        groups=_grouping(observation),
        cores=int(setting.cores) if fixes_cores and setting.cores else None,
        goal=goals,
        expected={
            "rate": chosen.rate,
            **{name: {"value": getattr(chosen, name), "band": list(chosen.band(name))} for name in LATENCIES},
            "utilisation": chosen.utilisation,
            "batches_per_day": chosen.batches_per_day,
            "rows_per_batch": chosen.rows_per_batch,
            "kind": "predicted; latencies in seconds, bands of 90%",
        },
        holds_to=holds_to,
        because=because,
        assumed=list(chosen.assumptions),
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        recordings=[str(Path(one)) for one in recordings],
    )


def _grouped(observation: Observation, calibration: Calibration, chosen: Prediction) -> Choice | None:
    """The best grouping of what was recorded in one query."""
    query = calibration.queries[0]
    durations = calibration.scaled(query, chosen.setting)
    below = chosen.rows_per_batch < durations.knee
    elements = Elements.of(observation, chosen, durations.fixed, durations.per_row + durations.below_knee * below)
    if elements is None or _grouping(observation):
        return None
    return best_grouping(elements, max(1, int(chosen.setting.cores or 1)))


def _grouping(observation: Observation) -> dict[str, str]:
    """The groups that were recorded, by element."""
    return {} if observation.manifest is None else dict(observation.manifest.layout.grouping)


def _sources(observation: Observation) -> dict[str, str]:
    """Where the sources were read, of a run of Penstock."""
    return {} if observation.manifest is None else observation.manifest.sources


def _fewest(calibration: Calibration, target: Target, what_if: Setting | None) -> Tuning:
    """The answer with the fewest cores that meet the target; with none, that of the most cores tried."""
    recorded = calibration.queries[0].observed.setting.cores
    if recorded is None:
        raise ConfigurationError(
            "The recording does not say how many cores the query had: give --recorded-cores (cores= in Python)."
        )
    low, high = 1, 1
    answer = choose(calibration, target, replace(what_if or Setting(), cores=high))
    while answer.chosen is None and high < FEWEST_CORES:
        low, high = high + 1, 2 * high
        answer = choose(calibration, target, replace(what_if or Setting(), cores=high))
    while answer.chosen is not None and low < high:
        middle = (low + high) // 2
        found = choose(calibration, target, replace(what_if or Setting(), cores=middle))
        if found.chosen is None:
            low = middle + 1
        else:
            answer, high = found, middle
    return answer


def _cheapest(
    calibration: Calibration, prices: Prices, what_if: Setting | None, *, gated: bool
) -> tuple[Prediction, Prediction | None, tuple[Prediction, ...], str]:
    """The setting whose latency and micro-batches cost least together: over triggers, and over thresholds with a delay."""
    base = replace(calibration.complete(what_if), min_rows=None, max_delay=None)
    rate = float(base.rate or 0.0)

    def predicted(interval: float, patience: float | None = None) -> Prediction | None:
        """With a trigger interval, or with a threshold of the rows that come in one, and a delay of so many of it."""
        setting = replace(base, trigger=interval)
        if patience is not None:
            rows = float(max(1, round(rate * interval)))
            setting = replace(base, trigger=0.0, min_rows=rows, max_delay=patience * max(interval, 1e-3))
        try:
            return calibration.predict(setting, replicates=0)
        except PenstockError:
            return None

    tried = [found for step in STEPS if (found := predicted(step)) is not None]
    if not tried:
        calibration.predict(replace(base, trigger=0.0))  # which says why
    best = min(tried, key=prices.per_second)
    around = best.setting.interval
    finer = [around * 2 ** (power / 6) for power in range(-5, 6) if power] if around else []
    tried += [found for interval in finer if (found := predicted(round(interval, 3))) is not None]
    if gated and rate * around > 1:
        near = [around * 2 ** (power / 4) for power in range(-4, 5)]
        gates = [predicted(interval, patience) for interval in near for patience in PATIENCE]
        tried += [found for found in gates if found is not None]
    best = min(tried, key=prices.per_second)
    chosen = calibration.predict(best.setting)
    today = None
    with suppress(PenstockError):
        today = calibration.predict(calibration.complete(what_if))
    reason = (
        f"{prices.shown(chosen)}, which is the least of {len(tried)} settings (predicted)"
        + ("" if today is None else f"; as it is now: {prices.shown(today)}")
        + "."
    )
    return chosen, today, tuple(tried), reason
