"""Does a plan pay, does adapting, and does placement matter? Measured beside what people set by hand.

    python benchmarks/plan.py pays [--directory build/plan] [--p95 3]
    python benchmarks/plan.py adapts [--directory build/plan] [--p95 3] [--day 1800]
    python benchmarks/plan.py places [--directory build/plan]

`pays`: the keyed application of `apps/keyed.py` at a steady rate. A plan is made from three probes; then the planned trigger,
Spark's default, fixed intervals and a grid of intervals are measured. `adapts`: a day of traffic (a slow wave, a step of four
times the rate, a burst), compressed into `--day` seconds, under `--adapt`, fixed intervals, and a controller that keeps the
utilisation at 80%, in the manner of DS2. `places`: the eight elements of `apps/placement.py` in one query, in one each, by
round robin, by `penstock.allocation`, and as a plan would have them: how long the worst path waits, and in which order three
models expected it. Each run is a directory with `result.json`, and one that has it is not run again;
the tables are printed at the end, or at once with `--evaluate`.
"""

import argparse
import json
import math
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from penstock.allocation import allocate, streaming_cost
from penstock.app.loader import load_app
from penstock.engine.running.execution import run
from penstock.engine.running.ledger import Ledger
from penstock.engine.running.options import RunOptions
from penstock.engine.running.steering import Change, Steering
from penstock.engine.session.spark import start_session
from penstock.planner import Target, make_plan, observe
from penstock.planner.adapting import Adapting
from penstock.planner.calibration import calibrate
from penstock.planner.grouping import Elements, groupings
from penstock.runs.batches import BatchRecord, records_in
from penstock.runs.decisions import decisions
from penstock.runs.files import ledger_of
from penstock.runs.manifest import manifest_of
from penstock.runs.report import report_of_run
from penstock.runtime.histogram import Histogram

HERE = Path(__file__).parent
AGEING_S, WARM_UP_S, PROBE_S, MEASURED_S = 120.0, 10.0, 40.0, 80.0
WINDOW_S, EVERY_S = 60.0, 10.0
PROBES = (0.0, 3.0)
"""The third is where these two would have the plan."""
FIXED = (0.0, 1.0, 5.0)
RATE = 1200
PLACED_RATE, PLACED_TRIGGER = 600, 2.0


class Proportional:
    """A controller in the manner of DS2: from the true rate of the last micro-batches, the interval of which they fill 80%."""

    def __init__(self, trigger: float) -> None:
        self._trigger, self._last = trigger, time.time()
        self._durations: list[float] = []

    def progressed(self, progress: dict[str, Any]) -> None:
        if progress.get("numInputRows"):
            self._durations.append(progress["durationMs"]["triggerExecution"] / 1e3)

    def committed(self, group: str, record: BatchRecord) -> None:
        """Nothing to keep."""

    def wanted(self) -> Change | None:
        if time.time() - self._last < 20 or len(self._durations) < 5:
            return None
        self._last = time.time()
        wanted = round(float(np.median(self._durations[-5:])) / 0.8, 2)
        return Change(wanted, "80%") if abs(wanted / max(self._trigger, 0.01) - 1) > 0.1 else None

    def changed(self, change: Change, *, restarted: bool) -> None:
        self._trigger = change.trigger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=list(PARTS))
    parser.add_argument("--directory", type=Path, default=Path("build/plan"))
    parser.add_argument("--p95", type=float, default=3.0)
    parser.add_argument("--day", type=float, default=1800.0)
    parser.add_argument("--evaluate", action="store_true")
    options = parser.parse_args()
    place = options.directory.absolute() / options.part
    place.mkdir(parents=True, exist_ok=True)
    if not options.evaluate:
        with (place / "spark.log").open("ab") as log:
            spark = start_session("plan", "local[2]", log, {})
            try:
                PARTS[options.part](Bench(spark, place), options)
            finally:
                spark.stop()
    print("\n".join(paths(place) if options.part == "places" else table(place, options.p95)))


class Bench:
    """Runs in one warm session, each a directory."""

    def __init__(self, spark: Any, place: Path) -> None:
        self._spark, self.place, self._aged = spark, place, False

    def recording(self, name: str) -> Path:
        return self.place / name / "run"

    def run(
        self,
        name: str,
        source: str,
        seconds: float,
        trigger: float,
        steering: Steering | None = None,
        kind: str = "",
        app: str = "keyed",
        groups: Mapping[str, str] | None = None,
    ) -> None:
        place = self.place / name
        if (place / "result.json").exists():
            return
        if not self._aged:
            self._aged = True
            self._once(self.place / "ageing", source, AGEING_S, 0.0, None, app, {})
        shutil.rmtree(place, ignore_errors=True)
        self._once(place, source, WARM_UP_S + seconds, trigger, steering, app, groups or {})
        judge = path_latencies if app == "placement" else measured
        found = {"trigger": trigger, "kind": kind or name, **judge(place / "run")}
        (place / "result.json").write_text(json.dumps(found, indent=1) + "\n")
        print(time.strftime("%T"), name, {key: value for key, value in found.items() if key != "windows"}, flush=True)

    def _once(
        self,
        place: Path,
        source: str,
        seconds: float,
        trigger: float,
        steering: Steering | None,
        which: str,
        groups: Mapping[str, str],
    ) -> None:
        app, reference = load_app(HERE / "apps" / f"{which}.py")
        options = RunOptions(
            name="run",
            runs=place,
            sources={"Readings": source},
            trigger=trigger,
            duration=seconds,
            spark=self._spark,
            quiet=True,
            partitions=2,
            fresh=True,
            groups=groups,
        )
        run(app, options, application=reference, steering=steering)


