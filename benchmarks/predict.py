"""Does the model tell the truth? Calibrates on three settings of a query, predicts others, and measures them.

    python benchmarks/predict.py [--directory build/predict] [--queries keyed,chain] [--evaluate] [--output FILE.md]

Four queries (see campaign.py); every setting is a directory with its recording and its measured latency, so that an
interrupted benchmark goes on where it was. `--evaluate` runs nothing and only makes the table of what is there.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent

TRIGGERS = {
    "stateless": (0, 0.75, 1, 2), "aggregation": (0, 1, 1.5, 3), "keyed": (0, 1, 1.5, 3), "chain": (0, 2, 3, 5),
}  # fmt: skip
RATES = {
    "stateless": (1000, 3000, 6000), "aggregation": (500, 1500, 3000), "keyed": (500, 1500, 3000),
    "chain": (300, 800, 1500),
}  # fmt: skip
CALIBRATIONS = ("calibration-1", "calibration-2", "calibration-3")


def settings_of(query: str) -> list[dict[str, Any]]:
    """What is run: three settings to calibrate on, fifteen to predict, and two of those again, for the noise floor."""
    zero, short, middle, long = TRIGGERS[query]
    low, usual, high = RATES[query]

    def setting(number: str, trigger: float, rate: float, arrivals: str = "poisson", **gate: float) -> dict[str, Any]:
        return {
            "id": number,
            "trigger": trigger,
            "rate": rate,
            "arrivals": arrivals,
            "seed": len(number) + rate,
            **gate,
        }

    calibrations = [
        setting("calibration-1", middle, usual), setting("calibration-2", zero, low),
        setting("calibration-3", long, high),
    ]  # fmt: skip
    predicted = [
        setting("p01", zero, usual), setting("p02", zero, high), setting("p03", short, low),
        setting("p04", short, usual), setting("p05", short, high), setting("p06", middle, high),
        setting("p07", long, low), setting("p08", long, usual), setting("p09", (middle + long) / 2, usual),
        setting("p10", zero, usual, "bursty"), setting("p11", short, usual, "bursty"),
        setting("p12", zero, usual, "recorded"), setting("p13", middle, usual, "recorded"),
        setting("p14", long, usual, "recorded"),
        setting("p15", zero, usual, min_rows=round(usual * (1.3 + middle)), max_delay=30.0),
    ]  # fmt: skip
    again = [{**predicted[3], "id": "p04-again", "seed": 77}, {**predicted[0], "id": "p01-again", "seed": 78}]
    order = np.random.default_rng(5).permutation(len(calibrations) + len(predicted))
    shuffled = [[*calibrations, *predicted][place] for place in order]  # whatever drifts is nobody's advantage
    return [*shuffled, *again]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=HERE.parent / "build" / "predict")
    parser.add_argument("--queries", default=",".join(TRIGGERS))
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


if __name__ == "__main__":
    main()
