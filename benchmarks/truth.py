"""Do predictions hold where the truth is known? A micro-batch engine of 60 lines makes recordings, and the truth beside them.

    python benchmarks/truth.py [--only NAME] [--recordings 3] [--runs 20] [--output FILE.md] [--json FILE]

The engine knows Spark's trigger, a maximum of rows, arrivals of many kinds and what micro-batches last; it shares no code
with the planner, which is asked in a process of its own (told.py) and sees the progress that Spark would have recorded.
For each process, recording and setting: the planner's figures; those of `--runs` true runs as long as the recording; and
the share of these that lies in the band of 90%. A setting is *identified* unless the planner says that it is not.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.float64]
Random = np.random.Generator
Arrivals = Callable[[Random, float, float], Real]
"""From a source of chance, rows per second and seconds to the times of rows."""

BEGAN_S = 1_749_999_600.0  # a full hour
LOOK_S, PLAN_S, LOG_S, CLOSE_S = 0.01, 0.03, 0.05, 0.05
"""Phases of a micro-batch that cost the same whatever its rows: finding what is there, planning, the two logs."""
WARM_S = 60.0
"""Of a true run, what is left out at its beginning."""
IDLE_S = 10.0
"""While nothing is there Spark says so as often."""
FIGURES = ("mean", "p50", "p95", "p99")
TARGETS = (0.8, 1.3, 3.0)
"""What is asked of `tune`: a p95 of so many times the recorded setting's."""


# --- arrivals ---------------------------------------------------------------------------------------------------------


def poisson(random: Random, rate: float, seconds: float) -> Real:
    return np.sort(random.random(random.poisson(rate * seconds)) * seconds)


def regular(random: Random, rate: float, seconds: float) -> Real:
    return (np.arange(int(rate * seconds)) + random.random()) / rate


def renewal(scv: float) -> Arrivals:
    """Gaps of a gamma distribution with this squared coefficient of variation."""

    def times(random: Random, rate: float, seconds: float) -> Real:
        gaps = random.gamma(1 / scv, scv / rate, int(rate * seconds * 1.2 + 100 * scv))
        found = np.cumsum(gaps)
        return found[found < seconds]

    return times


def landing(size: int) -> Arrivals:
    """So many rows at once, at moments that are Poisson."""

    def times(random: Random, rate: float, seconds: float) -> Real:
        return np.repeat(poisson(random, rate / size, seconds), size)

    return times


def dripping(every: float, late: float = 0.2) -> Arrivals:
    """A file each so many seconds, with all rows of that time."""

    def times(random: Random, rate: float, seconds: float) -> Real:
        landed = np.arange(random.random() * every, seconds, every)
        return np.repeat(np.sort(landed + random.random(len(landed)) * late), max(1, round(rate * every)))

    return times


def jobs(every: float, share: float, lasting: float = 0.8) -> Arrivals:
    """Rows that come evenly, but for a share of them, which jobs send within a moment each so many seconds."""

    def times(random: Random, rate: float, seconds: float) -> Real:
        begun = np.arange(random.random() * every, seconds, every)
        sent = random.random((len(begun), max(1, round(share * rate * every)))) * lasting
        return np.sort(np.concatenate([poisson(random, (1 - share) * rate, seconds), (begun[:, None] + sent).ravel()]))

    return times


def level(rate_at: Callable[[Real, Random], Real]) -> Arrivals:
    """Poisson rows at a rate that changes: relative to the mean, by the time in seconds."""

    def times(random: Random, rate: float, seconds: float) -> Real:
        step = 0.1
        cells = np.arange(0, seconds, step)
        counts = random.poisson(rate * step * np.maximum(rate_at(cells, random), 0.0))
        return np.sort(np.repeat(cells, counts) + random.random(int(counts.sum())) * step)

    return times


def wave(period: float, height: float) -> Arrivals:
    return level(lambda at, random: 1 + height * np.sin(2 * math.pi * (at / period + random.random())))


def peaks(every: float, lasting: float, times: float) -> Arrivals:
    """A rate that is so many times as high for a while, now and then."""
    rest = (every - lasting * times) / (every - lasting)

    def rate_at(at: Real, random: Random) -> Real:
        return np.where(np.mod(at + random.random() * every, every) < lasting, times, rest)

    return level(rate_at)


