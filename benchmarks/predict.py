"""Does the model tell the truth? Calibrates on three settings of a query, predicts others, and measures them.

    python benchmarks/predict.py [--directory build/predict] [--queries keyed,chain] [--evaluate] [--output FILE.md]

Eleven queries (see queries.py); every setting is a directory with its recording and its measured latency, so that an
interrupted benchmark goes on where it was. `--evaluate` runs nothing and only makes the table of what is there.
"""

import argparse
import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from campaign import two_rates
from queries import QUERIES

from penstock.planner import Calibration, Observation, Prediction, Setting, calibrate, observe

HERE = Path(__file__).parent


FOLLOWED_S, FAR = 14.0, 0.2
CALIBRATIONS = ("calibration-1", "calibration-2", "calibration-3")


def settings_of(name: str) -> list[dict[str, Any]]:
    """What is run: three settings to calibrate on, twenty to predict, and two of those again, for the noise floor."""
    query = QUERIES[name]
    zero, short, middle, long = query.triggers
    low, usual, high = query.rates
    seeds = itertools.count(11)

    def setting(number: str, trigger: float, rate: float, arrivals: str = "poisson", **gate: float) -> dict[str, Any]:
        return {"id": number, "trigger": trigger, "rate": rate, "arrivals": arrivals, "seed": next(seeds), **gate}

    calibrations = [
        setting("calibration-1", middle, usual),
        setting("calibration-2", zero, low),
        setting("calibration-3", long, high),
    ]
    asked = [
        (zero, usual),
        (zero, high),
        (short, low),
        (short, usual),
        (short, high),
        (middle, low),
        (middle, high),
        (long, low),
        (long, usual),
        ((middle + long) / 2, usual),
        (zero, (usual + high) // 2),
        (short, (low + usual) // 2),
        (middle, (usual + high) // 2),
        (long, (low + usual) // 2),
    ]
    further: list[tuple[float, float, str, dict[str, float]]] = [
        (zero, usual, "bursty", {}),
        (short, usual, "bursty", {}),
        (zero, usual, "recorded", {}),
        (middle, usual, "recorded", {}),
        (long, usual, "recorded", {}),
        (zero, usual, "poisson", {"min_rows": round(usual * (1.3 + middle)), "max_delay": 30.0}),
    ]
    if not query.scheduled or name == "join":  # whose two sides would each have a gate of its own
        further = [(trigger, rate, "poisson", {}) for trigger in (short + 0.1, middle + 0.1) for rate in query.rates]
    predicted = [setting(f"p{number:02}", trigger, rate) for number, (trigger, rate) in enumerate(asked, 1)]
    for number, (trigger, rate, arrivals, gate) in enumerate(further, len(asked) + 1):
        predicted.append(setting(f"p{number:02}", trigger, rate, arrivals, **gate))
    again = [{**predicted[3], "id": "p04-again", "seed": 77}, {**predicted[0], "id": "p01-again", "seed": 78}]
    order = np.random.default_rng(5).permutation(len(calibrations) + len(predicted))
    shuffled = [[*calibrations, *predicted][place] for place in order]  # whatever drifts is nobody's advantage
    return [*shuffled, *again]


# --- the table ------------------------------------------------------------------------------------------------------

FIGURES = ("mean", "p95", "p99")
HEAD = (
    "| setting | arrivals | utilisation | mean: measured, predicted (90% band) | p95 | p99 | interval/2 + batch | trigger/3 "
    "| DS2 | streaminglens |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def evaluated(directory: Path, queries: list[str]) -> list[str]:
    """The tables, and the figures that the bars are about."""
    lines = list[str]()
    plain, followed = Record(), Record()
    for query in queries:
        truths = {path.parent.name: json.loads(path.read_text()) for path in (directory / query).glob("*/truth.json")}
        if not set(CALIBRATIONS) <= set(truths):
            lines.append(f"{query}: its calibrations are not all there yet.\n")
            continue
        calibration = calibrate(observe(*(recording(directory / query / name) for name in CALIBRATIONS)))
        lines += [f"### {query}", "", HEAD]
        for name, truth in sorted(truths.items()):
            if name == "warm-up" or name in CALIBRATIONS:
                continue
            found = calibration.predict(asked(query, truth["setting"]))
            off = [getattr(found, figure) / truth[figure] - 1 for figure in FIGURES]
            bands = [found.band(figure) for figure in FIGURES]
            inside = [low <= truth[figure] <= high for figure, (low, high) in zip(FIGURES, bands, strict=True)]
            if not name.endswith("-again"):
                plain.add(truth, found)
                followed.add(
                    truth, calibration.following(beginning(directory / query / name)).predict(asked(query, truth["setting"]))
                )
            lines.append(row(calibration, truth, found, off, inside))
        lines += ["", floor(truths), ""]
    if plain.errors:
        lines += [f"{len(plain.errors)} settings were predicted from three others of their query.", "", *plain.table(), ""]
        said = f"The same, each prediction following the first {FOLLOWED_S:g} s of its run, half of which the latency has."
        lines += [said, "", *followed.table()]
    return lines


class Record:
    """How far predictions were off, and whether within their bands."""

    def __init__(self) -> None:
        self.errors: list[list[float]] = []
        self._inside: list[list[bool]] = []

    def add(self, truth: dict[str, Any], found: Prediction) -> None:
        bands = [found.band(figure) for figure in FIGURES]
        self.errors.append([abs(getattr(found, figure) / truth[figure] - 1) for figure in FIGURES])
        self._inside.append([low <= truth[figure] <= high for figure, (low, high) in zip(FIGURES, bands, strict=True)])

    def table(self) -> list[str]:
        errors, inside = np.array(self.errors), np.array(self._inside).mean(axis=0)
        head = ["| error of | median | 90th percentile | worst | within the 90% band |", "| --- | --- | --- | --- | --- |"]
        off = int(((errors > FAR) & ~np.array(self._inside)).sum())
        far = ["", f"{off} of {errors.size} figures are off by over {FAR:.0%} and outside their band."]
        rows = [
            f"| {figure} | {np.median(values):.1%} | {np.quantile(values, 0.9):.1%} | {values.max():.1%} | {share:.0%} |"
            for figure, values, share in zip(FIGURES, errors.T, inside.tolist(), strict=True)
        ]
        return head + rows + far


def beginning(place: Path) -> Observation:
    """What is known of a run in its first seconds."""
    observed = observe(recording(place))
    queries = []
    for query in observed.queries:
        series = query.cold[0]
        early = max(2, int((series.ended <= series.visible[0] + FOLLOWED_S).sum()))
        queries.append(replace(query, cold=(series[:early],)))
    return replace(observed, queries=tuple(queries))


def recording(place: Path) -> Path:
    """What the planner is given of a setting: the directory of Penstock's run, or the listener's lines."""
    return place / "run" if (place / "run").exists() else place / "progress.jsonl"


def asked(name: str, setting: dict[str, Any]) -> Setting:
    """The setting; of the arrivals, what kind they are, and nothing where they come in the pieces that were recorded."""
    arrivals: Any = {"poisson": "poisson", "bursty": 10.0}.get(setting["arrivals"])
    if not QUERIES[name].scheduled:
        arrivals = None
    elif arrivals is None:
        arrivals = np.loadtxt(two_rates(), max_rows=60_000).tolist()
    gate = {option: setting[option] for option in ("min_rows", "max_delay", "max_rows") if option in setting}
    return Setting(trigger=setting["trigger"], rate=setting["rate"], arrivals=arrivals, **gate)


def row(calibration: Calibration, truth: dict[str, Any], found: Prediction, off: list[float], inside: list[bool]) -> str:
    """One setting, with what others would have said."""
    setting = truth["setting"]
    cells = []
    for figure, error, within in zip(FIGURES, off, inside, strict=True):
        low, high = found.band(figure)
        mark = "" if within else " **out**"
        cells.append(f"{truth[figure]:.2f}, {getattr(found, figure):.2f} ({low:.2f} to {high:.2f}) {error:+.1%}{mark}")
    gate = f", at least {setting['min_rows']} rows" if "min_rows" in setting else ""
    trigger, said = setting["trigger"], rule(calibration, setting)
    busy = batch(calibration, setting) / trigger if trigger else 1.0
    lens = "overprovisioned" if busy < 0.3 else "optimum" if busy < 0.7 else "underprovisioned"
    third = f"{3 * trigger:g}" if trigger else "none"
    enough = "enough" if found.throughput_limit > setting["rate"] else "not enough"
    first = f"{setting['id']}: {trigger:g} s, {setting['rate']:,}/s{gate}"
    return (
        f"| {first} | {setting['arrivals']} | {found.utilisation:.0%} | {' | '.join(cells)} | {said:.2f} "
        f"{said / truth['mean'] - 1:+.0%} | {third} | {enough} | {lens} |"
    )


def batch(calibration: Calibration, setting: dict[str, Any]) -> float:
    """The duration of a micro-batch as a rule of thumb knows it: the median of what was recorded."""
    return sum(
        float(np.median(np.concatenate([series.durations for series in query.observed.series])))
        for query in calibration.queries
    )


def rule(calibration: Calibration, setting: dict[str, Any]) -> float:
    """The mean latency by interval/2 + batch time; back to back the interval is the batch time."""
    lasting = batch(calibration, setting)
    return max(setting["trigger"], lasting) / 2 + lasting


def floor(truths: dict[str, Any]) -> str:
    """The same settings measured twice."""
    pairs = [(truths[name.removesuffix("-again")], truths[name]) for name in truths if name.endswith("-again")]
    if not pairs:
        return "No setting was measured twice."
    apart = [
        f"{figure} " + " and ".join(f"{abs(two[figure] / one[figure] - 1):.1%}" for one, two in pairs) for figure in FIGURES
    ]
    return f"The same setting measured twice, some minutes apart: {', '.join(apart)} apart."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=HERE.parent / "build" / "predict")
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    for query in options.queries.split(","):
        if options.evaluate:
            break
        plan = options.directory / f"{query}.json"
        plan.write_text(json.dumps(settings_of(query), indent=1))
        command = [sys.executable, str(HERE / "campaign.py"), query, str(plan), str(options.directory / query)]
        subprocess.run(command, check=True)
    text = "\n".join(evaluated(options.directory, options.queries.split(",")))
    print(text)
    if options.output:
        options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
