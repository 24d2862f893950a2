"""Adapting: a run that is on is observed, planned anew when its rate or its speed changes, and checked afterwards.

`Adapting` keeps what the run tells it and looks at it now and then. A look is a pure function of that: learn, then wait for a
change, decide whether another plan pays, apply it, and check what came of it.
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
from penstock.planner.arrivals import arrivals_of
from penstock.planner.calibration import Calibration, calibrate
from penstock.planner.change import RateChange, rate_change
from penstock.planner.door import Passage
from penstock.planner.doors import Doors
from penstock.planner.gate import compiled
from penstock.planner.observation import LEAST_TIMED, Observation, derived, observe_running
from penstock.planner.pace import pace_of
from penstock.planner.prediction import DAY_S, LATENCIES, QUANTILES, Prediction, summary
from penstock.planner.series import Real, Series
from penstock.planner.setting import Setting
from penstock.planner.tuning import STEPS, Target
from penstock.runs.batches import BatchRecord
from penstock.runs.decisions import Decision, note
from penstock.runs.gate import Gate
from penstock.runs.record import Record, record_of
from penstock.runtime.histogram import Histogram

LOOK_EVERY_S = 5.0
LEARNING_S = 45.0
"""How long a run is observed before the first plan."""
HEADROOM = 1.25
"""A plan is made to meet its target at so many times the present rate, lest each small rise calls for another."""
MARGIN = 1.05
"""And to stay below it by so much, for what the model gets wrong."""
SAVING = 0.2
"""Fewer micro-batches by a smaller share are not worth another plan."""
HORIZON_S = 300.0
"""How long a rate is taken to last."""
DWELL_S = 60.0
"""Least time between two changes that only save; doubled after each that had to be taken back."""
CHECK_S, CHECK_BATCHES = 30.0, 6
"""What came of a change is judged after both."""
CHOKED = 0.8
"""A rate that falls below so much of what it was, before a change of a door's gate is judged, takes the change back."""
KEPT = 1000
"""Micro-batches that are remembered, of each group."""


Ledgers = Sequence[Sequence[BatchRecord]]
"""The committed micro-batches of each group, in the order in which they read from each other."""


@dataclass(frozen=True)
class Cause:
    """Why a plan is looked at anew."""

    name: str
    evidence: dict[str, Any]
    rate: float


CHECK = Cause("check", {}, 0.0)


@dataclass(frozen=True)
class Point:
    """What a trigger and the gates of the adapter's doors are expected to do together.

    Parameters
    ----------
    query: from the store to the result. doors: from the request to the store, by stream.
    fixed: seconds of a micro-batch, whatever its rows, in which the work of transfers is counted.
    """

    query: Prediction
    doors: Mapping[str, Passage]
    fixed: float

    def latency(self, name: str) -> float:
        """From the request to the result, about: to the quantile of the query is added that of the door; to the median its
        mean, for the medians of two waits add up to less than the median of both.
        """
        return float(getattr(self.query, name)) + waited(self.doors, name)

    @property
    def batches_per_day(self) -> float:
        """Micro-batches, and transfers in terms of them: those that take as long."""
        return self.query.batches_per_day + sum(door.busy for door in self.doors.values()) * DAY_S / self.fixed


def waited(doors: Mapping[str, Passage], name: str) -> float:
    """What the slowest door adds to a figure of the latency, seconds."""
    return max((door.latency["mean" if name == "p50" else name] for door in doors.values()), default=0.0)


@dataclass(frozen=True)
class Pending:
    """A change that has been applied and not been judged."""

    decision: Decision
    before: dict[str, float]


