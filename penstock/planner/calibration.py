"""A model of a query, or of the queries of a run, fitted to what was observed; it predicts settings not yet tried."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ConfigurationError, NotSolvableError, UnstableServerError
from penstock.planner.arrivals import ArrivalModel, arrivals_of
from penstock.planner.durations import DurationModel, durations_of
from penstock.planner.gate import Gate, Passage, pass_gate
from penstock.planner.observation import LEAST_WARM, Observation, QueryObservation
from penstock.planner.prediction import DAY_S, LATENCIES, LIMIT, QUANTILES, Method, Prediction, summary
from penstock.planner.series import Series
from penstock.planner.setting import Setting
from penstock.planner.speed import Speed, follow
from penstock.queueing.distribution import Deterministic, LogNormal
from penstock.queueing.microbatch import MicroBatchServer

Real = NDArray[np.float64]

REPLICATES, RUNS, FEW_RUNS = 60, 8, 3
"""Runs from which bands are made, and those that are pooled for a point, so that it rests on no single one; of a point without
bands, of which a search makes many, fewer."""
BATCHES, MOST_BATCHES, SHORTEST_S = 600, 20_000, 120.0
"""Micro-batches that are simulated for a point; those of a run at most, however long the recording; seconds of it at least."""
STEPS = 100
"""Parts of the time that a micro-batch takes, within which it does not matter when a row comes."""
LONGEST_S, SHORTEST_CYCLE_S = 86_400.0, 0.02
"""A micro-batch is taken to be no longer, and to follow another no sooner."""
MODEL_ERROR = 0.015
"""Relative standard deviation of what the model itself gets wrong (docs/background/predictions.md has its record)."""
CLOSE_TO_LIMIT = 0.9
FAR = 3.0
"""So many times the rows of the largest micro-batches recorded are far beyond them."""
VAST_ROWS = 1e12
"""Rows of a micro-batch to which its fixed part is nothing."""


@dataclass(frozen=True)
class QueryModel:
    """One query: what was observed of it, and how long its micro-batches last.

    Parameters
    ----------
    durations: of all recordings.
    apart: of those with a trigger interval (False) and of those back to back (True), where the query runs beside others,
        for back to back they hold each other up all the time.
    speed: of a run that is followed; the durations have it already.
    """

    observed: QueryObservation
    durations: DurationModel
    apart: Mapping[bool, DurationModel] = field(default_factory=dict)
    speed: Speed | None = None

    def under(self, gate: Gate) -> DurationModel:
        """The durations when micro-batches follow each other at once, or when they wait for the gate."""
        return self.apart.get(gate.trigger == 0 and gate.min_rows <= 1, self.durations)

    def changed(self, change: Callable[[DurationModel], DurationModel]) -> "QueryModel":
        """The model with all its durations changed."""
        apart = {hurried: change(durations) for hurried, durations in self.apart.items()}
        return replace(self, durations=change(self.durations), apart=apart)


@dataclass(frozen=True)
class Calibration:
    """The models of all queries, those that others read from first, and of the arrivals at the first."""

    observation: Observation
    queries: tuple[QueryModel, ...]
    arrivals: ArrivalModel

    @property
    def is_identified(self) -> bool:
        """Whether the recordings tell what a row costs from what a micro-batch does."""
        return all(query.durations.identified for query in self.queries)

    @property
    def today(self) -> Setting:
        """The setting of the last recording."""
        first = self.queries[0].observed.setting
        return replace(first, trigger=first.trigger or 0.0, rate=self.arrivals.rate)

    def complete(self, setting: Setting | None) -> Setting:
        """A setting with what it leaves out as recorded, and its rate as a number."""
        whole = (setting or Setting()).over(self.today)
        rate = whole.rate_from(self.arrivals.rate)
        if whole.min_rows is not None and whole.min_rows > (whole.max_rows or math.inf):
            raise ConfigurationError(
                f"min_rows={whole.min_rows:g} is above max_rows={whole.max_rows:g}, one of which is as recorded: set both."
            )
        return replace(whole, rate=rate)

    def faster(self, parallel: float) -> "Calibration":
        """The calibration at so many times the parallel speed: what is spent per row shrinks (assumed)."""
        return replace(self, queries=tuple(one.changed(lambda durations: durations.scaled(parallel)) for one in self.queries))

    def following(self, running: Observation, *, now: float | None = None) -> "Calibration":
        """The calibration at the present speed of a run that goes on, by a Kalman filter over its micro-batches.

        Parameters
        ----------
        running: what has been observed of it, which may be what was calibrated on; its last start counts.
        now: seconds since the epoch; the later after the last micro-batch, the less is known. Left out: at its end.

        Raises
        ------
        ConfigurationError: it shows no micro-batch after the first of any query that was calibrated.
        """
        seen = {query.name: query for query in running.queries}
        if len(self.queries) == len(running.queries) == 1:  # a query without a name has another one in each recording
            seen = {self.queries[0].observed.name: running.queries[0]}
        queries = tuple(_followed(one, seen.get(one.observed.name), now) for one in self.queries)
        if all(query.speed is None for query in queries):
            raise ConfigurationError(
                f"The run to follow has {', '.join(query.name for query in running.queries)}, and shows no speed of "
                f"{', '.join(query.observed.name for query in self.queries)}: give a recording of the same query, with two "
                "micro-batches at least."
            )
        return replace(self, queries=queries)

    def throughput_limit(self, setting: Setting | None = None) -> float:
        """Rows per second beyond which the backlog grows without bound."""
        whole = self.complete(setting)
        gate = gate_of(whole)
        return min(self._limit(query, self.scaled(query, whole), gate) for query in self.queries)

    def predict(
        self,
        setting: Setting | None = None,
        *,
        method: Method = "simulated",
        seed: int = 0,
        replicates: int = REPLICATES,
        batches: int = BATCHES,
    ) -> Prediction:
        """What a setting is expected to do.

        Parameters
        ----------
        method: ``"simulated"``, batch by batch, with durations and arrivals like those recorded; or ``"solved"``, by
            `MicroBatchServer`, which takes arrivals for Poisson and durations for independent and linear in the rows.
        replicates: runs from which bands are made. batches: simulated; fewer are sooner there, and less sure of the p99.

        Raises
        ------
        UnstableServerError: the rate is beyond the throughput limit; says both.
        NotSolvableError: the model does not hold, for ``"solved"``.
        """
        whole = self.complete(setting)
        rate, limit = float(whole.rate or 0.0), self.throughput_limit(whole)
        if rate >= limit:
            raise UnstableServerError(
                f"{rate:,.0f} rows arrive per second and the query keeps up with {limit:,.0f} (predicted): latency would "
                "grow without bound. Give it a lower rate, a larger max_rows if that is set, or more cores."
            )
        random = np.random.default_rng(seed)
        cycle = self.cycle(whole)
        count = RUNS if replicates else FEW_RUNS
        span = self._span(cycle, max(batches / count, 50))
        usual = [self.scaled(query, whole) for query in self.queries]
        runs = [self._simulated(whole, usual, span, cycle, random) for _ in range(count)]
        samples = self._replicates(whole, random, replicates)
        pooled = summary(np.concatenate([run.latencies for run in runs]))
        found = pooled if method == "simulated" else self._solved(whole, rate)
        shown = [run.passages for run in runs if all(len(one.started) > 1 for one in run.passages)]
        if not shown:
            raise ConfigurationError(f"At {rate:g} rows per second no two micro-batches begin in {span:,.0f} s.")
        time = sum(float(first.started[-1] - first.started[0]) for first, *_ in shown)
        a_day = [sum(len(one.started) - 1 for one in passages) / time * DAY_S for passages in zip(*shown, strict=True)]
        busy = [sum(float((one.ended - one.started)[:-1].sum()) for one in passages) for passages in zip(*shown, strict=True)]
        return Prediction(
            setting=whole,
            rate=rate,
            **found,
            backlog=rate * found["mean"],
            utilisation=max(busy) / time,
            throughput_limit=limit,
            rows_per_batch=rate * DAY_S / a_day[0],
            batches_per_day=a_day[0],
            files_per_day=sum(a_day) * (whole.partitions or 1.0),
            method=method,
            replicates=samples,
            assumptions=(*self._assumptions(whole, limit), *self._far(rate * DAY_S / a_day[0])),
        )

    def _replicates(self, whole: Setting, random: np.random.Generator, count: int) -> dict[str, Real]:
        """Latencies of runs as long as the recording, each of a model that the recording might have led to."""
        rate = float(whole.rate or 0.0)
        window = self._span(self.cycle(whole), 1.0)
        values: dict[str, list[float]] = {name: [] for name in (*LATENCIES, LIMIT)}
        for _ in range(count):
            gate = gate_of(whole)
            drawn = [self.scaled(query, whole, query.under(gate).drawn(random)) for query in self.queries]
            limit = min(self._limit(query, one, gate) for query, one in zip(self.queries, drawn, strict=True))
            values[LIMIT].append(limit)
            if rate >= limit:  # what the band must say, too: it may not keep up at all
                for name in LATENCIES:
                    values[name].append(math.inf)
                continue
            uncertain = replace(whole, rate=max(1e-9, rate * (1 + random.normal(0.0, self._rate_error(whole)))))
            cycle = self.cycle(whole, drawn)
            run = summary(self._simulated(uncertain, drawn, window, cycle, random).latencies)
            error = math.exp(random.normal(0.0, MODEL_ERROR))
            for name in LATENCIES:
                values[name].append(run[name] * error)
        return {name: np.array(found) for name, found in values.items()}

    def _rate_error(self, whole: Setting) -> float:
        """Relative: a rate that was measured is uncertain, one that is asked for is not."""
        same = math.isclose(float(whole.rate or 0.0), self.arrivals.rate, rel_tol=1e-9)
        return self.arrivals.error / self.arrivals.rate if same else 0.0

    def _span(self, cycle: float, least: float) -> float:
        """How long a simulated run is: as the recording, within bounds of micro-batches; seconds."""
        recorded = max(series.span for series in self.queries[0].observed.series)
        return min(max(recorded, least * cycle, SHORTEST_S), MOST_BATCHES * cycle)

    def cycle(self, whole: Setting, models: Sequence[DurationModel] | None = None) -> float:
        """The time that a micro-batch takes with its wait, about; seconds. ``models`` of the queries are others than
        calibrated.
        """
        gate, rate = gate_of(whole), float(whole.rate or 0.0)
        cycle = max(gate.trigger, SHORTEST_CYCLE_S)
        for query, durations in zip(self.queries, models or [self.scaled(query, whole) for query in self.queries], strict=True):
            rows = query.observed.rows_per_source_row
            length = durations.duration(0.0)
            for _ in range(50):  # back to back: the batch gathers what comes while the one before runs
                length = min(durations.duration(rate * max(length, gate.trigger) * rows), LONGEST_S)
            cycle = max(cycle, length)
        if gate.min_rows > 1:
            cycle = max(cycle, min(gate.max_delay, gate.min_rows / rate))
        return cycle

    def _simulated(
        self, whole: Setting, durations: Sequence[DurationModel], horizon: float, cycle: float, random: np.random.Generator
    ) -> "_Run":
        gate, rate = gate_of(whole), float(whole.rate or 0.0)
        begin = min(10 * cycle, horizon)  # until the simulation has forgotten that it began empty
        until = begin + horizon + 5 * cycle
        source = self.arrivals.flow(rate, until, random, whole.arrivals, step=cycle / STEPS)
        flow, passages = source, list[Passage]()
        for query, model in zip(self.queries, durations, strict=True):
            work = model.work(random, query.observed.rows_per_source_row, until)
            own = gate if query.observed.upstream is None else Gate(trigger=gate.trigger)
            phase = float(random.random()) * cycle
            passages.append(pass_gate(flow, own, work, until=until, free=phase))
            flow = passages[-1].departures
        return _Run(passages, passages[-1].latencies(source, begin, begin + horizon)[1])

    def scaled(self, query: QueryModel, whole: Setting, durations: DurationModel | None = None) -> DurationModel:
        """The query's durations on the setting's cores and partitions: what is spent per row is divided among them."""
        durations = durations or query.under(gate_of(whole))
        then, now = _parallelism(query.observed.setting), _parallelism(whole)
        return durations if then is None or now is None or then == now else durations.scaled(now / then)

    def _limit(self, query: QueryModel, durations: DurationModel, gate: Gate) -> float:
        rows = query.observed.rows_per_source_row
        if math.isinf(gate.max_rows) or query.observed.upstream is not None:
            per_row = rows * (durations.sustained(VAST_ROWS) - durations.sustained(0.0)) / VAST_ROWS
            return 1 / per_row if per_row > 1e-15 else math.inf
        return gate.max_rows / max(durations.sustained(gate.max_rows * rows), gate.trigger)

    def _solved(self, whole: Setting, rate: float) -> dict[str, float]:
        if len(self.queries) > 1:
            raise NotSolvableError("Queries joined by hops have no solution here; use the method 'simulated'.")
        query, gate = self.queries[0], gate_of(whole)
        durations = self.scaled(query, whole)
        if durations.below_knee > 0:
            raise NotSolvableError("The durations are not linear in the rows; use the method 'simulated'.")
        mean = durations.mean_ratio
        residual = LogNormal(1.0, durations.scv) if durations.scv > 1e-6 else Deterministic(1.0)
        state = MicroBatchServer(
            rate,
            threshold=gate.min_rows,
            delay=gate.max_delay,
            cap=gate.max_rows,
            trigger_interval=gate.trigger,
            poll=0.0 if gate.trigger else 0.01,
            fixed=durations.fixed * mean,
            per_row=durations.per_row * mean,
            residual=residual,
        ).solve()
        closing = float(np.concatenate(durations.closing).mean())
        planning = durations.planning[0] * float(np.concatenate(durations.planned).mean())
        away = closing + planning  # results are visible before the end, and rows are taken until they are fixed
        return {
            "mean": state.mean_latency - away,
            **{name: max(0.0, state.quantile(p) - away) for name, p in QUANTILES.items()},
        }

    def _far(self, rows: float) -> list[str]:
        """What is said of micro-batches much larger than those recorded."""
        most = self.queries[0].durations.rows[1]
        if rows <= FAR * most:
            return []
        return [
            f"Micro-batches of {rows:,.0f} rows are far beyond those recorded, nearly all of which had {most:,.0f} at most: "
            "that they go on as a straight line is assumed. A short run at such a rate or trigger would tell."
        ]

    def _assumptions(self, whole: Setting, limit: float) -> list[str]:
        found = []
        for query in self.queries:
            model, name = query.durations, query.observed.name
            if not model.identified:
                found.append(
                    f"All micro-batches of {name} had about {model.rows[1]:,.0f} rows, which does not tell what a row costs "
                    "from what a micro-batch costs: two fifths are taken to be the rows', and the bands have anything from "
                    "none to all. A short run at another trigger or rate would tell (penstock observe APP.py --probe)."
                )
            if query.speed is not None:
                found.append(
                    f"{name} goes on at the speed of its last micro-batches, which lasted {query.speed.factor:.2f} times "
                    f"(+- {query.speed.error:.0%}) as long as the calibrated ones."
                )
            if model.assumed_run_to_run:
                found.append(
                    f"That the speed of {name} differs by {model.run_to_run:.0%} from run to run is assumed, since too few "
                    "recordings show it."
                )
            if _parallelism(whole) not in (None, _parallelism(query.observed.setting)):
                found.append(f"That the time which {name} spends per row is divided among the cores is assumed.")
        if whole.max_rows is None:
            most = max(float(series.rows.max()) for series in self.queries[0].observed.series)
            found.append(
                f"No maximum of rows per trigger is assumed: a micro-batch took {most:,.0f} rows at most, and none was reached."
            )
        if any(series.hides for series in self.queries[0].observed.series):
            found.append(
                "Some micro-batches were at a maximum of rows, and the source does not say what waits behind it: rows are "
                "taken to have come when they were taken, which is too late, so latencies are too low by what they waited."
            )
        if self.arrivals.changed is not None:
            found.append(
                f"The rate changed once in the recording, from {self.arrivals.changed:,.0f} to {self.arrivals.rate:,.0f} "
                "rows/s: the last one is taken to stay."
            )
        if self.queries[-1].observed.latency_kind == "derived":
            found.append("Rows are taken to be spread evenly between the two looks at the source that each came between.")
        rate = float(whole.rate or 0.0)
        if rate > CLOSE_TO_LIMIT * limit:
            found.append(f"At {rate / limit:.0%} of the throughput limit small errors of the durations make large ones here.")
        return found


@dataclass(frozen=True)
class _Run:
    """A simulated run: its micro-batches by query, and latencies of rows."""

    passages: list[Passage]
    latencies: Real


def calibrate(observation: Observation, *, seed: int = 0) -> Calibration:
    """Fit the models to what was observed; the more settings were recorded, the better.

    Raises
    ------
    ConfigurationError: the recordings are too short, or nothing arrives in them.

    Examples
    --------
    >>> from penstock.planner import Setting, observe
    >>> calibration = calibrate(observe("examples/recordings/digests-1.jsonl", "examples/recordings/digests-2.jsonl"))
    >>> found = calibration.predict(Setting(trigger=2.0))
    >>> low, high = found.band("p95")
    >>> low < found.p95 < high < 5
    True
    """
    random = np.random.default_rng(seed)
    models = []
    for query in observation.queries:
        if query.batches < LEAST_WARM:
            raise ConfigurationError(
                f"{query.name} has {query.batches} micro-batches with data after its warm-up, and {LEAST_WARM} are needed: "
                "record for longer."
            )
        pooled = durations_of(query.series, random)
        apart = _apart(query.series, pooled, random) if len(observation.queries) > 1 else {}
        models.append(QueryModel(query, pooled, apart))
    first = observation.queries[0]
    held = (first.setting.min_rows or 1.0) > 1
    windows = [series.windows() for series in first.series]
    arrivals = arrivals_of(windows, windows if held else [series.windows(quiet=True) for series in first.series])
    if arrivals is None and not any(series.whole[1:].any() for series in first.series):
        raise ConfigurationError(
            f"Of no two micro-batches of {first.name} that follow each other is the progress there: it was sampled. Record "
            "each, by a StreamingQueryListener or from the driver's log."
        )
    if arrivals is None:
        raise ConfigurationError(f"No rows arrive at {first.name}, as far as the recording shows: record it under load.")
    return Calibration(observation, tuple(models), arrivals)


def _apart(series: Sequence[Series], pooled: DurationModel, random: np.random.Generator) -> dict[bool, DurationModel]:
    """Durations with a trigger interval and without, where there are recordings of both.

    What a row costs is taken from those with an interval: back to back, a slow micro-batch makes the next one large, which
    feigns a cost.
    """
    kinds = {hurried: [one for one in series if one.hurried == hurried] for hurried in (False, True)}
    if any(sum(map(len, own)) < LEAST_WARM for own in kinds.values()):
        return {}
    calm = durations_of(kinds[False], random)
    fitted = calm if calm.identified else pooled
    return {hurried: fitted.beside(own) for hurried, own in kinds.items()}


def _followed(model: QueryModel, running: QueryObservation | None, now: float | None) -> QueryModel:
    """The query at the speed of a run; as it was where the run shows none."""
    series = [one for one in running.cold if len(one)] if running is not None else []
    if not series:
        return model
    durations = model.apart.get(series[-1].hurried, model.durations)
    speed = follow(durations, series[-1])
    if speed is None:
        return model
    speed = speed.later(0.0 if now is None else now - speed.at)
    return replace(model.changed(speed.applied), speed=speed)


def gate_of(setting: Setting) -> Gate:
    """The gate of a setting, with Spark's defaults for what it leaves out."""
    return Gate(
        trigger=setting.interval,
        min_rows=float(setting.min_rows or 1.0),
        max_delay=setting.delay,
        max_rows=float(setting.max_rows or math.inf),
    )


def _parallelism(setting: Setting) -> float | None:
    """How many tasks run at once."""
    known = [value for value in (setting.cores, setting.partitions) if value is not None]
    return setting.cores if setting.cores is None else min(known)
