"""What the planner says of recordings: a question as JSON a line of standard input, an answer a line (see truth.py)."""

import json
import sys
from functools import lru_cache

from penstock.errors import PenstockError
from penstock.planner import Calibration, Observation, Setting, calibrate, observe
from penstock.planner.tuning import Target, tune


@lru_cache(maxsize=1)
def observed(files: tuple[str, ...]) -> Observation:
    return observe(*files)


@lru_cache(maxsize=1)
def calibrated(files: tuple[str, ...]) -> Calibration:
    return calibrate(observed(files))


def predicted(files: tuple[str, ...], trigger: float, rate: float) -> dict[str, object]:
    try:
        calibration = calibrated(files)
        same = calibration.today
        setting = Setting(trigger=trigger, rate=None if abs(rate / (same.rate or rate) - 1) < 0.05 else rate)
        found = calibration.predict(setting)
    except PenstockError as error:
        return {"error": str(error)}
    identified = all(query.durations.identified for query in calibration.queries) or (
        setting.rate is None and trigger == same.trigger
    )
    unseen = any("far beyond those recorded" in text or "what waits behind" in text for text in found.assumptions)
    return {**found.to_json(), "identified": identified and not unseen}


def tuned(files: tuple[str, ...], p95: float) -> dict[str, object]:
    try:
        answer = tune(observed(files), Target("p95", p95))
    except PenstockError as error:
        return {"error": str(error), "headline": str(error)}
    trigger = None if answer.chosen is None else answer.chosen.setting.interval
    return {"headline": answer.headline, "chance": answer.chance, "trigger": trigger, "reason": answer.reason}


for line in sys.stdin:
    question = json.loads(line)
    files = tuple(question.pop("files"))
    answer = tuned(files, **question) if "p95" in question else predicted(files, **question)
    print(json.dumps(answer), flush=True)
