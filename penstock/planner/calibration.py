"""Calibration: a model of a query, or of all queries of a run, fitted to recordings; it predicts settings not yet tried."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from penstock.app.display import rounded
from penstock.errors import ConfigurationError, NotSolvableError, UnstableServerError
from penstock.planner.arrivals import ArrivalModel, arrivals_of
from penstock.planner.durations import DurationModel, durations_of
from penstock.planner.gate import Gate, SimulatedBatches, pass_gate
from penstock.planner.observation import LEAST_WARM, Observation, QueryObservation
from penstock.planner.prediction import DAY_S, LATENCIES, LIMIT, QUANTILES, Method, Prediction, summary
from penstock.planner.series import Series
from penstock.planner.setting import Setting
from penstock.planner.speed import Speed, follow
from penstock.queueing.distribution import Deterministic, LogNormal
from penstock.queueing.microbatch import MicroBatchServer

Real = NDArray[np.float64]

REPLICATES, RUNS, FEW_RUNS = 60, 8, 3
"""Simulated runs: for the bands; pooled for the figures, so that they do not rest on a single run; and pooled for figures
without bands, of which a search makes many."""
BATCHES, MOST_BATCHES, SHORTEST_S, LEAST_ROWS = 600, 20_000, 120.0, 50
"""Micro-batches simulated for a prediction; most micro-batches of a run, however long the recording; least seconds of a run,
and least rows of one whose figures are shown."""
STEPS = 100
"""Arrivals are simulated in so many steps per micro-batch; when within a step a row comes does not matter."""
LONGEST_S, SHORTEST_CYCLE_S = 86_400.0, 0.02
"""Bounds, in seconds: the longest duration of a micro-batch, and the least time from one start to the next."""
MODEL_ERROR = 0.015
"""Relative standard deviation of the model's own error (measured in docs/background/predictions.md)."""
CLOSE_TO_LIMIT = 0.9
"""Share of the throughput limit above which a prediction warns that small errors matter much."""
FAR = 3.0
"""Micro-batches with more than this multiple of the rows of the largest recorded ones are far beyond the recordings."""
VAST_ROWS = 1e12
"""Rows of a micro-batch that is so large that its fixed part is negligible."""


@dataclass(frozen=True)
class QueryModel:
    """The model of one query: its observation, and how long its micro-batches last.

    Args:
        durations: fitted to all recordings.
        apart: fitted to the recordings with a trigger interval (False) and to those back to back (True), for a query that runs
            beside others: back to back, the queries slow each other all the time.
        speed: of a run that is followed; it is contained in the durations already.
    """

    observed: QueryObservation
    durations: DurationModel
    apart: Mapping[bool, DurationModel] = field(default_factory=dict)
    speed: Speed | None = None

    def under(self, gate: Gate) -> DurationModel:
        """The durations under a gate: back to back if it never makes a micro-batch wait, else with a trigger interval."""
        return self.apart.get(gate.trigger == 0 and gate.min_rows <= 1, self.durations)

    def changed(self, change: Callable[[DurationModel], DurationModel]) -> "QueryModel":
        """The model with ``change`` applied to all its durations."""
        apart = {hurried: change(durations) for hurried, durations in self.apart.items()}
        return replace(self, durations=change(self.durations), apart=apart)


