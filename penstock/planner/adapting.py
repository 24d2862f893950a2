"""Adapting: observe a run while it goes on, plan anew when its rate or its speed changes, and check each change afterwards.

`Adapting` collects the progress and the commits that the run reports, and evaluates them every few seconds: it learns the
model, waits for a change, decides whether another plan pays, applies it, and compares its effect with the expectation.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from penstock.engine.running.steering import Change
from penstock.errors import PenstockError, SourceError
from penstock.kinds.coding import finite
from penstock.planner.arrivals import arrivals_of
from penstock.planner.calibration import Calibration, calibrate
from penstock.planner.change import RateChange, rate_change
from penstock.planner.door import DoorPassage
from penstock.planner.doors import Doors
from penstock.planner.gate import compiled
from penstock.planner.observation import LEAST_TIMED, Observation, derived, observe_running
from penstock.planner.pace import pace_of
from penstock.planner.prediction import DAY_S, LATENCIES, QUANTILES, Prediction, summary
from penstock.planner.series import Real, Series
from penstock.planner.setting import Setting
from penstock.planner.tuning import STEPS, Target, predicted
from penstock.runs.batches import BatchRecord
from penstock.runs.decisions import Decision, note
from penstock.runs.gate import TransferGate
from penstock.runs.record import Record, record_of
from penstock.runtime.histogram import Histogram

LOOK_EVERY_S = 5.0
"""Least time between two evaluations of the run."""
LEARNING_S = 45.0
"""How long a run is observed before the first plan."""
HEADROOM = 1.25
"""A plan must meet its target at this multiple of the present rate, lest each small rise of the rate calls for another plan."""
MARGIN = 1.05
"""A predicted latency times this factor must meet the target: an allowance for the model's error."""
SAVING = 0.2
"""Least share of the micro-batches that another plan must save to be worth the change."""
HORIZON_S = 300.0
"""How long the present rate is assumed to last."""
DWELL_S = 60.0
"""Least time between two changes that only save micro-batches; it is doubled after each change that is taken back."""
CHECK_S, CHECK_BATCHES = 30.0, 6
"""A change is judged once so many seconds have passed and so many micro-batches have been committed since."""
CHOKED = 0.8
"""A change of a door's gate is reverted if, before it is judged, the rate falls below this share of its earlier value."""
KEPT = 1000
"""How many of its latest micro-batches are remembered for each group."""


Ledgers = Sequence[Sequence[BatchRecord]]
"""The committed micro-batches of each group; a group comes after the group that it reads from."""


@dataclass(frozen=True)
class Cause:
    """Why the plan is reconsidered: the cause's name, its evidence, and the rate (rows per second) to plan for."""

    name: str
    evidence: dict[str, Any]
    rate: float


CHECK = Cause("check", {}, 0.0)


@dataclass(frozen=True)
class Point:
    """The expected effect of a trigger interval together with the gates of the adapter's doors.

    Args:
        query: from the store to the result.
        doors: from the request to the store, by stream.
        fixed: seconds that a micro-batch takes whatever its rows; the unit in which the work of transfers is counted.
    """

    query: Prediction
    doors: Mapping[str, DoorPassage]
    fixed: float

    def latency(self, name: str) -> float:
        """Approximate latency from request to result, in seconds: the query's figure ``name`` plus the slowest door's.

        To the query's median the door's mean is added, for two medians add up to less than the median of the sum.
        """
        return float(getattr(self.query, name)) + waited(self.doors, name)

    @property
    def batches_per_day(self) -> float:
        """Micro-batches a day, plus the time spent on transfers, expressed as a number of micro-batches."""
        return self.query.batches_per_day + sum(door.busy for door in self.doors.values()) * DAY_S / self.fixed


def waited(doors: Mapping[str, DoorPassage], name: str) -> float:
    """Seconds that the slowest door adds to a latency figure; 0 without doors."""
    return max((door.latency["mean" if name == "p50" else name] for door in doors.values()), default=0.0)


@dataclass(frozen=True)
class Pending:
    """A change that was applied and is not judged yet, with the figures measured before it."""

    decision: Decision
    before: dict[str, float]


