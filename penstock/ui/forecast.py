"""What the models say of a run: what limits it, the latency they expect as it is, and at settings not yet tried."""

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError
from penstock.planner.calibration import Calibration, calibrate
from penstock.planner.observation import Observation, observe_running
from penstock.planner.prediction import LATENCIES, Prediction
from penstock.planner.setting import Setting
from penstock.planner.verdict import Verdict, verdicts
from penstock.ui.follower import Follower

EVERY_S = 45.0
"""How often the models are fitted anew."""
FITTED = 400
"""Micro-batches of each group that they are fitted to."""
QUICK = 30
TRIGGERS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0)
RATES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
CORES = (0.5, 1.0, 2.0, 4.0)
FIGURES = ("p50", "p95", "p99", "utilisation", "batches_per_day")
"""Where the sliders of what-if stop, seconds and times the present rate and cores, and what they show."""


class Forecast:
    """Keeps a calibration of a run, made in the background, and answers from it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._surfacing = threading.Lock()
        self._made, self._seen = -math.inf, 0
        self._busy = False
        self.verdicts: list[Verdict] = []
        self.today: dict[str, Any] | None = None
        self.why_not = "The models wait for more micro-batches."
        self.fits = 0
        """How often the models have been fitted."""
        self._calibration: Calibration | None = None
        self._surfaces: dict[float | None, dict[str, Any]] = {}
        """By cores, of one fit."""
        self._surfaced = 0

    def refresh(self, follower: Follower, *, wait: bool = False) -> None:
        """Fit anew where that is due and there is something new, beside whoever asks."""
        with self._lock:
            batches = follower.totals.batches
            if self._busy or batches == self._seen or time.monotonic() - self._made < EVERY_S:
                return
            self._busy, self._seen = True, batches
        records = list(follower.progress)[-FITTED * max(1, len(follower.present)) :]
        ledgers = {name: list(follower.groups[name].records)[-FITTED:] for name in follower.present}
        thread = threading.Thread(
            target=lambda: self._fit(lambda: observe_running(follower.run, records, ledgers)), daemon=True
        )
        thread.start()
        if wait:
            thread.join()

    def _fit(self, observed: Callable[[], Observation]) -> None:
        found: list[Verdict] = []
        today: dict[str, Any] | None = None
        calibration: Calibration | None = None
        why_not = ""
        try:
            observation = observed()
            found = verdicts(observation)
            calibration = calibrate(observation)
            today = _shown(calibration.predict(replicates=QUICK), bands=True)
        except PenstockError as error:
            why_not = str(error)
        except Exception as error:  # a fault of a model's must not take the page away
            why_not = f"The models failed ({type(error).__name__}: {error})."
        with self._lock:
            self.verdicts, self.today, self.why_not, self._calibration = found, today, why_not, calibration
            self._made, self._busy, self.fits = time.monotonic(), False, self.fits + 1

    def surface(self, cores: float | None = None) -> dict[str, Any]:
        """Predictions over rates (times the present one) and trigger intervals, for the page's sliders to move on; kept until the
        models are fitted anew. A cell is None where the query would not keep up.

        Parameters
        ----------
        cores: one of those that the answer offers; the present ones unless given.
        """
        with self._surfacing:
            with self._lock:
                calibration, fit, why_not = self._calibration, self.fits, self.why_not
            if calibration is None:
                return {"error": why_not}
            today = calibration.complete(None)
            offered = _offered(today.cores)
            cores = today.cores if cores is None else cores
            if cores not in (*offered, today.cores):
                return {
                    "error": f"There is no answer for {cores:g} cores: ask for one of {', '.join(f'{one:g}' for one in offered)}."
                }
            if fit != self._surfaced:
                self._surfaces, self._surfaced = {}, fit
            if cores not in self._surfaces:
                present = float(today.rate or 0.0)
                cells = [
                    [_cell(calibration, Setting(rate=times * present, trigger=one, cores=cores)) for one in TRIGGERS]
                    for times in RATES
                ]
                self._surfaces[cores] = {
                    "rates": RATES, "triggers": TRIGGERS, "figures": FIGURES, "cells": cells, "present": present, "fit": fit,
                    "cores": cores, "offered": offered,
                }  # fmt: skip
            return self._surfaces[cores]


def _offered(present: float | None) -> list[float]:
    """The numbers of cores that the slider has; none, where the recording does not say how many there are."""
    return [] if present is None else sorted({max(1.0, math.floor(times * present)) for times in CORES})


def _cell(calibration: Calibration, setting: Setting) -> list[float] | None:
    try:
        found = calibration.predict(setting, replicates=0)
    except PenstockError:
        return None
    return [round(float(getattr(found, name)), 4) for name in FIGURES]


def _shown(prediction: Prediction, *, bands: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(prediction, name) for name in LATENCIES}
    found |= {
        "rate": prediction.rate, "trigger": prediction.setting.interval, "cores": prediction.setting.cores,
        "utilisation": prediction.utilisation, "batches_per_day": prediction.batches_per_day,
        "throughput_limit": prediction.throughput_limit, "assumptions": list(prediction.assumptions),
    }  # fmt: skip
    if bands:
        found["bands"] = {name: list(map(_finite, prediction.band(name))) for name in LATENCIES}
    return {name: _finite(value) for name, value in found.items()}


def _finite(value: Any) -> Any:
    """JSON knows no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
