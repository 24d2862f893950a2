"""The speed of a query that runs: how much longer its micro-batches last now than the calibration has them last.

The logarithm of the speed wanders about the calibrated one and comes back to it (an Ornstein-Uhlenbeck process), and each
micro-batch shows it with an error. A Kalman filter follows it: after a pause it knows less, and what it knew is worth
less the longer ago it was.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from penstock.planner.durations import DurationModel
from penstock.planner.series import Real, Series

RELAXATIONS_S = (10.0, 30.0, 100.0, 300.0, 1000.0)
"""Times in which a speed comes back to the usual one; the likeliest is taken."""
FAR = 2.0
"""Standard deviations beyond which a micro-batch counts as if it were so far: a pause is not a speed."""


@dataclass(frozen=True)
class Speed:
    """How long micro-batches last beside those calibrated.

    Parameters
    ----------
    factor: durations over those of the calibration. error: its relative standard deviation.
    at: when the last micro-batch that shows it had ended, seconds since the epoch. batches: how many show it.
    relaxation: seconds in which a deviation shrinks to 37%. usual: relative standard deviation over long times.
    """

    factor: float
    error: float
    at: float
    batches: int
    relaxation: float
    usual: float

    def later(self, age: float) -> "Speed":
        """What is known of the speed so many seconds after the last micro-batch."""
        left = math.exp(-max(age, 0.0) / self.relaxation)
        error = math.sqrt((left * self.error) ** 2 + self.usual**2 * (1 - left**2))
        return replace(self, factor=self.factor**left, error=error)

    def applied(self, durations: DurationModel) -> DurationModel:
        """The model at this speed."""
        return replace(durations.longer(self.factor), run_to_run=self.error, assumed_run_to_run=False)


def follow(durations: DurationModel, running: Series) -> Speed | None:
    """The speed of a run, from its micro-batches after the first, which starts cold; None where there are none.

    Parameters
    ----------
    durations: the calibrated model. running: of the run that is followed.
    """
    shown = running[1:]
    if not len(shown):
        return None
    usual = max(durations.run_to_run, 0.01)
    recorded = [np.log(ratios) for ratios in durations.ratios]
    typical = float(np.median(np.concatenate(recorded)))  # not 0 where others run beside it
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
    """Mean and variance of the logarithm of the speed after the last micro-batch, and the likelihood's logarithm."""
    mean, variance, likelihood = 0.0, usual**2, 0.0
    kept = np.exp(-np.diff(times, prepend=times[:1]) / relaxation)
    for log, left in zip(logs.tolist(), kept.tolist(), strict=True):
        mean *= left
        variance = left**2 * variance + usual**2 * (1 - left**2)
        total = variance + noise**2
        surprise = min(max(log - mean, -FAR * math.sqrt(total)), FAR * math.sqrt(total))
        likelihood -= 0.5 * (math.log(total) + surprise**2 / total)
        gain = variance / total
        mean += gain * surprise
        variance *= 1 - gain
    return mean, variance, likelihood


def _spread(values: Real) -> float:
    """Robust standard deviation."""
    return max(1.4826 * float(np.median(np.abs(values))), 1e-3)
