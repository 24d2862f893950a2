"""Several applications on one driver: how much slower does each become, and was that predicted from recordings of each alone?

    python benchmarks/packing.py [--directory build/packing] [--seconds 80] [--evaluate]

Each of three applications (`apps/keyed.py` at three rates and trigger intervals) runs alone on a warm driver of two cores, then
each pair, then all; a session, a thread and a fair pool each. The p95 of those that share is predicted from the recordings of
those alone. A run is a directory with `result.json`, and one that has it is not run again.
"""

import argparse
import json
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from typing import Any

from plan import WARM_UP_S, measured

from penstock.app.loader import load_app
from penstock.engine.running.execution import run
from penstock.engine.running.options import RunOptions
from penstock.engine.session.spark import start_session
from penstock.planner import observe
from penstock.planner.calibration import calibrate
from penstock.planner.interference import load_of, shared

HERE = Path(__file__).parent
CORES = 2
AGEING_S = 90.0
APPLICATIONS = {"orders": (700, 2.0), "clicks": (400, 2.0), "sensors": (500, 3.0)}
"""Events a second and the trigger interval of each."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=Path("build/packing"))
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument("--evaluate", action="store_true")
    options = parser.parse_args()
    place = options.directory.absolute()
    place.mkdir(parents=True, exist_ok=True)
    if not options.evaluate:
        measure(place, options.seconds)
    print("\n".join(table(place)))


def groups() -> list[tuple[str, ...]]:
    """Who shares a driver: each alone, each pair, all."""
    return [group for size in range(1, len(APPLICATIONS) + 1) for group in combinations(APPLICATIONS, size)]


def measure(place: Path, seconds: float) -> None:
    with (place / "spark.log").open("ab") as log:
        spark = start_session("packing", f"local[{CORES}]", log, {"spark.scheduler.mode": "FAIR"})
        try:
            aged = False
            for group in groups():
                own = place / "-".join(group)
                if (own / "result.json").exists():
                    continue
                if not aged:
                    together(spark, place / "ageing", tuple(APPLICATIONS), AGEING_S)
                    aged = True
                shutil.rmtree(own, ignore_errors=True)
                together(spark, own, group, WARM_UP_S + seconds)
                found = {name: measured(own / name) for name in group}
                (own / "result.json").write_text(json.dumps(found, indent=1) + "\n")
                print(time.strftime("%T"), {name: round(one["p95"], 2) for name, one in found.items()}, flush=True)
        finally:
            spark.stop()


def together(spark: Any, place: Path, names: Sequence[str], seconds: float) -> None:
    """Run applications at the same time."""
    loaded = {name: load_app(HERE / "apps" / "keyed.py") for name in names}  # which is not for several threads at once

    def one(name: str) -> None:
        (rate, trigger), (app, reference) = APPLICATIONS[name], loaded[name]
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        source = f"generator:poisson?rate={rate}&seed={len(name)}"
        options = RunOptions(
            name=name,
            runs=place,
            sources={"Readings": source},
            trigger=trigger,
            duration=seconds,
            quiet=True,
            partitions=CORES,
            fresh=True,
            spark=spark.newSession(),
        )
        run(app, options, application=reference)

    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(one, names))


def table(place: Path) -> list[str]:
    """A line for each application in each company."""
    loads = {name: load_of(name, calibrate(observe(str(place / name / name)))) for name in APPLICATIONS}
    lines = [
        "| | rate, trigger | with | p95 measured (s) | p95 predicted (s) | error |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for group in groups():
        result = place / "-".join(group) / "result.json"
        if not result.exists():
            continue
        found, expected = json.loads(result.read_text()), shared([loads[name] for name in group], CORES)
        for name in group:
            seen, said = found[name]["p95"], expected[name]["p95"]
            others = ", ".join(one for one in group if one != name) or "alone"
            rate, trigger = APPLICATIONS[name]
            lines.append(f"| {name} | {rate}/s, {trigger:g} s | {others} | {seen:.2f} | {said:.2f} | {said / seen - 1:+.0%} |")
    return lines


if __name__ == "__main__":
    main()
