"""Verdicts on a recorded query: each names a limit by its kind, gives the evidence in a sentence, and says how sure it is."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from penstock.app.display import rounded
from penstock.planner.durations import DurationModel, durations_of
from penstock.planner.observation import LEAST_WARM, Observation, QueryObservation
from penstock.planner.reading import Task
from penstock.planner.series import Real, Series
from penstock.planner.trend import trend_of
from penstock.runs.record import Record

RISING = 0.2
"""A rate, a backlog or a state that changes by at least this share over a recording is not steady."""
PAUSE_RATIO, PAUSE_SHARE = 2.0, 0.05
"""Micro-batches that last longer than this multiple of the fit are pauses, if their excess is this share of the time."""
COLLECTED = 0.1
"""Share of the tasks' time spent on garbage collection above which more memory would help."""
SLOW_SINK, SLOW_SINK_S = 0.4, 0.5
"""A sink is slow if it takes more than this share of a micro-batch, and more than this many seconds."""
SKEWED_CORES = 0.1
"""Share of a core below which the work for one key does no harm."""
SKEW = 2.5
"""Multiple of the mean work of a partition above which the busiest one counts as skewed."""
REAL_TIME_S, REAL_TIME_SPREAD, REAL_TIME_ROWS = 4.9, 0.01, 1.2
"""Micro-batches in real-time mode last at least so long, and differ by no more than this share, though the largest have at
least this multiple of the rows of the smallest.
"""
WAITS, WAITS_S = 5.0, 3.0
"""A trigger is too long if it exceeds this multiple of a micro-batch's duration, and this many seconds."""
SWAMPED, SWAMPED_BY = 3, 0.1
"""If so many successive micro-batches are each larger and longer, by this share, than the one before, the query is swamped."""
VAST_ROWS, AT_CAPACITY = 1e9, 0.93
"""Rows of a micro-batch whose fixed part is negligible; the share of what a query keeps up with above which it has no time."""
SLOWING = 0.25
"""Micro-batches that last longer by this share of the median, for their rows, slow down."""
SHORT_S = 0.5
"""Micro-batches that follow each other at once and are shorter than this are mostly overhead."""
OVERHEAD_SHARE = 0.8
"""If the fixed part of a duration, which no row causes, is above this share of it, micro-batches are too small."""


@dataclass(frozen=True)
class Verdict:
    """What limits a query: ``confident`` is False where the recording allows another explanation."""

    kind: str
    text: str
    confident: bool = True

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" + ("" if self.confident else " (not sure)")


@dataclass(frozen=True)
class _Evidence:
    """What the rules judge by: the last start of a query that is long enough, and the durations fitted to it."""

    query: QueryObservation
    series: Series
    records: tuple[Record, ...]
    durations: DurationModel
    tasks: tuple[Task, ...]

    @property
    def ratios(self) -> Real:
        """Recorded durations divided by fitted durations."""
        fitted = np.array([self.durations.duration(rows) for rows in self.series.rows])
        return np.asarray(self.series.durations / np.maximum(fitted, 1e-9))


def verdicts(observation: Observation) -> list[Verdict]:
    """All verdicts on the queries, the gravest first; if nothing limits them, one that says so.

    Examples:
        >>> from penstock.planner import observe
        >>> [verdict.kind for verdict in verdicts(observe("examples/recordings/digests-1.jsonl"))]
        ['healthy']
    """
    all_verdicts = [verdict for query in observation.queries for verdict in _of(query, _own(query, observation.tasks))]
    grave = [verdict for verdict in all_verdicts if verdict.kind != "healthy"]
    return sorted(grave, key=lambda verdict: _ORDER.index(verdict.kind)) or all_verdicts[:1]


