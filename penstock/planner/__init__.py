"""Observe, calibrate, predict, tune: what a query that was recorded would do at settings not yet tried."""

from penstock.planner.calibration import Calibration, calibrate
from penstock.planner.observation import Observation, observe
from penstock.planner.prediction import Prediction
from penstock.planner.recovery import Recovery, recover
from penstock.planner.setting import Setting
from penstock.planner.tuning import Target, Tuning, tune
from penstock.planner.verdict import Verdict, verdicts

__all__ = [
    "Calibration",
    "Observation",
    "Prediction",
    "Recovery",
    "Setting",
    "Target",
    "Tuning",
    "Verdict",
    "calibrate",
    "observe",
    "recover",
    "tune",
    "verdicts",
]
