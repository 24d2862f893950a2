"""The pace of the last micro-batches relative to the calibration, in which a jump of the speed shows first.

`penstock.planner.speed` follows a speed that wanders, and treats a jump as a few odd micro-batches; here jumps are detected.
The median of a few ratios is not affected by a pause.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.planner.calibration import QueryModel
from penstock.planner.series import Series
from penstock.planner.spread import robust_spread

RECENT = 8
LEAST = 5
"""Number of last micro-batches that are used, and the least that are needed."""
FASTER_OR_SLOWER, SURE = 1.15, 4.0
"""A pace has changed if it differs by this factor, and by this many standard errors."""


@dataclass(frozen=True)
class Pace:
    """``factor`` is the duration of micro-batches relative to the calibration, ``error`` its relative standard error."""

    factor: float
    error: float
    batches: int

    @property
    def differs(self) -> bool:
        """Whether the pace differs from the calibration by more than chance, and by enough to matter."""
        return abs(math.log(self.factor)) > max(math.log(FASTER_OR_SLOWER), SURE * self.error)

    def applied(self, model: QueryModel) -> QueryModel:
        """The model at this pace; its recording must end with the micro-batches from which the pace was taken."""
        longer = model.changed(lambda durations: durations.longer(self.factor))
        *before, last = longer.durations.ratios
        last = np.append(last[: -self.batches], last[-self.batches :] / self.factor)  # or else these would count as slow twice
        return replace(longer, durations=replace(longer.durations, ratios=(*before, last)))


def pace_of(model: QueryModel, running: Series, since: float) -> Pace | None:
    """The pace of the last micro-batches that began after ``since`` (seconds since the epoch); None if there are too few."""
    recent = running[running.started >= since][-RECENT:]
    if len(recent) < LEAST:
        return None
    durations = model.apart.get(running.hurried, model.durations)
    recorded = np.log(np.concatenate(durations.ratios))
    typical = float(np.median(recorded))
    fitted = np.array([durations.duration(rows) for rows in recent.rows.tolist()])
    logs = np.log(recent.durations / fitted) - typical
    noise = max(robust_spread(recorded), 0.01)
    return Pace(math.exp(float(np.median(logs))), 1.25 * noise / math.sqrt(len(recent)), len(recent))