def switching(low: float, high: float, lasting: float) -> Arrivals:
    """Two rates, each for an exponential time."""

    def rate_at(at: Real, random: Random) -> Real:
        edges = np.cumsum(random.exponential(lasting, int(3 * at[-1] / lasting) + 50))
        return np.where((np.searchsorted(edges, at) + random.integers(2)) % 2 == 0, low, high) * 2 / (low + high)

    return level(rate_at)


def step(before: float, where: float) -> Arrivals:
    """Another rate at the beginning, for a share of the time; the last is the one that is meant."""

    def times(random: Random, rate: float, seconds: float) -> Real:
        changed = level(lambda at, _: np.where(at < where * seconds, before, 1.0))
        return changed(random, rate, seconds)

    return times


# --- the engine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What a run is given. Trigger in seconds (0: one after the other), rows per second, most rows of a micro-batch."""

    trigger: float
    rate: float
    cap: float = math.inf


@dataclass(frozen=True)
class Process:
    """A query as it really is.

    Args:
        fixed, per_row: seconds.
        noise: relative standard deviation of a micro-batch, correlation: of successive ones.
        speed: relative standard deviation from run to run, as Spark has it.
        trend: how much slower it is after an hour.
        knee, below_knee: seconds per row more, up to so many rows.
        tail: Pareto's shape of what micro-batches last, times.
        pause_every, pause: each so many seconds (exponential) or, below zero, micro-batches, all stands for a while.
        planning: share of a micro-batch before its rows are fixed.
        lag: whether the source says what waits.
        recorded: what the recording was made at; several recordings are given together.
        seconds: its length.
        asked: what is predicted.
        arrivals: at other rates the same, scaled;
        asked_arrivals: where they are others.
    """

    name: str
    recorded: tuple[Setting, ...]
    asked: tuple[Setting, ...]
    fixed: float = 0.3
    per_row: float = 2e-4
    arrivals: Arrivals = poisson
    asked_arrivals: Arrivals | None = None
    noise: float = 0.08
    correlation: float = 0.0
    speed: float = 0.06
    trend: float = 0.0
    knee: float = 0.0
    below_knee: float = 0.0
    tail: float = 0.0
    pause_every: float = 0.0
    pause: float = 0.0
    planning: float = 0.0
    lag: bool = True
    seconds: float = 1200.0


@dataclass
class Run:
    """What a run did, by micro-batch: when it began, fixed its rows, showed its results and ended; and each row's latency."""

    started: list[float] = field(default_factory=list)
    lasted: list[float] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    there: list[int] = field(default_factory=list)
    planned: list[float] = field(default_factory=list)
    idle: list[tuple[float, int]] = field(default_factory=list)
    born: Real = field(default_factory=lambda: np.empty(0))

    def latencies(self) -> Real:
        """Of rows that came after the warm-up and were taken."""
        visible = np.array(self.started) + np.array(self.lasted) - CLOSE_S
        ends = np.array(self.taken)
        first = int(np.searchsorted(self.born, WARM_S))
        rows = np.arange(first, ends[-1])
        return np.asarray(visible[np.searchsorted(ends, rows, side="right")] - self.born[rows])


def run(process: Process, setting: Setting, random: Random, arrivals: Arrivals, *, warm: bool) -> Run:
    """One run, from the first trigger until its time is over."""
    born = arrivals(random, setting.rate, process.seconds)
    pace = math.exp(random.normal(0, process.speed))
    done, taken, time, slow = Run(born=born), 0, 0.0, 0.0
    stop = random.exponential(process.pause_every) if process.pause_every > 0 else math.inf
    while time < process.seconds:
        if setting.trigger and not done.started:
            time = math.ceil(time / setting.trigger) * setting.trigger
        ready = int(np.searchsorted(born, time + LOOK_S, side="right"))
        if ready == taken:  # nothing is there: the next trigger looks again
            if ready == len(born):
                break
            after = max(time + (setting.trigger or 0.01), born[taken] - LOOK_S)
            after = math.ceil(after / setting.trigger - 1e-9) * setting.trigger if setting.trigger else after
            told = done.idle[-1][0] if done.idle else 0.0
            told = max(told, done.started[-1] + done.lasted[-1] if done.started else 0.0)
            while (told := _on_grid(told + IDLE_S, setting.trigger)) < after:  # Spark says so now and then
                done.idle.append((told, len(done.started)))
            time = after
            continue
        rows = ready - taken
        slow = process.correlation * slow + math.sqrt(1 - process.correlation**2) * random.standard_normal()
        once = (process.fixed + process.per_row * rows + process.below_knee * min(rows, process.knee)) * pace
        planning = LOOK_S + process.planning * once
        if process.planning:  # what comes while it looks is taken as well
            rows = int(np.searchsorted(born, time + planning, side="right")) - taken
            ready = taken + rows
        rows = min(rows, int(min(setting.cap, 1e12)))
        work = process.fixed + process.per_row * rows + process.below_knee * min(rows, process.knee)
        factor = pace * (1 + process.trend * time / 3600) * math.exp(process.noise * slow - process.noise**2 / 2)
        if process.tail:
            factor *= (random.pareto(process.tail) + 1) * (process.tail - 1) / process.tail
        if not warm:
            factor *= 1 + 2.0 * 0.5 ** len(done.started)
        lasted = max(work * factor, LOOK_S + PLAN_S + LOG_S + CLOSE_S + planning)
        if process.pause_every < 0 and len(done.started) % -process.pause_every == -process.pause_every - 1:
            lasted += process.pause
        while time + lasted > stop:  # of one that began before the micro-batch, what is left
            lasted += max(0.0, min(process.pause, stop + process.pause - time))
            stop = max(stop + process.pause, time + lasted if stop > time else 0.0) + random.exponential(process.pause_every)
        taken += rows
        for values, value in (
            (done.started, time),
            (done.lasted, lasted),
            (done.taken, taken),
            (done.there, ready),
            (done.planned, planning),
        ):
            values.append(value)
        grid = (math.floor(time / setting.trigger + 1e-9) + 1) * setting.trigger if setting.trigger else 0.0
        time = max(time + lasted, grid)
    return done