def _own(query: QueryObservation, tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """The tasks of a query's own jobs; all tasks where the log does not say whose they are."""
    if not any(task.query for task in tasks):
        return tasks
    identifiers = {record.query for record in query.records}
    return tuple(task for task in tasks if task.query in identifiers)


def _of(query: QueryObservation, tasks: tuple[Task, ...]) -> Iterable[Verdict]:
    """The verdicts on one query; a recording that cannot be judged by the rules yields one that says why."""
    if _is_idle(query):
        yield Verdict("idle", f"{query.name} has had rows in less than half of the time recorded; nothing limits it.")
        return
    if len(query.cold) >= SWAMPED and all(len(series) < LEAST_WARM for series in query.cold):
        between = float(np.median(np.diff([series.started[0] for series in query.cold])))
        yield Verdict(
            "unclear",
            f"{query.name} was started {len(query.cold)} times and took {sum(map(len, query.cold))} micro-batches in all, as "
            f"jobs do that take what is there and end (availableNow): its latency is the {between:,.0f} s between its starts, "
            "which no trigger changes, and no longer recording would tell more.",
            confident=False,
        )
        return
    if query.batches < LEAST_WARM:
        if (swamped := _swamped(query)) is not None:
            yield swamped
            return
        yield Verdict(
            "unclear",
            f"{query.name} has {query.batches} micro-batches after its warm-up; {LEAST_WARM} are needed to judge.",
            confident=False,
        )
        return
    enough = [start for start in query.series if len(start) >= LEAST_WARM]
    series = enough[-1] if enough else max(query.series, key=len)
    if _is_real_time(series):
        yield Verdict(
            "unclear",
            f"{query.name} has micro-batches of {np.median(series.durations):.1f} s, one after the other and all alike "
            "whatever their rows, as in real-time mode: there results come before a micro-batch is over, its duration is no "
            "latency, and no trigger changes it. Measure from the rows' own times.",
            confident=False,
        )
        return
    records = tuple(record for record in query.records if series.started[0] <= record.started <= series.started[-1])
    durations = durations_of([series], np.random.default_rng(0), draws=20)
    evidence = _Evidence(query, series, records, durations, tasks)
    none = True
    for rule in _RULES:
        verdict = rule(evidence)
        if verdict is not None:
            none = False
            yield verdict
            if verdict.kind in _CONCLUSIVE:
                return
    if none:
        yield Verdict(
            "healthy",
            f"{query.name} is busy {series.busy:.0%} of the time, its micro-batches last {np.median(series.durations):.2f} s "
            "in the median, and neither its rate nor its backlog grows.",
        )


def _is_real_time(series: Series) -> bool:
    """Whether micro-batches last as they are set to, not as long as their rows take."""
    usual = float(np.median(series.durations))
    alike = float(np.mean(np.abs(series.durations - usual) < REAL_TIME_SPREAD * usual)) > 0.9
    least, most = np.quantile(series.rows, [0.05, 0.95])
    differ = bool(most > REAL_TIME_ROWS * least)
    return series.hurried and usual >= REAL_TIME_S and alike and differ


def _is_idle(query: QueryObservation) -> bool:
    """Whether no rows came for over half of the time, judged by Spark's progress, which comes every ten seconds when idle."""
    last = query.records[-1].started
    quiet = last - max((record.started + record.duration for record in query.records if record.taken), default=-np.inf)
    empty = sum(not record.taken for record in query.records)
    return quiet > 0.5 * (last - query.records[0].started) or empty > 5 * len(query.records) / 6


def _swamped(query: QueryObservation) -> Verdict | None:
    """For short recordings: successive micro-batches each have more rows and last longer than the one before."""
    series = max(query.cold, key=len, default=None)
    if series is None or len(series) < SWAMPED:
        return None
    last = series[slice(-SWAMPED, None)]
    growing = all((np.diff(values) > SWAMPED_BY * values[:-1]).all() for values in (last.durations, last.rows + last.waiting))
    if not growing or last.busy < 0.9:
        return None
    return Verdict(
        "saturated",
        f"each of the last {SWAMPED} micro-batches of {query.name} found more rows than the one before and lasted longer, from "
        f"{last.durations[0]:.1f} to {last.durations[-1]:.1f} s, and one follows the other: the query does not keep up.",
        confident=False,
    )


def _throttled(seen: _Evidence) -> Verdict | None:
    """A maximum per trigger cuts micro-batches to one size while more rows wait."""
    series, name = seen.series, seen.query.name
    ceiling = series.ceiling
    if ceiling is None and series.hides:
        capped = int((series.rows == series.rows.max()).sum())
        return Verdict(
            "source throttled",
            f"{capped} of {len(series)} micro-batches of {name} take just {series.rows.max():,.0f} rows, which is a maximum "
            "per trigger, and the source does not say what waits behind it: how long rows wait then is not known.",
            confident=False,
        )
    if ceiling is None:
        return None
    known = np.isfinite(series.outstanding)
    if not known.any():
        return Verdict(
            "saturated",
            f"most micro-batches of {name} take {ceiling:,.0f} rows, and one follows the other: they are at a maximum per "
            "trigger (of rows or of files). The source does not say what waits behind it, so the query may not keep up.",
            confident=False,
        )
    waits = f"{series.outstanding[known][-1]:,.0f} {'rows' if series.waiting.any() else 'files or bytes'}"
    trend = trend_of(series.admitted[known], series.outstanding[known])
    if series.busy > 0.9:
        if trend.grows(RISING):
            return Verdict(
                "saturated",
                f"micro-batches of {name} take {ceiling:,.0f} rows each, one follows the other, and {waits} wait, more than "
                "before: the query does not keep up.",
            )
        if trend.change < -RISING and trend.p < 0.001:
            return Verdict(
                "working off",
                f"micro-batches of {name} take {ceiling:,.0f} rows each and one follows the other, while what waits becomes "
                f"less ({waits} at the end): a backlog is being worked off, and latency is not as it will be.",
            )
        return None
    return Verdict(
        "source throttled",
        f"micro-batches of {name} take no more than {ceiling:,.0f} rows (a maximum of rows per trigger) while {waits} "
        f"more wait, and the query is busy only {series.busy:.0%} of the time: raise the maximum or trigger more often.",
    )


def _saturated(seen: _Evidence) -> Verdict | None:
    """Micro-batches follow each other at once, and ever more rows are there at their starts."""
    series = seen.series
    if series.busy < 0.9:
        return None
    rows = trend_of(series.admitted, series.rows + series.waiting)
    rising = _rate_trend(series)
    lasting = trend_of(series.admitted, series.durations)
    if rows.grows(RISING) and lasting.grows(RISING / 2) and rows.change > rising + RISING:
        return Verdict(
            "saturated",
            f"{seen.query.name} is busy {series.busy:.0%} of the time, and what its micro-batches find waiting grew by "
            f"{rows.change:.0%} of its median during the recording: the query does not keep up, and latency grows.",
        )
    return None


def _at_capacity(seen: _Evidence) -> Verdict | None:
    """Micro-batches follow each other, and hardly more rows could be taken than come."""
    series, model = seen.series, seen.durations
    if series.busy < 0.95 or not model.identified:
        return None
    rate = float(series.rows.sum()) / max(series.span, 1e-9)
    limit = VAST_ROWS / model.sustained(VAST_ROWS)
    if rate < AT_CAPACITY * limit:
        return None
    return Verdict(
        "at capacity",
        f"{rounded(rate)} rows arrive per second at {seen.query.name}, which keeps up with some {rounded(limit)}: it has no "
        "time left, and with a little more its latency grows without end.",
        confident=False,
    )


def _slowing(seen: _Evidence) -> Verdict | None:
    """Micro-batches last ever longer for their rows."""
    trend = trend_of(seen.series.admitted, seen.ratios)
    if not trend.grows(SLOWING) or _growing_state(seen) is not None:  # which says it, too
        return None
    return Verdict(
        "slowing",
        f"micro-batches of {seen.query.name} last {trend.change:.0%} longer for their rows at the end than at the beginning: "
        "state, a cache or files that grow; what holds today will not hold for long.",
    )


def _rising(seen: _Evidence) -> Verdict | None:
    """The rate of arrivals grows during the recording."""
    change = _rate_trend(seen.series)
    if change > RISING:
        return Verdict(
            "rate rising",
            f"the rate at {seen.query.name} grew by {change:.0%} of its median during the recording; what holds today will not "
            "hold for long.",
        )
    return None


def _rate_trend(series: Series) -> float:
    """Growth of the rate over the series, as a share of its median; 0 where that may be chance."""
    widths, counts = series.windows()
    if len(widths) < LEAST_WARM:
        return 0.0
    groups = np.array_split(np.arange(len(widths)), min(24, len(widths)))
    groups = [group for group in groups if len(group)]
    rates = [float(counts[group].sum() / widths[group].sum()) for group in groups]
    trend = trend_of(range(len(rates)), rates)
    return trend.change if trend.grows(RISING) else 0.0


def _growing_state(seen: _Evidence) -> Verdict | None:
    """The state grows, and in the last third of the recording at least half as fast as in the middle one."""
    counted = [(record.started, record.state_rows) for record in seen.records if record.ran]
    unit = "rows"
    if any(alive for _, alive in seen.query.instances):  # a row of Spark's state holds a page of instances
        counted, unit = list(seen.query.instances), "instances"
    if not counted:
        return None
    times, state = (np.array(values, dtype=float) for values in zip(*counted, strict=True))
    if len(state) < 12 or state[-1] < 1000 or state[-1] < 1.3 * max(state[len(state) // 4], 1.0):
        return None
    third = len(state) // 3
    early, late = state[2 * third] - state[third], state[-1] - state[2 * third]
    if late < 0.5 * early or not trend_of(times, state).grows(RISING):
        return None
    slower = trend_of(seen.series.admitted, seen.ratios)
    cost = f", and micro-batches take {slower.change:.0%} longer for their rows" if slower.grows(0.05) else ""
    return Verdict(
        "state growing",
        f"the state of {seen.query.name} grew from {state[0]:,.0f} to {state[-1]:,.0f} {unit} and goes on growing{cost}: give "
        "it a watermark or an expiry.",
    )


def _pauses(seen: _Evidence) -> Verdict | None:
    """Garbage collection takes much of the time, as measured, or as long pauses of few micro-batches suggest."""
    share = _collected(seen)
    if share is not None:
        return (
            Verdict("garbage collection", f"{share:.0%} of the tasks' time is garbage collection: give executors more memory.")
            if share > COLLECTED
            else None
        )
    ratios = seen.ratios
    long = ratios > PAUSE_RATIO
    typical = seen.series.durations / ratios
    share = float(((seen.series.durations - typical)[long]).sum() / seen.series.durations.sum())
    if long.sum() >= 2 and 0.01 <= long.mean() <= 0.25 and share > PAUSE_SHARE:
        return Verdict(
            "garbage collection",
            f"{int(long.sum())} of {len(ratios)} micro-batches of {seen.query.name} last over {PAUSE_RATIO:g} times what "
            f"others of their size do, and cost {share:.0%} of its time: pauses, of which garbage collection is the usual "
            "cause; an event log with tasks would tell.",
            confident=False,
        )
    return None


def _collected(seen: _Evidence) -> float | None:
    """Share of the tasks' time that was spent on garbage collection; None where that was not recorded."""
    totals = [record.collected for record in seen.records if record.collected is not None]
    if len(totals) > 1 and totals[-1][0] > totals[0][0]:
        return (totals[-1][1] - totals[0][1]) / (totals[-1][0] - totals[0][0])
    run = sum(task.run for task in seen.tasks)
    return sum(task.collecting for task in seen.tasks) / run if run else None


def _skewed(seen: _Evidence) -> Verdict | None:
    """One key, one task or one partition of the source has most of the work."""
    query = seen.query
    # A run of Penstock counts its hottest keys; an event log has the tasks of each stage; else there are the offsets.
    parallel = min(query.setting.partitions or 1, query.setting.cores or math.inf)
    rate = float(seen.series.rows.sum()) / max(seen.series.span, 1e-9)
    for element, (key, share) in query.hottest.items():
        cores = query.service_us.get(element, 0.0) / 1e6 * query.events.get(element, 0.0) * rate
        if parallel > 1 and share * parallel > min(SKEW, 0.8 * parallel) and share * cores > SKEWED_CORES:
            return Verdict(
                "skewed",
                f"key {key} has {share:.0%} of the events of {element}, which go to one partition, so that it takes at least "
                f"{share * parallel:.1f} times what each of {parallel:.0f} would that share the work evenly.",
            )
    by_stage: dict[int, list[float]] = {}
    for stage, run, *_ in seen.tasks:
        by_stage.setdefault(stage, []).append(run)
    wide = [np.array(times) for times in by_stage.values() if len(times) > 2 and max(times) > 0.2]
    lopsided = [times for times in wide if times.max() > SKEW * np.median(times)]
    if len(wide) >= 5 and len(lopsided) > 0.5 * len(wide):
        ratio = float(np.median([times.max() / max(np.median(times), 1e-3) for times in lopsided]))
        return Verdict(
            "skewed", f"in most stages the longest task takes {ratio:.1f} times the median one: a few keys have most rows."
        )
    taken: dict[str, int] = {}
    for record in seen.records:
        for source in record.sources:
            if source.start is not None and source.end is not None:
                for partition, end in source.end.items():
                    taken[partition] = taken.get(partition, 0) + max(0, end - source.start.get(partition, end))
    total = sum(taken.values())
    if len(taken) > 1 and total > 1000:
        most = max(taken, key=lambda partition: taken[partition])
        ratio = taken[most] / (total / len(taken))
        if ratio > min(SKEW, 0.8 * len(taken)):
            return Verdict(
                "skewed",
                f"partition {most} has {taken[most] / total:.0%} of the rows of {len(taken)} partitions: one task does most "
                "of the work of a micro-batch; spread the keys.",
            )
    return None


def _slow_sink(seen: _Evidence) -> Verdict | None:
    """A sink takes much of each micro-batch: measured, or inferred from an ``addBatch`` that takes long whatever the rows."""
    took: dict[str, float] = {}
    measured = [record for record in seen.records if record.ran and record.taken]
    for record in measured:
        for sink, lasted in record.delivered.items():
            took[sink] = took.get(sink, 0.0) + lasted
    if took:
        slowest = max(took, key=lambda sink: took[sink])
        lasting, whole = (total / len(measured) for total in (took[slowest], sum(record.duration for record in measured)))
        if lasting > max(SLOW_SINK_S, SLOW_SINK * whole):
            return Verdict(
                "slow sink",
                f"sink {slowest} takes {lasting:.2f} s for a micro-batch, of the {whole:.2f} s that one of {seen.query.name} "
                "lasts (means).",
            )
        return None
    phases: dict[str, list[float]] = {}
    for record in seen.records:
        if record.ran and record.taken:
            for name, value in record.phases.items():
                phases.setdefault(name, []).append(value)
    typical = {name: float(np.median(values)) for name, values in phases.items()}
    adding = typical.get("addBatch", 0.0)
    own = sum(value for name, value in typical.items() if name not in ("addBatch", "triggerExecution"))
    fixed = seen.durations.fixed if seen.durations.identified else None
    least = float(np.quantile(phases.get("addBatch", [0.0]), 0.05))
    if adding > 1.5 and adding > 5 * own and least > 0.6 * adding and (fixed is None or fixed > 0.6 * adding):
        spends = f"each micro-batch of {seen.query.name} spends {adding:.1f} s in addBatch and {own:.1f} s in all else"
        if fixed is None:
            unknown = "all have about as many rows, so that a sink which takes long to commit is not told from what rows cost."
            return Verdict("slow sink", f"{spends}; {unknown}", confident=False)
        because = "nearly the same whatever its rows: a sink that takes long to commit, or another cost per batch there."
        return Verdict("slow sink", f"{spends}, {because}")
    return None


def _overrun(seen: _Evidence) -> Verdict | None:
    """Micro-batches last longer than the trigger interval, or follow each other and are mostly overhead."""
    trigger, series = seen.query.setting.interval, seen.series
    if trigger:
        over = float((series.durations > trigger).mean())
        if over > 0.5:
            return Verdict(
                "trigger too short",
                f"{over:.0%} of the micro-batches of {seen.query.name} last longer than its trigger of {trigger:g} s, so that "
                "they follow each other at once and the trigger decides nothing.",
            )
        return None
    model = seen.durations
    share = model.fixed / max(float(np.mean(series.durations)), 1e-9)
    short = float(np.median(series.durations)) < SHORT_S  # rows and durations of so short ones depend on each other: no fit
    known = model.identified and not short
    if series.busy < 0.95 or (known and share < OVERHEAD_SHARE):
        return None
    cost = f"{share:.0%} of its time is" if known else "much of its time may be"
    return Verdict(
        "trigger too short",
        f"{seen.query.name} starts a micro-batch as soon as one is over, and {cost} what a micro-batch costs whatever its "
        "rows: a trigger longer than that would save it.",
        confident=known,
    )


def _waits(seen: _Evidence) -> Verdict | None:
    """Rows wait for the trigger, or for the gate, far longer than a micro-batch lasts."""
    setting, typical = seen.query.setting, float(np.median(seen.series.durations))
    trigger, long = setting.interval, max(WAITS * typical, WAITS_S)
    if trigger > long:
        return Verdict(
            "trigger too long",
            f"rows wait {trigger / 2:.1f} s in the mean for the trigger of {trigger:g} s, while a micro-batch of "
            f"{seen.query.name} lasts {typical:.2f} s: most of the latency is waiting for the trigger.",
        )
    between = min(float(np.median(np.diff(seen.series.started))), setting.delay)
    if (setting.min_rows or 1) > 1 and between > long:
        return Verdict(
            "waiting at the gate",
            f"rows wait {between / 2:.1f} s in the mean for the gate, which opens for {setting.min_rows:,.0f} rows or after "
            f"{setting.delay:g} s, while a micro-batch of {seen.query.name} lasts {typical:.2f} s: most of the latency is "
            "waiting at the gate.",
        )
    return None


_RULES: tuple[Callable[[_Evidence], Verdict | None], ...] = (
    _skewed,
    _throttled,
    _saturated,
    _at_capacity,
    _rising,
    _growing_state,
    _slowing,
    _pauses,
    _slow_sink,
    _overrun,
    _waits,
)
_CONCLUSIVE = ("saturated", "source throttled", "working off")
_ORDER = (
    "skewed",
    "saturated",
    "working off",
    "source throttled",
    "at capacity",
    "rate rising",
    "state growing",
    "slowing",
    "slow sink",
    "garbage collection",
    "trigger too short",
    "waiting at the gate",
    "trigger too long",
    "idle",
    "unclear",
    "healthy",
)