class Adapting:
    """Steers a run towards a bound on its latency; see `penstock.engine.running.steering.Steering`.

    Parameters
    ----------
    directory: of the run. target: the bound.
    trigger: seconds between micro-batches with which the run starts.
    dry_run: decide and write it down, and touch nothing.
    doors: of the adapter that feeds the run, whose gates are chosen with the trigger.
    gates: that these are to have from the start, by stream; what they have unless given.
    clock: seconds since the epoch.
    """

    def __init__(
        self,
        directory: Path,
        target: Target,
        trigger: float,
        *,
        dry_run: bool = False,
        doors: Doors | None = None,
        gates: Mapping[str, Gate] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory, self._target, self._dry_run = directory, target, dry_run
        self._clock = clock
        self._trigger = trigger
        self._doors, self._gates = doors, dict(gates or {})
        self._leaves_doors = False
        """Whether their clients were seen to wait for their answers."""
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
        """Whether a change that saves waits for the last one to be long enough ago."""
        self._fault = ""
        compiled()  # now, for it takes seconds on a machine that has not done it yet, and would hold the run up later

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
        self._keep_gates()
        try:
            decision = self._look(now)
        except PenstockError:  # too little to go on yet
            return None
        except Exception as error:  # a fault of the planner's is no reason to end the run
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

    def _keep_gates(self) -> None:
        """The doors have the gates that were decided, or will when the adapter is there again."""
        if self._doors is None or self._dry_run:
            return
        try:
            self._doors.keep(self._gates)
        except SourceError as error:
            self._note_fault(str(error), self._clock())

    def _look(self, now: float) -> Decision | None:
        with self._lock:
            records = list(self._records)
            committed = {name: list(kept) for name, kept in self._ledgers.items()}
        observation = observe_running(self._directory, records, committed)
        ledgers = [committed.get(query.name, []) for query in observation.queries]
        if self._calibration is None:
            if now - (self._began or now) < LEARNING_S:
                return None
            self._calibration = calibrate(observation)
            rate = self._calibration.arrivals.rate
            return self._decide(Cause("learned", {"rate": rate, "seconds": now - (self._began or now)}, rate), now, ledgers)
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
        return self._decide(cause, now, ledgers)

    def _note_fault(self, why: str, now: float) -> None:
        """Write down what went wrong, once."""
        if why != self._fault:
            self._fault = why
            self._note("keep", Cause("fault", {}, 0.0), now, self._trigger, why, {})

    def _chokes(self, cause: Cause, decision: Decision) -> bool:
        """Whether fewer events come since a door's gate was changed, as from clients that wait for an answer before they send
        on.
        """
        return cause.name == "rate" and cause.rate < CHOKED * self._planned_rate and decision.doors != decision.doors_before

    def _leave_doors(self, cause: Cause, now: float, decision: Decision) -> Decision:
        """Take a change back, and leave the doors alone from now on."""
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
        found = rate_change(widths, counts, self._planned_rate)
        return None if found is None else Cause("rate", _evidence(found), found.after)

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

    def _decide(self, cause: Cause, now: float, ledgers: Ledgers) -> Decision | None:
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
        if chosen:
            left = max(0.0, target.seconds - waited(chosen, target.name))
            interval = self._interval(replace(target, seconds=left), cause.rate) or 0.0
        queries = [_predicted(calibration, replace(present, trigger=one)) for one in (self._trigger, interval)]
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
        # Whatever is to come of an earlier change has another cause from now on.
        decision = self._note("apply", cause, now, interval, why, expected, gates=gates)
        self._pending = Pending(decision, _measured(ledgers, now - 60, now))
        return decision

    def _interval(self, target: Target, rate: float) -> float | None:
        """The trigger interval for a target, with headroom where that can be had; None where none keeps up."""
        assert self._calibration is not None
        for times in (HEADROOM, 1.0):
            found = _interval(self._calibration, target, rate * times, self._trigger)
            if found is not None:
                return found
        return None

    def _chosen_gates(self, interval: float, fixed: float) -> tuple[dict[str, Passage], dict[str, Gate], dict[str, Passage]]:
        """What the doors do with the gates that they have, the gates that they are to have, and what these will do."""
        now, gates, then = {}, dict(self._gates), {}
        if self._doors is not None and not self._leaves_doors:
            with suppress(SourceError):  # an adapter that is away is let be
                for stream, door in self._doors.measured().items():
                    self._gates.setdefault(stream, door.gate)  # what it is given back, if need be
                    now[stream] = door.passed(door.gate)
                    gates[stream], then[stream] = door.best(self._target.name, interval, fixed)
        return now, gates, then

    def _pays(self, today: Point | None, then: Point | None, now: float) -> tuple[bool, str]:
        """Whether other settings pay, and why: a change of the trigger and of the doors alone costs no pause."""
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
        """What came of a change, once enough is known; it is taken back if it made things worse."""
        settled = self._changed_at + max(pending.decision.before_s, pending.decision.trigger_s)
        seen = _measured(ledgers, settled, now, series)
        if now - settled < CHECK_S or seen.get("batches", 0) < CHECK_BATCHES or self._target.name not in seen:
            return None
        self._pending = None
        name = self._target.name
        came, old = seen[name], pending.before.get(name, math.inf)
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
        said = decision.expected.get(name)
        why = f"{name} came to {came:.2f} s" + (f", and {said:.2f} s were expected." if said is not None else ".")
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
        gates: Mapping[str, Gate] | None = None,
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
    """A calibration with the arrivals since a change, and at the pace of the last micro-batches."""
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
    """The longest trigger interval that meets the target, or the one that comes nearest; None where none keeps up."""
    steps = sorted({one for one in STEPS if one <= target.seconds} | {present})
    found = [(one, _predicted(calibration, Setting(rate=rate, trigger=one), replicates=0)) for one in steps]
    reached = {one: getattr(prediction, target.name) for one, prediction in found if prediction is not None}
    meeting = [one for one, latency in reached.items() if latency * MARGIN <= target.seconds]
    return max(meeting) if meeting else min(reached, key=reached.__getitem__, default=None)


def _predicted(calibration: Calibration, setting: Setting, replicates: int = 12) -> Prediction | None:
    try:
        return calibration.predict(setting, replicates=replicates)
    except PenstockError:
        return None


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
    found: dict[str, Any] = {name: then.latency(name) for name in LATENCIES}
    found |= {
        "p95_band": [waited(then.doors, "p95") + end for end in query.band("p95")],
        "batches_per_day": query.batches_per_day,
        "utilisation": query.utilisation,
        "rate": query.rate,
        "pause_s": 0.0,
        "kind": "predicted; seconds",
    }
    if then.doors:
        found |= {
            "doors": {
                stream: {"p95": door.latency["p95"], "transfers_per_s": door.transfers} for stream, door in then.doors.items()
            }
        }
    if today is not None:
        found |= {"without": {"p95": today.latency("p95"), "batches_per_day": today.query.batches_per_day}}
    return {name: _finite(value) for name, value in found.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _measured(ledgers: Ledgers, since: float, until: float, series: Series | None = None) -> dict[str, float]:
    """Over the micro-batches that a span has committed: how many, the latency, and the rate of source events.

    The latency is that of results; where timers or windows cause nearly all of them, which have none, it is that of source
    events until they were processed, as the progress in ``series`` tells it.
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
        told = None if series is None else series[(since <= series.ended) & (series.ended < until)]
        if told is None or len(told) < 2:
            return {"batches": float(len(within))}
        figures = summary(derived(told))
    return {"batches": float(len(within)), **figures, "results": float(latency.count), "rate": taken / span, "seconds": span}
