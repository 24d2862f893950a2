"""Observe, calibrate, predict, tune, plan: from recordings of a query to its behaviour at settings not yet tried."""

from penstock.planner.calibration import Calibration, calibrate
from penstock.planner.observation import Observation, observe
from penstock.planner.plan import Plan, read_plan
from penstock.planner.planning import Planning, make_plan
from penstock.planner.prediction import Prediction
from penstock.planner.prices import Prices
from penstock.planner.recovery import Recovery, recover
from penstock.planner.setting import Setting
from penstock.planner.tuning import Target, Tuning, tune
from penstock.planner.verdict import Verdict, verdicts

__all__ = [
    "Calibration",
    "Observation",
    "Plan",
    "Planning",
    "Prediction",
    "Prices",
    "Recovery",
    "Setting",
    "Target",
    "Tuning",
    "Verdict",
    "calibrate",
    "make_plan",
    "observe",
    "read_plan",
    "recover",
    "tune",
    "verdicts",
]
