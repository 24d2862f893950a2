"""Predictions of the models for a run: its bottleneck, and its latency at the present and at other settings."""

import math
import threading
import time
from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError
from penstock.kinds.coding import finite
from penstock.planner.calibration import calibrate
from penstock.planner.observation import Observation, observe_running
from penstock.planner.prediction import LATENCIES, Prediction
from penstock.planner.verdict import Verdict, verdicts
from penstock.runs.follower import Follower
from penstock.ui.whatif import WhatIf

EARLY_S, EVERY_S, LATEST_S = 10.0, 45.0, 180.0
"""Seconds from one fit to the next: the least without and with fitted models, and the time after which any news suffices."""
FITTED = 400
"""The number of last micro-batches of each group that the models are fitted to."""
NEWS = 0.2
"""The share of these micro-batches that must be new for a refit."""
QUICK = 30


class Forecast:
    """Keeps a calibration of a run's models up to date, in a background thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made, self._seen = -math.inf, 0
        self._busy = False
        self.verdicts: list[Verdict] = []
        self.today: dict[str, Any] | None = None
        self.why_not = "The models wait for more micro-batches."
        self.fits = 0
        """How often the models have been fitted."""
        self.what_if: WhatIf | None = None

    def refresh(self, follower: Follower, *, wait: bool = False) -> None:
        """Start a fit in the background if one is due and there are new micro-batches; ``wait`` waits for its end."""
        if follower.manifest.is_real_time:
            self.why_not = "The models are of micro-batches, and this run is in real time."
            return
        with self._lock:
            batches, past = follower.totals.batches, time.monotonic() - self._made
            news = batches - self._seen
            soon = past >= (EARLY_S if self.what_if is None else EVERY_S) and news >= NEWS * min(batches, FITTED)
            if self._busy or not news or not (soon or past >= LATEST_S):
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
        bottlenecks: list[Verdict] = []
        today: dict[str, Any] | None = None
        what_if: WhatIf | None = None
        why_not = ""
        try:
            observation = observed()
            bottlenecks = verdicts(observation)
            calibration = calibrate(observation)
            today = _shown(calibration.predict(replicates=QUICK), bands=True)
            what_if = WhatIf(observation, calibration, self.fits + 1)
        except PenstockError as error:
            why_not = str(error)
        except Exception as error:  # an error in a model must not bring down the page
            why_not = f"The models failed ({type(error).__name__}: {error})."
        with self._lock:
            self.verdicts, self.today, self.why_not, self.what_if = bottlenecks, today, why_not, what_if
            self._made, self._busy, self.fits = time.monotonic(), False, self.fits + 1


def _shown(prediction: Prediction, *, bands: bool = False) -> dict[str, Any]:
    figures: dict[str, Any] = {name: getattr(prediction, name) for name in LATENCIES}
    figures |= {
        "rate": prediction.rate,
        "trigger": prediction.setting.interval,
        "cores": prediction.setting.cores,
        "utilisation": prediction.utilisation,
        "batches_per_day": prediction.batches_per_day,
        "throughput_limit": prediction.throughput_limit,
        "assumptions": list(prediction.assumptions),
    }
    if bands:
        figures["bands"] = {name: list(prediction.band(name)) for name in LATENCIES}
    return {name: finite(value) for name, value in figures.items()}