class Adapting:
    """Steers a run towards a bound on its latency; see `penstock.engine.running.steering.Steering`.

    Args:
        directory: of the run.
        target: the bound.
        trigger: seconds between micro-batches with which the run starts.
        dry_run: record the decisions, and change neither the run nor the doors.
        doors: of the adapter that feeds the run; their gates are chosen together with the trigger.
        gates: of the doors from the start, by stream; a door that is left out keeps the gate that it has.
        clock: returns the time in seconds since the epoch.
    """

    def __init__(
        self,
        directory: Path,
        target: Target,
        trigger: float,
        *,
        dry_run: bool = False,
        doors: Doors | None = None,
        gates: Mapping[str, TransferGate] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory, self._target, self._dry_run = directory, target, dry_run
        self._clock = clock
        self._trigger = trigger
        self._doors, self._gates = doors, dict(gates or {})
        self._leaves_doors = False
        """Whether the doors' gates are no longer changed, because clients seem to wait for an answer before they send on."""
        self._is_away = False
        """Whether the adapter did not answer, or refused, when it was last asked."""
        self._lock = threading.Lock()
        self._records: deque[Record] = deque(maxlen=KEPT)
        self._ledgers: dict[str, deque[BatchRecord]] = {}
        self._looked, self._changed_at = clock(), -math.inf
        self._began: float | None = None
        self._calibration: Calibration | None = None
        self._planned_at, self._planned_rate = 0.0, 0.0
        self._pending: Pending | None = None
        self._dwell = DWELL_S
        self._deferred = False
        """Whether a change that only saves waits until the last change is long enough ago."""
        self._fault = ""
        compiled()  # compile the simulation now: it may take seconds, which would hold the run up later

    def progressed(self, progress: dict[str, Any]) -> None:
        record = record_of(progress) if "batchId" in progress else None
        if record is not None:
            with self._lock:
                self._records.append(record)

    def committed(self, group: str, record: BatchRecord) -> None:
        with self._lock:
            self._ledgers.setdefault(group, deque(maxlen=KEPT)).append(record)
            self._began = self._began or self._clock()

    def wanted(self) -> Change | None:
        now = self._clock()
        if self._began is None or now - self._looked < LOOK_EVERY_S:
            return None
        self._looked = now
        if self._keep_gates():  # what did not arrive while the adapter was away says nothing of the rate of its clients
            self._planned_at = now
        try:
            decision = self._look(now)
        except PenstockError:  # too little has been observed yet
            return None
        except Exception as error:  # a defect of the planner is no reason to end the run
            self._note_fault(f"The planner failed ({type(error).__name__}: {error}); the run goes on as it is.", now)
            return None
        if decision is None or decision.kind not in ("apply", "revert"):
            return None
        self._gates = dict(decision.doors)
        self._keep_gates()
        return Change(decision.trigger_s, decision.why)

    def changed(self, change: Change, *, restarted: bool) -> None:
        self._trigger = change.trigger
        self._changed_at = self._clock()

    def _keep_gates(self) -> bool:
        """Give the doors the gates that were decided; if the adapter is away, the next call tries again.

        Returns whether it is back, or was started anew, since the last call.
        """
        if self._doors is None or self._dry_run:
            return False
        was_away = self._is_away
        try:
            differed = self._doors.keep(self._gates)
        except SourceError as error:
            self._is_away = True
            self._note_fault(str(error), self._clock())
            return False
        self._is_away = False
        return was_away or differed

    def _look(self, now: float) -> Decision | None:
        """Evaluate the run once; returns the decision that was recorded, or None where there was nothing to decide."""
        with self._lock:
            records = list(self._records)
            committed = {name: list(batches) for name, batches in self._ledgers.items()}
        observation = observe_running(self._directory, records, committed)
        ledgers = [committed.get(query.name, []) for query in observation.queries]
        if self._calibration is None:
            if now - (self._began or now) < LEARNING_S:
                return None
            self._calibration = calibrate(observation)
            rate = self._calibration.arrivals.rate
            learned = Cause("learned", {"rate": rate, "seconds": now - (self._began or now)}, rate)
            return self._decide(learned, now, ledgers, observation.queries[-1].cold[-1])
        series = observation.queries[0].cold[-1]
        cause = self._rate_has_changed(series) or self._speed_has_changed(observation)
        if cause is not None and self._pending is not None and self._chokes(cause, self._pending.decision):
            return self._leave_doors(cause, now, self._pending.decision)
        if cause is None and self._pending is not None:
            return self._judge(self._pending, now, ledgers, observation.queries[-1].cold[-1])
        if cause is None and self._deferred and now - self._changed_at >= self._dwell:
            cause = Cause("deferred", {}, self._planned_rate)
        if cause is None:
            return None
        self._calibration = _as_now(calibrate(observation), observation, series, cause)
        return self._decide(cause, now, ledgers, observation.queries[-1].cold[-1])

    def _note_fault(self, why: str, now: float) -> None:
        """Record a fault in the decisions, unless it has the text of the last fault."""
        if why != self._fault:
            self._fault = why
            self._note("keep", Cause("fault", {}, 0.0), now, self._trigger, why, {})

    def _chokes(self, cause: Cause, decision: Decision) -> bool:
        """Whether fewer events arrive since a decision changed a door's gate, as if clients wait for each answer to send on."""
        return (
            not self._is_away
            and cause.name == "rate"
            and cause.rate < CHOKED * self._planned_rate
            and decision.doors != decision.doors_before
        )

    def _leave_doors(self, cause: Cause, now: float, decision: Decision) -> Decision:
        """Revert the decision, and leave the doors' gates alone from now on."""
        self._leaves_doors = True
        self._pending, self._dwell = None, 2 * self._dwell
        self._planned_at, self._planned_rate = now, cause.rate
        why = (
            f"{cause.rate:,.0f} rows arrive per second since the gates of the doors were changed, and "
            f"{cause.evidence['planned_rate']:,.0f} did before: clients seem to wait for their answers, so the change is "
            "taken back and the doors are left alone."
        )
        return self._note("revert", cause, now, decision.before_s, why, decision.expected, gates=decision.doors_before)

    def _rate_has_changed(self, series: Series) -> Cause | None:
        widths, counts = _windows(series, self._planned_at)
        change = rate_change(widths, counts, self._planned_rate)
        return None if change is None else Cause("rate", _evidence(change), change.after)

    def _speed_has_changed(self, observation: Observation) -> Cause | None:
        assert self._calibration is not None
        for model, seen in zip(self._calibration.queries, observation.queries, strict=True):
            pace = pace_of(model, seen.cold[-1], self._planned_at)
            if pace is not None and pace.differs:
                evidence = {
                    "durations_times": pace.factor,
                    "error": pace.error,
                    "query": seen.name,
                    "batches": pace.batches,
                    "kind": "measured; beside those calibrated",
                }
                return Cause("speed", evidence, self._planned_rate)
        return None

    def _decide(self, cause: Cause, now: float, ledgers: Ledgers, last: Series) -> Decision | None:
        assert self._calibration is not None
        calibration, target = self._calibration, self._target
        present = Setting(rate=cause.rate, trigger=self._trigger)
        self._planned_at, self._planned_rate, self._deferred = now, cause.rate, False
        interval = self._interval(target, cause.rate)
        if interval is None:
            limit = calibration.throughput_limit(present)
            why = f"{cause.rate:,.0f} rows arrive per second and the query keeps up with {limit:,.0f} at any trigger."
            return self._note("keep", cause, now, self._trigger, why, {})
        fixed = max(1e-3, sum(query.durations.fixed for query in calibration.queries))
        open_now, gates, chosen = self._chosen_gates(interval, fixed)
        if chosen:  # the doors use up a part of the bound: the query has to meet the rest
            remaining_s = max(0.0, target.seconds - waited(chosen, target.name))
            interval = self._interval(replace(target, seconds=remaining_s), cause.rate) or 0.0
        queries = [predicted(calibration, replace(present, trigger=seconds), 12) for seconds in (self._trigger, interval)]
        today, then = (
            None if query is None else Point(query, doors, fixed)
            for query, doors in zip(queries, (open_now, chosen), strict=True)
        )
        pays, why = self._pays(today, then, now)
        expected = _expected(then, today)
        if not pays:
            return self._note("keep", cause, now, self._trigger, why, expected)
        if self._dry_run:
            return self._note("propose", cause, now, interval, why, expected, gates=gates)
        # From now on the effect of an earlier change cannot be told from that of this one: only this one is judged.
        decision = self._note("apply", cause, now, interval, why, expected, gates=gates)
        self._pending = Pending(decision, _measured(ledgers, now - 60, now, last))
        return decision

    def _interval(self, target: Target, rate: float) -> float | None:
        """The trigger interval for a target, with headroom where possible; None where the query keeps up at no interval."""
        assert self._calibration is not None
        for times in (HEADROOM, 1.0):
            interval = _interval(self._calibration, target, rate * times, self._trigger)
            if interval is not None:
                return interval
        return None

    def _chosen_gates(
        self, interval: float, fixed: float
    ) -> tuple[dict[str, DoorPassage], dict[str, TransferGate], dict[str, DoorPassage]]:
        """By stream: what each door does with its present gate, the gate it is to have, and what it will do with that."""
        now, gates, then = {}, dict(self._gates), {}
        if self._doors is not None and not self._leaves_doors:
            with suppress(SourceError):  # if the adapter is away, the doors stay as they are
                for stream, door in self._doors.measured().items():
                    self._gates.setdefault(stream, door.gate)  # to restore it, if need be
                    now[stream] = door.passed(door.gate)
                    gates[stream], then[stream] = door.best(self._target.name, interval, fixed)
        return now, gates, then

    def _pays(self, today: Point | None, then: Point | None, now: float) -> tuple[bool, str]:
        """Whether the new settings pay, and why. Changing the trigger and the gates costs nothing: the run is not paused."""
        name, bound = self._target.name, self._target.seconds
        if then is None:
            return False, "No setting keeps up with the rate."
        new = then.latency(name)
        if today is None:
            return True, f"As it is, the query does not keep up; {name} is expected to be {new:.2f} s."
        old = today.latency(name)
        if old > bound:
            if new < 0.95 * old:
                return True, f"{name} would be {old:.2f} s, beyond {bound:g}; it is expected to be {new:.2f} s."
            return (False, f"{name} is expected to be {old:.2f} s, beyond {bound:g}, and no trigger makes it shorter by 5%.")
        saved = 1 - then.batches_per_day / today.batches_per_day
        count = (today.batches_per_day - then.batches_per_day) / 86_400 * HORIZON_S
        if new > bound or saved < SAVING:
            return False, (
                f"{name} is expected to be {old:.2f} s, within {bound:g}, and another trigger would save {saved:.0%} of the "
                f"micro-batches, less than {SAVING:.0%}."
            )
        if now - self._changed_at < self._dwell:
            self._deferred = True
            return (False, f"Another trigger would save {saved:.0%} of the micro-batches, but the last change is too recent.")
        return True, (
            f"{saved:.0%} of the micro-batches are saved, {count:,.0f} in {HORIZON_S:g} s, and {name} is expected to be "
            f"{new:.2f} s, within {bound:g}."
        )

    def _judge(self, pending: Pending, now: float, ledgers: Ledgers, series: Series) -> Decision | None:
        """Judge a change by the latency since; revert it if that is worse and beyond the bound. None: not known yet."""
        settled = self._changed_at + max(pending.decision.before_s, pending.decision.trigger_s)
        seen = _measured(ledgers, settled, now, series)
        if now - settled < CHECK_S or seen.get("batches", 0) < CHECK_BATCHES or self._target.name not in seen:
            return None
        self._pending = None
        name = self._target.name
        came, old = seen[name], pending.before.get(name, self._target.seconds)
        decision = pending.decision
        if came > self._target.seconds and came > 1.1 * old:
            self._dwell *= 2
            why = (
                f"{name} came to {came:.2f} s and was {old:.2f} s before, and neither the rate nor the speed has changed: the "
                "change is taken back."
            )
            return self._note(
                "revert", CHECK, now, decision.before_s, why, decision.expected, came=seen, gates=decision.doors_before
            )
        expected = decision.expected.get(name)
        why = f"{name} came to {came:.2f} s" + (f", and {expected:.2f} s were expected." if expected is not None else ".")
        return self._note("check", CHECK, now, self._trigger, why, decision.expected, came=seen)

    def _note(
        self,
        kind: Any,
        cause: Cause,
        now: float,
        trigger: float,
        why: str,
        expected: dict[str, Any],
        came: dict[str, float] | None = None,
        gates: Mapping[str, TransferGate] | None = None,
    ) -> Decision:
        decision = Decision(
            time=now,
            kind=kind,
            cause=cause.name,
            trigger_s=trigger,
            before_s=self._trigger,
            why=why,
            doors=dict(self._gates if gates is None else gates),
            doors_before=self._gates,
            evidence=cause.evidence,
            expected=expected,
            came=came or {},
        )
        note(self._directory, decision)
        return decision


def _as_now(calibration: Calibration, observation: Observation, series: Series, cause: Cause) -> Calibration:
    """The calibration with the arrivals since the change, and with durations at the pace of the last micro-batches."""
    seconds = cause.evidence.get("seconds", HORIZON_S)
    arrivals = arrivals_of([_windows(series, float(series.admitted[-1]) - 1.01 * seconds)])
    queries = []
    for model, seen in zip(calibration.queries, observation.queries, strict=True):
        pace = pace_of(model, seen.cold[-1], 0.0)
        queries.append(pace.applied(model) if pace is not None and pace.differs else model)
    return replace(calibration, queries=tuple(queries), arrivals=arrivals or calibration.arrivals)


def _windows(series: Series, since: float) -> tuple[Real, Real]:
    """Windows between successive admissions that begin after a time: seconds, and the rows that arrived in them."""
    return series[series.admitted >= since].windows()


def _interval(calibration: Calibration, target: Target, rate: float, present: float) -> float | None:
    """The longest trigger interval that meets the target, else that of the least latency; None if the query never keeps up."""
    steps = sorted({step for step in STEPS if step <= target.seconds} | {present})
    predictions = [(step, predicted(calibration, Setting(rate=rate, trigger=step), replicates=0)) for step in steps]
    reached = {step: getattr(prediction, target.name) for step, prediction in predictions if prediction is not None}
    meeting = [step for step, latency in reached.items() if latency * MARGIN <= target.seconds]
    return max(meeting) if meeting else min(reached, key=reached.__getitem__, default=None)


def _evidence(found: RateChange) -> dict[str, Any]:
    return {
        "rate": found.after,
        "error": found.error,
        "planned_rate": found.before,
        "windows": found.windows,
        "seconds": found.seconds,
        "statistic": found.statistic,
        "kind": "measured; rows per second",
    }


def _expected(then: Point | None, today: Point | None) -> dict[str, Any]:
    if then is None:
        return {}
    query = then.query
    figures: dict[str, Any] = {name: then.latency(name) for name in LATENCIES}
    figures |= {
        "p95_band": [waited(then.doors, "p95") + end for end in query.band("p95")],
        "batches_per_day": query.batches_per_day,
        "utilisation": query.utilisation,
        "rate": query.rate,
        "pause_s": 0.0,
        "kind": "predicted; seconds",
    }
    if then.doors:
        figures |= {
            "doors": {
                stream: {"p95": door.latency["p95"], "transfers_per_s": door.transfers} for stream, door in then.doors.items()
            }
        }
    if today is not None:
        figures |= {"without": {"p95": today.latency("p95"), "batches_per_day": today.query.batches_per_day}}
    return {name: finite(value) for name, value in figures.items()}


def _measured(ledgers: Ledgers, since: float, until: float, series: Series | None = None) -> dict[str, float]:
    """Number, latency (seconds) and rate of source events of the micro-batches committed from ``since`` until ``until``.

    The latency is measured on results. Results of timers and windows have none; where there are too few others, it is the
    latency of source events until they were processed, derived from the progress in ``series``.
    """
    first, *_, last = (ledgers[0], *ledgers)
    within = [record for record in first if since <= record.committed_us / 1e6 < until]
    latency = Histogram()
    for record in last:
        if since <= record.committed_us / 1e6 < until:
            latency.merge(record.latency_ms)
    if len(within) < 2:
        return {"batches": float(len(within))}
    span = (within[-1].committed_us - within[0].committed_us) / 1e6
    taken = sum(source.accepted for record in within[1:] for source in record.sources.values())
    if latency.count >= LEAST_TIMED:
        figures = {name: (latency.quantile(p) or 0.0) / 1e3 for name, p in QUANTILES.items()}
        figures["mean"] = (latency.mean or 0.0) / 1e3
    else:
        shown = None if series is None else series[(since <= series.ended) & (series.ended < until)]
        if shown is None or len(shown) < 2:
            return {"batches": float(len(within))}
        figures = summary(derived(shown))
    return {"batches": float(len(within)), **figures, "results": float(latency.count), "rate": taken / span, "seconds": span}