def pays(bench: Bench, options: argparse.Namespace) -> None:
    source = f"generator:poisson?rate={RATE}&seed=3"
    target, recordings = Target("p95", options.p95), list[str]()
    for trigger in (*PROBES, None):
        trigger = make_plan(observe(*recordings), target).plan.trigger_s if trigger is None else trigger
        bench.run(f"probe-{trigger:g}", source, PROBE_S, trigger, kind="probe")
        recordings.append(str(bench.recording(f"probe-{trigger:g}")))
    plan = make_plan(observe(*recordings), target, recordings=recordings).plan
    plan.write(bench.place / "plan.json")
    settings = {f"fixed-{trigger:g}": trigger for trigger in FIXED}
    settings |= {"third": options.p95 / 3, "plan": plan.trigger_s}
    settings |= {f"grid-{trigger:g}": trigger for trigger in (1.5, 2.0, 2.5)}
    order = np.random.default_rng(4).permutation(len(settings))
    for name in [list(settings)[place] for place in order]:
        bench.run(name, source, MEASURED_S, settings[name])


def adapts(bench: Bench, options: argparse.Namespace) -> None:
    source = f"generator:recorded?times={day(bench.place, options.day)}"
    target = Target("p95", options.p95)
    bench.run("adapt", source, options.day, 1.0, Adapting(bench.recording("adapt"), target, 1.0))
    bench.run("proportional", source, options.day, 1.0, Proportional(1.0))
    for trigger in (2.0, 1.0, 0.0):
        bench.run(f"fixed-{trigger:g}", source, options.day, trigger)


