"""Makes plans from recordings and a goal: the gate that meets a latency with the fewest micro-batches, or that costs least."""

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
from penstock.planner.tuning import STEPS, Target, Tuning, choose, unfit
from penstock.planner.verdict import Verdict, verdicts

Goal = Target | Prices
FEWEST_CORES = 64
"""The most cores that are tried in the search for the fewest."""
PATIENCE = (0.5, 1.0, 2.0, 4.0)
"""Delays that are tried with a threshold, as multiples of the time in which the threshold fills."""


@dataclass(frozen=True)
class Planning:
    """A plan, and the evidence for it.

    Args:
        plan: to be written, edited and run.
        goal: of the plan.
        today, chosen: predictions; ``today`` is None if the query does not keep up at its present setting.
        tried: predictions, without bands, of the settings that were tried.
        verdicts: what limits the query as it was recorded, the gravest first.
        grouping: whether it would pay to divide the elements among queries; None if that is not known.
    """

    plan: Plan
    goal: Goal
    today: Prediction | None
    chosen: Prediction
    tried: tuple[Prediction, ...]
    verdicts: tuple[Verdict, ...]
    grouping: Choice | None = None

    def _repr_html_(self) -> str:
        """HTML for notebooks: the page that explains the plan."""
        return framed(plan_page(self, "query"))


def make_plan(
    observation: Observation,
    goal: Goal,
    what_if: Setting | None = None,
    *,
    fewest_cores: bool = False,
    recordings: Iterable[str] = (),
) -> Planning:
    """Choose how to run an application.

    Args:
        goal: a bound on a latency, which is met with the fewest micro-batches; or prices, for the least cost.
        what_if: a rate, arrivals or cores other than those recorded.
        fewest_cores: whether to plan for the fewest cores with which a bound can be met.
        recordings: names of the recordings, for the plan to list.

    Raises:
        ConfigurationError: no prediction can be made, or the goal cannot be met: says what can be met, and what is missing.

    Examples:
        >>> from penstock.planner import Target, observe
        >>> plan = make_plan(observe("examples/recordings/digests-1.jsonl"), Target("p95", 5.0)).plan
        >>> plan.trigger_s > 1
        True
    """
    if fewest_cores and what_if is not None and what_if.cores is not None:
        raise ConfigurationError("The fewest cores are looked for, and cores are given, too: leave out the one or the other.")
    limits = tuple(verdicts(observation))
    if (unknown := unfit(limits)) is not None:
        raise ConfigurationError(unknown)
    calibration, sources = calibrate(observation), _sources(observation)
    if isinstance(goal, Prices):
        chosen, today, tried, reason = _cheapest(
            calibration, goal, what_if, gated=len(sources) == 1 and all(map(is_gated, sources.values()))
        )
        holds_to = None
    else:
        tuning = _fewest(calibration, goal, what_if) if fewest_cores else choose(calibration, goal, what_if, fine=True)
        if tuning.chosen is None:
            raise ConfigurationError(f"{tuning.headline} {tuning.reason}")
        chosen, today, tried, reason, holds_to = (tuning.chosen, tuning.today, tuning.tried, tuning.reason, tuning.max_rate)
    fixes_cores = fewest_cores or (what_if is not None and what_if.cores is not None)
    plan = plan_of(observation, chosen, goal, because=reason, holds_to=holds_to, fixes_cores=fixes_cores, recordings=recordings)
    grouping = (
        None if isinstance(goal, Prices) or (chosen.setting.min_rows or 1) > 1 else _grouped(observation, calibration, chosen)
    )
    if grouping is not None and grouping.pays:
        apart = f"The figures expected are of one query; with these groups: {grouping.reason}"
        plan = msgspec.structs.replace(plan, groups=described(grouping.best.groups), assumed=[*plan.assumed, apart])
    return Planning(plan, goal, today, chosen, tried, limits, grouping)


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
    """The plan for a chosen setting; ``goal`` is None if a person chose it."""
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
        recordings=[str(Path(recording)) for recording in recordings],
    )


def _grouped(observation: Observation, calibration: Calibration, chosen: Prediction) -> Choice | None:
    """The best grouping of a run that was recorded in one query; None for other recordings."""
    query = calibration.queries[0]
    durations = calibration.scaled(query, chosen.setting)
    below = chosen.rows_per_batch < durations.knee
    elements = Elements.of(observation, chosen, durations.fixed, durations.per_row + durations.below_knee * below)
    if elements is None or _grouping(observation):
        return None
    return best_grouping(elements, max(1, int(chosen.setting.cores or 1)))


def _grouping(observation: Observation) -> dict[str, str]:
    """The recorded group of each element; empty where all are in one, and for other queries than Penstock's."""
    return {} if observation.manifest is None else dict(observation.manifest.layout.grouping)


def _sources(observation: Observation) -> dict[str, str]:
    """The URIs of the sources of a run of Penstock; empty for other queries."""
    return {} if observation.manifest is None else observation.manifest.sources


def _fewest(calibration: Calibration, target: Target, what_if: Setting | None) -> Tuning:
    """The answer for the fewest cores that meet the target, by bisection; if none do, for the most cores that were tried."""
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
        fewer = choose(calibration, target, replace(what_if or Setting(), cores=middle))
        if fewer.chosen is None:
            low = middle + 1
        else:
            answer, high = fewer, middle
    return (
        answer if answer.chosen is None else choose(calibration, target, replace(what_if or Setting(), cores=high), fine=True)
    )


def _cheapest(
    calibration: Calibration, prices: Prices, what_if: Setting | None, *, gated: bool
) -> tuple[Prediction, Prediction | None, tuple[Prediction, ...], str]:
    """The setting of least cost, over triggers and, if the source is gated, over thresholds with a delay.

    Returns the predictions of that setting, of today's and of all settings that were tried, and the reason in a sentence.
    """
    base = calibration.complete(what_if).ungated()
    rate = float(base.rate or 0.0)

    def predicted(interval: float, patience: float | None = None) -> Prediction | None:
        """Predict a trigger interval; or a threshold of the rows that come in one, with a delay of ``patience`` intervals."""
        setting = replace(base, trigger=interval)
        if patience is not None:
            rows = float(max(1, round(rate * interval)))
            setting = replace(base, trigger=0.0, min_rows=rows, max_delay=patience * max(interval, 1e-3))
        try:
            return calibration.predict(setting, replicates=0)
        except PenstockError:
            return None

    tried = [prediction for step in STEPS if (prediction := predicted(step)) is not None]
    if not tried:
        calibration.predict(replace(base, trigger=0.0))  # raises an error that says why
    best = min(tried, key=prices.per_second)
    around = best.setting.interval  # search more finely around the best round interval
    finer = [around * 2 ** (power / 6) for power in range(-5, 6) if power] if around else []
    tried += [prediction for interval in finer if (prediction := predicted(round(interval, 3))) is not None]
    if gated and rate * around > 1:
        near = [around * 2 ** (power / 4) for power in range(-4, 5)]
        gates = [predicted(interval, patience) for interval in near for patience in PATIENCE]
        tried += [prediction for prediction in gates if prediction is not None]
    today = None
    with suppress(PenstockError):
        today = calibration.predict(calibration.complete(what_if))
        tried.append(today)  # with a gate, say, that none of the others has
    best = min(tried, key=prices.per_second)
    chosen = today if best is today else calibration.predict(best.setting)
    reason = (
        f"{prices.shown(chosen)}, which is the least of {len(tried)} settings (predicted)"
        + ("" if today is None else f"; as it is now: {prices.shown(today)}")
        + "."
    )
    return chosen, today, tuple(tried), reason
