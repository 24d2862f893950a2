"""The speed of a running query: how much longer its micro-batches last now than in the calibration.

The logarithm of the speed wanders about the calibrated one and returns to it (an Ornstein-Uhlenbeck process); each micro-batch
measures it with an error. A Kalman filter follows it: the longer ago the last micro-batch was, the less is known.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.planner.durations import DurationModel
from penstock.planner.series import Real, Series
from penstock.planner.spread import robust_spread

RELAXATIONS_S = (10.0, 30.0, 100.0, 300.0, 1000.0)
"""Relaxation times of the speed that are tried; the likeliest one is used."""
FAR = 2.0
"""Deviations are clipped to so many standard deviations, for a pause is not a change of the speed."""


@dataclass(frozen=True)
class Speed:
    """How long micro-batches last, relative to the calibration.

    Args:
        factor: durations over those of the calibration.
        error: its relative standard deviation.
        at: when the last observed micro-batch ended, seconds since the epoch.
        batches: number of observed micro-batches.
        relaxation: seconds in which a deviation shrinks to 37%.
        usual: relative standard deviation in the long run.
    """

    factor: float
    error: float
    at: float
    batches: int
    relaxation: float
    usual: float

    def later(self, age: float) -> "Speed":
        """The expected speed and its error ``age`` seconds after the last micro-batch."""
        remaining = math.exp(-max(age, 0.0) / self.relaxation)
        error = math.sqrt((remaining * self.error) ** 2 + self.usual**2 * (1 - remaining**2))
        return replace(self, factor=self.factor**remaining, error=error)

    def applied(self, durations: DurationModel) -> DurationModel:
        """The durations at this speed."""
        return replace(durations.longer(self.factor), run_to_run=self.error, assumed_run_to_run=False)


def follow(durations: DurationModel, running: Series) -> Speed | None:
    """The speed of a run, from its micro-batches but the first, which is cold; None if there are no others.

    Args:
        durations: the calibrated model.
        running: the micro-batches of the run that is followed.
    """
    shown = running[1:]
    if not len(shown):
        return None
    usual = max(durations.run_to_run, 0.01)
    recorded = [np.log(ratios) for ratios in durations.ratios]
    typical = float(np.median(np.concatenate(recorded)))  # not 0 if other queries run beside it
    logs = [log - typical for log in recorded]
    noise = _spread(np.concatenate([log - np.median(log) for log in logs]))
    relaxation = max(
        RELAXATIONS_S,
        key=lambda one: sum(_filtered(log, at, usual, noise, one)[2] for log, at in zip(logs, durations.times, strict=True)),
    )
    fitted = np.array([durations.duration(rows) for rows in shown.rows.tolist()])
    mean, variance, _ = _filtered(np.log(shown.durations / fitted) - typical, shown.ended, usual, noise, relaxation)
    return Speed(math.exp(mean), math.sqrt(variance), float(shown.ended[-1]), len(shown), relaxation, usual)


def _filtered(logs: Real, times: Real, usual: float, noise: float, relaxation: float) -> tuple[float, float, float]:
    """Mean and variance of the logarithm of the speed after the last micro-batch, and the log-likelihood."""
    mean, variance, likelihood = 0.0, usual**2, 0.0
    decays = np.exp(-np.diff(times, prepend=times[:1]) / relaxation)
    for log, decay in zip(logs.tolist(), decays.tolist(), strict=True):
        mean *= decay
        variance = decay**2 * variance + usual**2 * (1 - decay**2)
        total = variance + noise**2
        surprise = min(max(log - mean, -FAR * math.sqrt(total)), FAR * math.sqrt(total))
        likelihood -= 0.5 * (math.log(total) + surprise**2 / total)
        gain = variance / total
        mean += gain * surprise
        variance *= 1 - gain
    return mean, variance, likelihood


def _spread(values: Real) -> float:
    return max(robust_spread(values, about=0.0), 1e-3)