def places(bench: Bench, options: argparse.Namespace) -> None:
    source, app = f"generator:poisson?rate={PLACED_RATE}&seed=3", "placement"
    for name, trigger in (("probe-0", 0.0), ("together", PLACED_TRIGGER)):
        bench.run(name, source, MEASURED_S, trigger, app=app)
    elements = observed(bench.place)
    names = list(elements.feeders)
    found = {
        "one each": {name: f"query-{number}" for number, name in enumerate(names)},
        "round robin over 3": {name: f"query-{number % 3}" for number, name in enumerate(names)},
    }
    for sharing in ("count", "load"):
        for resources in (2, 3):
            chosen = allocate(elements.graph(), resources=resources, sharing=sharing)
            found[f"allocated by {sharing} to {resources}"] = {
                name: f"query-{place}" for name, place in chosen.assignment.items()
            }
    apart = [groups for groups in groupings(names, 3) if len(set(groups.values())) > 1 and elements.is_possible(groups)]
    placed = sorted((elements.placed(groups) for groups in apart), key=lambda one: one.worst)
    found["best of several queries, by micro-batches"] = dict(placed[0].groups)
    found["median of all, by micro-batches"] = dict(placed[len(placed) // 2].groups)
    for name, groups in found.items():
        if elements.is_possible(groups):
            bench.run(name.replace(" ", "-").replace(",", ""), source, MEASURED_S, PLACED_TRIGGER, app=app, groups=groups)
        else:
            print(name, "cannot be: queries would wait for each other", flush=True)


def observed(place: Path) -> Elements:
    """The elements as two runs in one query show them."""
    observation = observe(*(str(place / name / "run") for name in ("probe-0", "together")))
    calibration = calibrate(observation)
    durations = calibration.queries[0].durations
    chosen = calibration.predict(replace(calibration.today, trigger=PLACED_TRIGGER), replicates=0)
    elements = Elements.of(observation, chosen, durations.fixed, durations.per_row)
    assert elements is not None
    return elements


def path_latencies(recording: Path) -> dict[str, Any]:
    """By sink, the mean wait of its results, seconds: that of the results of the query that makes them."""
    report, manifest = report_of_run(recording), manifest_of(recording)
    assert report is not None
    makers = {stream: one.name for one in manifest.topology.elements for stream in one.emits}  # of which each has one here
    found = {}
    for sink in manifest.topology.sinks:
        records = list(records_in(ledger_of(recording, manifest.groups[makers[sink.stream]])))
        began = records[0].committed_us / 1e6 + WARM_UP_S
        found[sink.name] = (merged(one for one in records if one.committed_us / 1e6 >= began).mean or 0.0) / 1e3
    groups, counts = manifest.layout.grouping, report.counts
    return {"groups": groups, "paths": found, "lost": counts.lost, "duplicated": counts.duplicated}


def paths(place: Path) -> list[str]:
    """A line a grouping, in the order of what was measured, and how well three models knew that order."""
    elements, graph = observed(place), observed(place).graph()
    names = list(elements.feeders)
    rows = []
    for path in sorted(place.glob("*/result.json")):
        one = json.loads(path.read_text())
        if path.parent.name == "probe-0":
            continue
        groups = {name: one["groups"].get(name, "main") for name in names}
        costs = [streaming_cost(graph, groups, sharing=sharing) for sharing in ("count", "load")]
        placed = elements.placed(groups)
        rows.append((path.parent.name, placed.queries, one["paths"], placed.worst, *costs))
    rows.sort(key=lambda row: max(row[2].values()))
    lines = [
        "| grouping | queries | worst path (s) | each sink (s) | by micro-batches (s) | by count | by load |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, queries, waits, worst, count, load in rows:
        each = ", ".join(f"{sink} {wait:.2f}" for sink, wait in waits.items())
        lines.append(f"| {name} | {queries} | {max(waits.values()):.2f} | {each} | {worst:.2f} | {count:.2f} | {load:.2f} |")
    truth = [max(row[2].values()) for row in rows]
    for place_of, name in ((3, "micro-batches"), (4, "the paper's count"), (5, "load")):
        tau = kendalltau(truth, [row[place_of] for row in rows])
        lines.append(f"Kendall's tau between measured and expected order, by {name}: {tau.statistic:.2f}.")
    return lines


def day(place: Path, seconds: float) -> Path:
    """A day of traffic: a slow wave, a step of four times the rate, and a burst."""
    path = place / f"day-{seconds:g}.txt"
    if not path.exists():
        random = np.random.default_rng(11)
        cells = np.arange(0, seconds + 60, 0.1)
        rates = 600 * (1 + 0.3 * np.sin(2 * math.pi * cells / seconds))
        rates[(cells > 0.4 * seconds) & (cells < 0.65 * seconds)] *= 4
        rates[(cells > 0.85 * seconds) & (cells < 0.87 * seconds)] *= 3
        counts = random.poisson(rates * 0.1)
        np.savetxt(path, np.sort(np.repeat(cells, counts) + random.random(int(counts.sum())) * 0.1), "%.6f")
    return path


def measured(recording: Path) -> dict[str, Any]:
    """Of a run after its warm-up: micro-batches, latency, and the p95 of each minute, one every ten seconds."""
    ledger = Ledger(recording / "batches-main.jsonl", "main", ())
    records = list(ledger.records())
    ledger.close()
    began = records[0].committed_us / 1e6 + WARM_UP_S
    kept = [record for record in records if record.committed_us / 1e6 >= began]
    ended = kept[-1].committed_us / 1e6
    windows = [
        merged(record for record in kept if at <= record.committed_us / 1e6 < at + WINDOW_S).quantile(0.95)
        for at in np.arange(began, max(ended - WINDOW_S, began) + 0.1, EVERY_S)
    ]
    report = json.loads((recording / "report.json").read_text())["counts"]
    progress = [json.loads(line) for line in (recording / "progress.jsonl").read_text().splitlines()]
    busy = sum(
        one["durationMs"]["triggerExecution"] / 1e3
        for one in progress
        if one.get("numInputRows") and datetime.fromisoformat(one["timestamp"]).timestamp() >= began
    )
    whole = merged(kept)
    return {
        "p95": whole.quantile(0.95) / 1e3,
        "mean": whole.mean / 1e3,
        "batches_per_minute": 60 * len(kept) / (ended - began),
        "windows": [value / 1e3 for value in windows if value is not None],
        "busy": busy / (ended - began),
        "lost": report["lost"],
        "duplicated": report["duplicated"],
        "changes": sum(one.kind in ("apply", "revert") for one in decisions(recording)),
    }


def merged(records: Any) -> Histogram:
    found = Histogram()
    for record in records:
        found.merge(record.latency_ms)
    return found


def table(place: Path, bound: float) -> list[str]:
    """A line a run, in the order of what it costs."""
    found = {path.parent.name: json.loads(path.read_text()) for path in place.glob("*/result.json")}
    lines = [
        f"| | trigger (s) | micro-batches a minute | minutes with a p95 within {bound:g} s | p95 (s) | mean (s) | busy | "
        "changes | lost, doubled |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, one in sorted(found.items(), key=lambda item: item[1]["batches_per_minute"]):
        met = np.mean([value <= bound for value in one["windows"]])
        lines.append(
            f"| {name} | {one['trigger']:g} | {one['batches_per_minute']:.1f} | {met:.0%} | {one['p95']:.2f} | "
            f"{one['mean']:.2f} | {one['busy']:.0%} | {one['changes']} | {one['lost']}, {one['duplicated']} |"
        )
    return lines


PARTS = {"pays": pays, "adapts": adapts, "places": places}


if __name__ == "__main__":
    main()
