"""The pace of the last micro-batches beside those calibrated: what a change of the speed shows first.

`penstock.planner.speed` follows a speed that wanders, and takes a jump for a few odd micro-batches; here a jump is what is
looked for. The median of a few ratios does not mind a pause.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.planner.calibration import QueryModel
from penstock.planner.series import Series

RECENT = 8
LEAST = 5
"""Micro-batches that are looked at, and without which nothing is said."""
FASTER_OR_SLOWER, SURE = 1.15, 4.0
"""A pace that differs by so much, and by so many standard errors, is another."""


@dataclass(frozen=True)
class Pace:
    """How many times as long micro-batches last as calibrated; ``error`` is the relative standard error."""

    factor: float
    error: float
    batches: int

    @property
    def differs(self) -> bool:
        """Whether it is another, by more than chance and by enough to matter."""
        return abs(math.log(self.factor)) > max(math.log(FASTER_OR_SLOWER), SURE * self.error)

    def applied(self, model: QueryModel) -> QueryModel:
        """A model at this pace, of a recording that ends with the micro-batches which show it."""
        longer = model.changed(lambda durations: durations.longer(self.factor))
        *before, last = longer.durations.ratios
        last = np.append(last[: -self.batches], last[-self.batches :] / self.factor)  # or they would be slow twice
        return replace(longer, durations=replace(longer.durations, ratios=(*before, last)))


def pace_of(model: QueryModel, running: Series, since: float) -> Pace | None:
    """The pace of the last micro-batches that began after a time (seconds since the epoch); None of too few."""
    recent = running[running.started >= since][-RECENT:]
    if len(recent) < LEAST:
        return None
    durations = model.apart.get(running.hurried, model.durations)
    recorded = np.log(np.concatenate(durations.ratios))
    typical = float(np.median(recorded))
    fitted = np.array([durations.duration(rows) for rows in recent.rows.tolist()])
    logs = np.log(recent.durations / fitted) - typical
    noise = max(1.4826 * float(np.median(np.abs(recorded - typical))), 0.01)
    return Pace(math.exp(float(np.median(logs))), 1.25 * noise / math.sqrt(len(recent)), len(recent))