@dataclass(frozen=True)
class Calibration:
    """The models of all queries and of the arrivals at the first; a query comes after the query that it reads from."""

    observation: Observation
    queries: tuple[QueryModel, ...]
    arrivals: ArrivalModel

    @property
    def is_identified(self) -> bool:
        """Whether the recordings tell the cost per row from the fixed cost of a micro-batch."""
        return all(query.durations.identified for query in self.queries)

    @property
    def today(self) -> Setting:
        """The setting of the last recording."""
        first = self.queries[0].observed.setting
        return replace(first, trigger=first.trigger or 0.0, rate=self.arrivals.rate)

    def complete(self, setting: Setting | None) -> Setting:
        """The setting, completed with the recorded values, and with its rate in rows per second."""
        whole = (setting or Setting()).over(self.today)
        rate = whole.rate_from(self.arrivals.rate)
        if whole.min_rows is not None and whole.min_rows > (whole.max_rows or math.inf):
            raise ConfigurationError(
                f"min_rows={whole.min_rows:g} is above max_rows={whole.max_rows:g}, one of which is as recorded: set both."
            )
        return replace(whole, rate=rate)

    def faster(self, parallel: float) -> "Calibration":
        """The calibration at a multiple of the parallel speed: the time per row is assumed to shrink, the fixed time stays."""
        return replace(self, queries=tuple(m.changed(lambda durations: durations.scaled(parallel)) for m in self.queries))

    def following(self, running: Observation, *, now: float | None = None) -> "Calibration":
        """The calibration at the present speed of a run that goes on, by a Kalman filter over its micro-batches.

        Args:
            running: the observation of the run, which may be the one that was calibrated on; its last start counts.
            now: seconds since the epoch, the end of the last micro-batch if left out; the later, the less sure is the speed.

        Raises:
            ConfigurationError: the run shows no micro-batch after the first, for any of the calibrated queries.
        """
        seen = {query.name: query for query in running.queries}
        if len(self.queries) == len(running.queries) == 1:  # the name of an unnamed query differs by recording
            seen = {self.queries[0].observed.name: running.queries[0]}
        queries = tuple(_followed(model, seen.get(model.observed.name), now) for model in self.queries)
        if all(query.speed is None for query in queries):
            raise ConfigurationError(
                f"The run to follow has {', '.join(query.name for query in running.queries)}, but not two micro-batches of "
                f"{', '.join(query.observed.name for query in self.queries)}, which a speed needs: give a recording of the "
                "same query with at least two micro-batches."
            )
        return replace(self, queries=queries)

    def throughput_limit(self, setting: Setting | None = None) -> float:
        """Rows per second beyond which the backlog grows without bound."""
        whole = self.complete(setting)
        gate = gate_of(whole)
        return min(self._limit(query, self.scaled(query, whole), gate) for query in self.queries)

    def chance_to_keep_up(self, setting: Setting, *, seed: int = 0) -> float:
        """The share of the models that the recordings also allow which keep up with the setting's rate."""
        whole, random = self.complete(setting), np.random.default_rng(seed)
        gate, rate = gate_of(whole), float(whole.rate or 0.0)
        kept = 0
        for _ in range(REPLICATES):
            drawn = [self.scaled(query, whole, query.under(gate).drawn(random)) for query in self.queries]
            kept += rate < min(self._limit(*each, gate) for each in zip(self.queries, drawn, strict=True))
        return kept / REPLICATES

    def predict(
        self,
        setting: Setting | None = None,
        *,
        method: Method = "simulated",
        seed: int = 0,
        replicates: int = REPLICATES,
        batches: int = BATCHES,
    ) -> Prediction:
        """Predict the latency, utilisation and cost of a setting.

        Args:
            method: ``"simulated"``, batch by batch, with durations and arrivals like those recorded; or ``"solved"``, by
                `MicroBatchServer`, which assumes Poisson arrivals, and durations that are independent and linear in the rows.
            replicates: runs from which bands are made.
            batches: to simulate; fewer take less time, but make the p99 less sure.

        Raises:
            UnstableServerError: the rate is beyond the throughput limit; says both.
            ConfigurationError: the rate is so low that hardly any row would be simulated.
            NotSolvableError: the model of ``"solved"`` does not fit the recordings.
        """
        whole = self.complete(setting)
        if method == "solved" and whole.arrivals not in (None, "poisson"):
            raise NotSolvableError(
                "The solved model assumes Poisson arrivals: leave out other ones, or simulate (method='simulated')."
            )
        rate, limit = float(whole.rate or 0.0), self.throughput_limit(whole)
        if rate >= limit:
            raise UnstableServerError(
                f"{rounded(rate)} rows arrive per second and the query keeps up with {rounded(limit)} (predicted): latency "
                "would grow without bound. Give it a lower rate, a larger max_rows if that is set, or more cores."
            )
        random = np.random.default_rng(seed)
        cycle = self.cycle(whole)
        seldom = LEAST_ROWS / (MOST_BATCHES * cycle)
        if rate < seldom:
            raise ConfigurationError(
                f"At {rate:g} rows per second too few come in {MOST_BATCHES:,} triggers to be simulated: ask for {seldom:.2g} "
                "or more, at which each row has a micro-batch to itself, too."
            )
        count = RUNS if replicates else FEW_RUNS
        span = max(self._span(cycle, max(batches / count, 50)), LEAST_ROWS / rate)
        usual = [self.scaled(query, whole) for query in self.queries]
        # The figures come from runs of the fitted model; the bands from runs of models that the recordings also allow.
        runs = [self._simulated(whole, usual, span, cycle, random) for _ in range(count)]
        samples = self._replicates(whole, random, replicates)
        pooled = summary(np.concatenate([run.latencies for run in runs]))
        latencies = pooled if method == "simulated" else self._solved(whole, rate)
        shown = [run.passages for run in runs if all(len(passage.started) > 1 for passage in run.passages)]
        if not shown:
            raise ConfigurationError(
                f"At {rate:g} rows per second no two micro-batches begin in {span:,.0f} s: ask for a higher rate."
            )
        # Micro-batches a day and busy seconds of each query, from the first start to the last; each micro-batch has a row.
        time = sum(float(first.started[-1] - first.started[0]) for first, *_ in shown)
        each = [sum(len(passage.started) - 1 for passage in passages) / time for passages in zip(*shown, strict=True)]
        a_day = [min(a_second, rate) * DAY_S for a_second in each]
        busy = [
            sum(float((passage.ended - passage.started)[:-1].sum()) for passage in passages)
            for passages in zip(*shown, strict=True)
        ]
        return Prediction(
            setting=whole,
            rate=rate,
            **latencies,
            backlog=rate * latencies["mean"],
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
        """Latencies and throughput limits of runs as long as the recording, each of a model that the recordings also allow."""
        rate = float(whole.rate or 0.0)
        window = self._span(self.cycle(whole), 1.0)
        values: dict[str, list[float]] = {name: [] for name in (*LATENCIES, LIMIT)}
        for _ in range(count):
            gate = gate_of(whole)
            drawn = [self.scaled(query, whole, query.under(gate).drawn(random)) for query in self.queries]
            limit = min(self._limit(query, durations, gate) for query, durations in zip(self.queries, drawn, strict=True))
            values[LIMIT].append(limit)
            if rate >= limit:  # the band must show that the query may not keep up
                for name in LATENCIES:
                    values[name].append(math.inf)
                continue
            uncertain = replace(whole, rate=max(1e-9, rate * (1 + random.normal(0.0, self._rate_error(whole)))))
            cycle = self.cycle(whole, drawn)
            latencies = self._simulated(uncertain, drawn, window, cycle, random).latencies
            if not len(latencies):  # a run without a row, of a source that has none for long
                continue
            run = summary(latencies)
            error = math.exp(random.normal(0.0, MODEL_ERROR))
            for name in LATENCIES:
                values[name].append(run[name] * error)
        return {name: np.array(figures) for name, figures in values.items()}

    def _rate_error(self, whole: Setting) -> float:
        """Relative standard error of the rate: that of the measured rate, or 0 for a rate that was asked for."""
        same = math.isclose(float(whole.rate or 0.0), self.arrivals.rate, rel_tol=1e-9)
        return self.arrivals.error / self.arrivals.rate if same else 0.0

    def _span(self, cycle: float, least: float) -> float:
        """Seconds of a simulated run: as the recording, but at least ``least`` and at most MOST_BATCHES micro-batches."""
        recorded = max(series.span for series in self.queries[0].observed.series)
        return min(max(recorded, least * cycle, SHORTEST_S), MOST_BATCHES * cycle)

    def cycle(self, whole: Setting, models: Sequence[DurationModel] | None = None) -> float:
        """Approximate seconds from the start of one micro-batch to the next; ``models`` replace the calibrated durations."""
        gate, rate = gate_of(whole), float(whole.rate or 0.0)
        cycle = max(gate.trigger, SHORTEST_CYCLE_S)
        for query, durations in zip(self.queries, models or [self.scaled(query, whole) for query in self.queries], strict=True):
            rows = query.observed.rows_per_source_row
            length = durations.duration(0.0)
            for _ in range(50):  # back to back, a batch has the rows that came during the one before
                length = min(durations.duration(rate * max(length, gate.trigger) * rows), LONGEST_S)
            cycle = max(cycle, length)
        if gate.min_rows > 1:
            cycle = max(cycle, min(gate.max_delay, gate.min_rows / rate))
        return cycle

    def _simulated(
        self, whole: Setting, durations: Sequence[DurationModel], horizon: float, cycle: float, random: np.random.Generator
    ) -> "_Run":
        """Simulate all queries for so many seconds; each reads what the query before it made visible."""
        gate, rate = gate_of(whole), float(whole.rate or 0.0)
        begin = min(10 * cycle, horizon)  # rows before that do not count: the simulation begins empty
        until = begin + horizon + 5 * cycle
        source = self.arrivals.flow(rate, until, random, whole.arrivals, step=cycle / STEPS)
        flow, passages = source, list[SimulatedBatches]()
        for query, model in zip(self.queries, durations, strict=True):
            work = model.work(random, query.observed.rows_per_source_row, until)
            own = gate if query.observed.upstream is None else Gate(trigger=gate.trigger)
            phase = float(random.random()) * cycle
            passages.append(pass_gate(flow, own, work, until=until, free=phase))
            flow = passages[-1].departures
        return _Run(passages, passages[-1].latencies(source, begin, begin + horizon)[1])

    def scaled(self, query: QueryModel, whole: Setting, durations: DurationModel | None = None) -> DurationModel:
        """The query's durations on the setting's cores and partitions, among which the time per row is divided."""
        durations = durations or query.under(gate_of(whole))
        then, now = _parallelism(query.observed.setting), _parallelism(whole)
        if then is None and now is not None:
            raise ConfigurationError(
                f"How many cores {query.observed.name} was recorded with is not known, so what others would do is not, either: "
                "give --recorded-cores."
            )
        return durations if then is None or now is None or then == now else durations.scaled(now / then)

    def _limit(self, query: QueryModel, durations: DurationModel, gate: Gate) -> float:
        """Rows of the source per second up to which one query keeps up."""
        rows = query.observed.rows_per_source_row
        if math.isinf(gate.max_rows) or query.observed.upstream is not None:
            per_row = rows * (durations.sustained(VAST_ROWS) - durations.sustained(0.0)) / VAST_ROWS
            return 1 / per_row if per_row > 1e-15 else math.inf
        return gate.max_rows / max(durations.sustained(gate.max_rows * rows), gate.trigger)

    def _solved(self, whole: Setting, rate: float) -> dict[str, float]:
        """Mean and quantiles of the latency, seconds, by the exact solution."""
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

    def is_beyond(self, rows: float, times: float) -> bool:
        """Whether micro-batches of so many rows are larger than this multiple of nearly all that were recorded."""
        return rows > times * self.queries[0].durations.rows[1]

    def _far(self, rows: float) -> list[str]:
        """A sentence on micro-batches that are much larger than those recorded; none if they are not."""
        most = self.queries[0].durations.rows[1]
        if not self.is_beyond(rows, FAR):
            return []
        return [
            f"Micro-batches of {rows:,.0f} rows are far beyond those recorded, nearly all of which had {most:,.0f} at most: "
            "their durations are assumed to go on as a straight line. A short run at such a rate or trigger would tell."
        ]

    def _assumptions(self, whole: Setting, limit: float) -> list[str]:
        """Sentences on what a prediction assumes and no recording shows."""
        texts = []
        for query in self.queries:
            model, name = query.durations, query.observed.name
            if not model.identified:
                texts.append(
                    f"All micro-batches of {name} had about {model.rows[1]:,.0f} rows, which does not tell the cost per row "
                    "from the cost per micro-batch: 40% of the time is assumed to depend on the rows, and the bands range "
                    "from none to all. A short run at another trigger or rate would tell (penstock observe APP.py --probe)."
                )
            if query.speed is not None:
                texts.append(
                    f"{name} goes on at the speed of its last micro-batches, which lasted {query.speed.factor:.2f} times "
                    f"(+- {query.speed.error:.0%}) as long as the calibrated ones."
                )
            if model.assumed_run_to_run:
                texts.append(
                    f"That the speed of {name} differs by {model.run_to_run:.0%} from run to run is assumed, since too few "
                    "recordings show it."
                )
            if _parallelism(whole) not in (None, _parallelism(query.observed.setting)):
                texts.append(f"That the time which {name} spends per row is divided among the cores is assumed.")
        if whole.max_rows is None:
            most = max(float(series.rows.max()) for series in self.queries[0].observed.series)
            texts.append(
                f"No maximum of rows per trigger is assumed: a micro-batch took {most:,.0f} rows at most, and none was reached."
            )
        if any(series.hides for series in self.queries[0].observed.series):
            texts.append(
                "Some micro-batches were at a maximum of rows, and the source does not say what waits behind it: rows are "
                "assumed to arrive when they are taken, which is too late, so latencies are too low by what they wait."
            )
        if self.arrivals.changed is not None:
            texts.append(
                f"The rate changed once in the recording, from {rounded(self.arrivals.changed)} to "
                f"{rounded(self.arrivals.rate)} rows/s: the last one is taken to stay."
            )
        if self.arrivals.spikes is not None:
            texts.append(
                f"In {int(self.arrivals.spikes.sum())} windows between two looks at the source far more rows came than around "
                "them, as a job or a load sends them: whether at once is not recorded, and half of the runs assume it."
            )
        if self.queries[-1].observed.latency_kind == "derived":
            texts.append("Rows are assumed to arrive evenly between two successive looks at the source.")
        rate = float(whole.rate or 0.0)
        if rate > CLOSE_TO_LIMIT * limit:
            texts.append(
                f"At {rate / limit:.0%} of the throughput limit small errors of the durations make large ones of the latency."
            )
        return texts


@dataclass(frozen=True)
class _Run:
    """A simulated run: the micro-batches of each query, and the latencies of rows."""

    passages: list[SimulatedBatches]
    latencies: Real


def calibrate(observation: Observation, *, seed: int = 0) -> Calibration:
    """Fit the models to an observation; recordings at several settings make them better.

    Raises:
        ConfigurationError: the recordings are too short, or nothing arrives in them.

    Examples:
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
    held = (first.setting.min_rows or 1.0) > 1  # a gate holds rows back: a trigger that found nothing proves nothing
    windows = [series.windows() for series in first.series]
    arrivals = arrivals_of(windows, windows if held else [series.windows(quiet=True) for series in first.series])
    if arrivals is None and not any(series.whole[1:].any() for series in first.series):
        raise ConfigurationError(
            f"The recording has no two successive micro-batches of {first.name}: its progress was sampled. Record every "
            "micro-batch, by a StreamingQueryListener or from the driver's log."
        )
    if arrivals is None:
        raise ConfigurationError(f"No rows arrive at {first.name}, as far as the recording shows: record it under load.")
    return Calibration(observation, tuple(models), arrivals)


def _apart(series: Sequence[Series], pooled: DurationModel, random: np.random.Generator) -> dict[bool, DurationModel]:
    """Durations back to back (True) and with a trigger interval (False); empty unless enough was recorded of both.

    The cost per row is fitted to the recordings with an interval: back to back, a slow micro-batch makes the next one
    large, which looks like a cost of the rows.
    """
    kinds = {hurried: [start for start in series if start.hurried == hurried] for hurried in (False, True)}
    if any(sum(map(len, own)) < LEAST_WARM for own in kinds.values()):
        return {}
    calm = durations_of(kinds[False], random)
    fitted = calm if calm.identified else pooled
    return {hurried: fitted.beside(own) for hurried, own in kinds.items()}


def _followed(model: QueryModel, running: QueryObservation | None, now: float | None) -> QueryModel:
    """The query's model at the speed of a run; unchanged where the run shows no speed."""
    series = [start for start in running.cold if len(start)] if running is not None else []
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
    """How many tasks run at once; None where the number of cores is not known."""
    known = [value for value in (setting.cores, setting.partitions) if value is not None]
    return setting.cores if setting.cores is None else min(known)