def _on_grid(time: float, trigger: float) -> float:
    return math.ceil(time / trigger - 1e-9) * trigger if trigger else time


def progress(process: Process, done: Run, number: int) -> Iterator[str]:
    """The run as Spark's listener tells it, a line for each micro-batch, and some where there was none."""
    before, idle = 0, list(done.idle)
    for batch, (started, lasted, taken, there, planned) in enumerate(
        zip(done.started, done.lasted, done.taken, done.there, done.planned, strict=True)
    ):
        while idle and idle[0][0] < started:
            yield told(number, *idle.pop(0), 0, {"latestOffset": LOOK_S, "triggerExecution": LOOK_S}, [])
        work = lasted - planned - PLAN_S - LOG_S - CLOSE_S
        phases = {
            "latestOffset": planned,
            "queryPlanning": PLAN_S,
            "walCommit": LOG_S,
            "addBatch": work,
            "commitOffsets": CLOSE_S,
            "triggerExecution": lasted,
        }
        source: dict[str, Any] = {
            "description": "KafkaV2[Subscribe[topic]]",
            "startOffset": {"topic": {"0": before}},
            "endOffset": {"topic": {"0": taken}},
            "numInputRows": taken - before,
        }
        if process.lag:
            source["latestOffset"] = {"topic": {"0": there}}
        yield told(number, started, batch, taken - before, phases, [source])
        before = taken


def told(number: int, at: float, batch: int, rows: int, phases: dict[str, float], sources: list[Any]) -> str:
    """One progress."""
    time = datetime.fromtimestamp(BEGAN_S + at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps(
        {
            "id": "5d1b",
            "runId": f"run-{number}",
            "name": None,
            "timestamp": time,
            "batchId": batch,
            "numInputRows": rows,
            "inputRowsPerSecond": 0.0,
            "processedRowsPerSecond": 0.0,
            "durationMs": {name: round(1e3 * value) for name, value in phases.items()},
            "stateOperators": [],
            "sources": sources,
            "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
        }
    )


# --- processes --------------------------------------------------------------------------------------------------------

SERVICES: dict[str, dict[str, Any]] = {
    "even": {},
    "noisy": {"noise": 0.3},
    "correlated": {"noise": 0.2, "correlation": 0.9},
    "knee": {"knee": 800, "below_knee": 4e-4},
    "Pareto tail": {"tail": 2.2, "noise": 0.05},
    "pause a 200th batch": {"pause_every": -200, "pause": 20.0, "seconds": 3600},
    "pauses": {"pause_every": 120.0, "pause": 3.0},
    "planning": {"planning": 0.55},
    "slowing": {"trend": 0.25},
    "costly rows": {"fixed": 0.1, "per_row": 4.5e-4},
}
ARRIVALS: dict[str, tuple[Arrivals, float]] = {
    "regular": (regular, 1200),
    "gaps of scv 10": (renewal(10), 1200),
    "gaps of scv 200": (renewal(200), 1200),
    "landing by 500": (landing(500), 1800),
    "landing by 50": (landing(50), 1200),
    "switching 1:3": (switching(1, 3, 20), 1800),
    "switching slowly": (switching(1, 2, 120), 3600),
    "wave of 5 minutes": (wave(300, 0.6), 1800),
    "peaks": (peaks(200, 20, 3), 2400),
}
TWO = (Setting(1, 500), Setting(5, 1500))
ASKED = (Setting(0, 1000), Setting(2, 1000), Setting(10, 1000), Setting(10, 2000), Setting(30, 500))


def processes() -> list[Process]:
    """All of them: what micro-batches last, what arrives, what was recorded, and limits."""
    found = [Process(f"{name}, two recordings", TWO, ASKED, **how) for name, how in SERVICES.items()]
    found += [Process(f"{name}, switching", TWO, ASKED, arrivals=switching(1, 3, 20), **how) for name, how in SERVICES.items()]
    for name, (arrivals, seconds) in ARRIVALS.items():
        for trigger in (0.0, 2.0, 10.0):
            asked = tuple(Setting(other, 600) for other in (trigger, 0.0, 5.0, 20.0))
            found.append(
                Process(f"{name}, at {trigger:g} s", (Setting(trigger, 600),), asked, arrivals=arrivals, seconds=seconds)
            )
    one = (Setting(2, 1000),)
    found += [
        Process(
            "a file a minute, at 1 s",
            (Setting(1, 20),),
            (Setting(1, 20), Setting(10, 20), Setting(60, 20)),
            arrivals=dripping(60),
            seconds=7200,
        ),
        Process(
            "a file a minute, at 10 s",
            (Setting(10, 20),),
            (Setting(10, 20), Setting(1, 20)),
            arrivals=dripping(60),
            seconds=7200,
        ),
        *(
            Process(
                f"a row each {every} s, at 0 s",
                (Setting(0, 1 / every),),
                (Setting(0, 1 / every), Setting(10, 1 / every)),
                seconds=240.0 * every,
            )
            for every in (5, 20, 60)
        ),
        Process("a row each 90 s, at 5 s", (Setting(5, 1 / 90),), (Setting(5, 1 / 90), Setting(0, 1 / 90)), seconds=4 * 3600),
        Process(
            "20 rows now and then, at 0 s", (Setting(0, 1),), (Setting(0, 1), Setting(5, 1)), arrivals=landing(20), seconds=3600
        ),
        Process(
            "300 rows now and then, at 10 s",
            (Setting(10, 10),),
            (Setting(10, 10), Setting(2, 10)),
            arrivals=landing(300),
            seconds=7200,
        ),
        Process(
            "a job each minute, at 10 s",
            (Setting(10, 40),),
            (Setting(10, 40), Setting(2, 40), Setting(30, 40)),
            arrivals=jobs(60, 0.87),
            per_row=1e-3,
            seconds=3000,
        ),
        Process(
            "a load each half hour, at 10 s",
            (Setting(10, 31),),
            (Setting(10, 31), Setting(2, 31), Setting(60, 31)),
            arrivals=jobs(1800, 0.35, 5.0),
            per_row=5e-4,
            seconds=3 * 3600,
        ),
        Process(
            "a pause of 30 s, seldom",
            (Setting(5, 50),),
            (Setting(5, 50), Setting(1, 50)),
            pause_every=-160,
            pause=30.0,
            per_row=3e-3,
            seconds=2400,
        ),
        Process(
            "a wave of an hour",
            (Setting(10, 400),),
            (Setting(10, 400), Setting(60, 400), Setting(600, 400)),
            arrivals=wave(3600, 0.8),
            seconds=4 * 3600,
        ),
        Process(
            "a wave of a day",
            (Setting(60, 10),),
            (Setting(60, 10), Setting(600, 10), Setting(4 * 3600, 10)),
            arrivals=wave(86400, 0.9),
            fixed=3.0,
            per_row=2e-2,
            seconds=2 * 86400,
        ),
        Process(
            "a step up",
            (Setting(2, 400),),
            (Setting(2, 400), Setting(10, 400)),
            arrivals=step(0.5, 0.5),
            asked_arrivals=poisson,
        ),
        Process(
            "a step down",
            (Setting(2, 400),),
            (Setting(2, 400), Setting(10, 400)),
            arrivals=step(2.0, 0.4),
            asked_arrivals=poisson,
        ),
        Process(
            "peaks beyond capacity",
            (Setting(10, 1000),),
            (Setting(10, 1000), Setting(2, 1000)),
            arrivals=peaks(300, 30, 3.9),
            per_row=3.3e-4,
            seconds=3600,
        ),
        Process(
            "85% of capacity, at 10 s", (Setting(10, 1000),), (Setting(10, 1000), Setting(0, 1000)), fixed=1.0, per_row=7.5e-4
        ),
        Process("a maximum that is far", (Setting(2, 1000, 5000),), (Setting(2, 1000, 5000), Setting(1, 1000, 5000))),
        Process(
            "a maximum that bursts reach",
            (Setting(2, 1000, 4000),),
            (Setting(2, 1000, 4000), Setting(1, 1000, 4000)),
            arrivals=peaks(120, 12, 3),
            seconds=2400,
        ),
        Process(
            "the same without lag",
            (Setting(2, 1000, 4000),),
            (Setting(2, 1000, 4000),),
            arrivals=peaks(120, 12, 3),
            lag=False,
            seconds=2400,
        ),
        Process("beyond its maximum", (Setting(0, 700, 1000),), (), fixed=1.9, per_row=1e-4),
        Process("beyond its maximum, without lag", (Setting(0, 700, 1000),), (), fixed=1.9, per_row=1e-4, lag=False),
        Process("beyond its capacity", (Setting(0, 1100),), (), fixed=0.3, per_row=1e-3),
        *(
            Process(
                f"one after the other, {share:.0%} busy with rows",
                (Setting(0, 500), Setting(0, 800)),
                (Setting(0, 5000 * share),),
                noise=0.15,
            )
            for share in (0.3, 0.6, 0.8, 0.9)
        ),
        *(Process(f"{name}, once at 2 s", one, (*one, Setting(10, 1000)), **how) for name, how in SERVICES.items()),
        Process("few rows", (Setting(1, 2),), (Setting(1, 2), Setting(0, 2), Setting(10, 2)), seconds=1800),
        Process(
            "long micro-batches",
            (Setting(60, 200),),
            (Setting(60, 200), Setting(120, 200)),
            fixed=8.0,
            per_row=1e-3,
            seconds=7200,
        ),
        Process(
            "24 ms micro-batches",
            (Setting(0, 100), Setting(1, 100)),
            (Setting(0.5, 100), Setting(0.25, 200)),
            fixed=0.16,
            per_row=1e-5,
            seconds=600,
        ),
    ]
    return found


# --- truth and prediction ---------------------------------------------------------------------------------------------


class Planner:
    """The planner, in a process of its own: a question a line."""

    def __init__(self) -> None:
        asked = [sys.executable, str(Path(__file__).with_name("told.py"))]
        self.process = subprocess.Popen(asked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **question: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


def figures(latencies: Real) -> dict[str, float]:
    quantiles = np.quantile(latencies, [0.5, 0.95, 0.99]).tolist()
    return {"mean": float(latencies.mean()), **dict(zip(FIGURES[1:], quantiles, strict=True))}


def truth(process: Process, setting: Setting, random: Random, runs: int) -> list[dict[str, float]]:
    """The figures of so many true runs, and last those of all together."""
    arrivals = process.asked_arrivals or process.arrivals
    found = [run(process, setting, random, arrivals, warm=True).latencies() for _ in range(runs)]
    return [*map(figures, found), figures(np.concatenate(found))]


def judged(
    process: Process, planner: Planner, number: int, recordings: int, runs: int, where: Path, *, tune: bool
) -> list[dict[str, Any]]:
    """Of each recording what is predicted for each setting and what `tune` promises, beside what is true."""
    rows = list[dict[str, Any]]()
    random = np.random.default_rng([7, number])
    true = {setting: truth(process, setting, random, runs) for setting in process.asked}
    usual = truth(process, process.recorded[-1], random, runs)[-1]["p95"] if process.asked else math.inf
    for again in range(recordings):
        files = []
        for place, setting in enumerate(process.recorded):
            file = where / f"{number}-{again}-{place}.jsonl"
            recorded = run(process, setting, random, process.arrivals, warm=False)
            file.write_text("\n".join(progress(process, recorded, place)))
            files.append(str(file))
        rows += [predicted(setting, true[setting], planner, files) for setting in process.asked]
        targets = [factor * (usual if process.asked else 10.0) for factor in TARGETS if tune]
        rows += [promised(process, target, usual, planner, files, random, runs) for target in targets]
    return [{"process": process.name, **row} for row in rows]


def predicted(setting: Setting, true: Sequence[dict[str, float]], planner: Planner, files: Sequence[str]) -> dict[str, Any]:
    """What is predicted for a setting, and how many of the true runs lie in its bands."""
    answer = planner.ask(files=files, trigger=setting.trigger, rate=setting.rate)
    row = {**answer, "trigger": setting.trigger, "rate": setting.rate}
    for name in FIGURES:
        *values, row[f"true {name}"] = [one[name] for one in true]
        if "error" not in answer:
            low, high = answer["bands"][name]
            row[f"covered {name}"] = float(np.mean([low <= value <= high for value in values]))
    return row


def promised(
    process: Process, target: float, usual: float, planner: Planner, files: Sequence[str], random: Random, runs: int
) -> dict[str, Any]:
    """What `tune` says of a target, and the share of true runs that meet it at the trigger that it chooses."""
    said = planner.ask(files=files, p95=target)
    row = {**said, "target": target, "today": usual}
    if said.get("trigger") is not None and process.asked:
        chosen = replace(process.recorded[-1], trigger=said["trigger"])
        found = truth(process, chosen, random, runs)[:-1]
        row["meets"] = float(np.mean([one["p95"] <= target for one in found]))
    return row


def table(rows: Sequence[dict[str, Any]]) -> str:
    """For each process: the errors of settings that are identified, the coverage of each, and what `tune` promised falsely."""
    lines = [
        "| process | settings | error of p95 | worst | band covers p95 of each setting | p99 | tune |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(row["process"] for row in rows):
        own = [row for row in rows if row["process"] == name]
        asked = [row for row in own if "target" not in row]
        known = [row for row in asked if row.get("identified") and "error" not in row]
        off = [abs(row["p95"] / row["true p95"] - 1) for row in known] or [math.nan]
        covered = by_setting([row for row in asked if "error" not in row], "covered p95")
        further = by_setting([row for row in asked if "error" not in row], "covered p99")
        said = [row for row in own if "target" in row]
        false = [row for row in said if contradicted(row)]
        lines.append(
            f"| {name} | {len(known)} of {len(asked)} | {np.median(off):.1%} | {max(off):.1%} "
            f"| {' '.join(f'{share:.0%}' for share in covered)} | {' '.join(f'{share:.0%}' for share in further)} "
            f"| {len(false)} of {len(said)} false{''.join(': ' + row['headline'] for row in false[:1])} |"
        )
    known = [row for row in rows if row.get("identified") and "error" not in row]
    if not known:
        return "\n".join(lines)
    errors = np.abs([row["p95"] / row["true p95"] - 1 for row in known])
    lines += [
        "",
        f"{len(known)} settings that are identified: error of the p95 {np.median(errors):.1%} in the median, "
        f"{np.quantile(errors, 0.9):.1%} at the 90th percentile, {errors.max():.1%} at worst; bands of 90% cover "
        f"{np.mean([row['covered p95'] for row in known]):.0%}.",
    ]
    return "\n".join(lines)


def by_setting(rows: Sequence[dict[str, Any]], what: str) -> list[float]:
    settings = dict.fromkeys((row["trigger"], row["rate"]) for row in rows)
    return [float(np.mean([row[what] for row in rows if (row["trigger"], row["rate"]) == one])) for one in settings]


def contradicted(row: dict[str, Any]) -> bool:
    """Whether a headline promises what true runs deny, or denies what the recorded setting has."""
    if "cannot be met" in row["headline"]:
        return bool(row["today"] < 0.9 * row["target"])
    promised = "can be met" in row["headline"] and "not known" not in row["headline"]
    return promised and row.get("meets", 0.0) < 0.8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="processes whose name has this in it")
    parser.add_argument("--points", action="store_true", help="leave out what tune promises, which takes longest")
    parser.add_argument("--recordings", type=int, default=3)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    planner, rows = Planner(), list[dict[str, Any]]()
    chosen = [(number, one) for number, one in enumerate(processes()) if given.only in one.name]
    with tempfile.TemporaryDirectory() as directory:
        for done, (number, process) in enumerate(chosen):
            print(f"\r{done}/{len(chosen)} {process.name:<50}", end="", file=sys.stderr, flush=True)
            rows += judged(process, planner, number, given.recordings, given.runs, Path(directory), tune=not given.points)
            if given.json is not None:
                given.json.write_text("\n".join(map(json.dumps, rows)))
    print("\r" + " " * 70 + "\r", end="", file=sys.stderr)
    text = table(rows)
    print(text)
    if given.output is not None:
        given.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
