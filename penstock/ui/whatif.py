"""Predictions at the settings that the page's sliders offer, and the plan of one of them."""

import math
import threading
from dataclasses import dataclass
from typing import Any

from penstock.connectors.registry import is_gated
from penstock.errors import ConfigurationError, PenstockError
from penstock.planner.calibration import Calibration
from penstock.planner.observation import Observation
from penstock.planner.plan import Plan
from penstock.planner.planning import plan_of
from penstock.planner.setting import Setting

TRIGGERS = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0)
RATES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)
CORES = (0.5, 1.0, 2.0, 4.0)
DELAYS = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0)
"""The sliders' positions: the trigger (s), multiples of the present rate and of the present cores, the gate's delay (s)."""
THRESHOLDS_S = (0.1, 60.0)
"""The least and the greatest number of rows that may open the gate, as seconds of the present rate."""
FIGURES = ("p50", "p95", "p99", "utilisation", "batches_per_day")
"""The figures in a cell, in order."""
SIMULATED = 200
"""Micro-batches per simulation: few, so that a row of cells is ready while a slider moves."""


@dataclass(frozen=True)
class SliderPositions:
    """The positions of the sliders other than the trigger's; None stands for the present setting.

    Args:
        times: the multiple of the present rate.
        min_rows, max_delay: the gate; a minimum of one row means no gate.
    """

    times: float = 1.0
    cores: float | None = None
    min_rows: float | None = None
    max_delay: float | None = None


class WhatIf:
    """The predictions of a calibration; each row of cells is computed once and cached.

    Args:
        fit: the number of the calibration, which differs between those of a run.
    """

    def __init__(self, observation: Observation, calibration: Calibration, fit: int) -> None:
        self._observation, self._calibration, self._fit = observation, calibration, fit
        self._lock = threading.Lock()
        self._rows: dict[SliderPositions, list[list[float] | None]] = {}
        self._today = calibration.complete(None)
        self._present = float(self._today.rate or 0.0)
        self._cores = self._offered_cores()
        self._thresholds = self._offered_thresholds()
        self._triggers = sorted({*TRIGGERS, self._today.interval})
        self._delays = sorted({*DELAYS, self._today.delay} if (self._today.min_rows or 1) > 1 else DELAYS)

    def surface(self, place: SliderPositions | None = None) -> dict[str, Any]:
        """Return the sliders' positions and the cells: a row for each rate, or only for that of ``place``, with a cell for each
        trigger. A cell is None if the query would not keep up.

        Raises:
            ConfigurationError: the place is not among the sliders' positions.
        """
        asked = place or SliderPositions()
        rates = RATES if place is None else (asked.times,)
        setting = SliderPositions(
            cores=self._today.cores if asked.cores is None else asked.cores,
            min_rows=self._today.min_rows or 1.0 if asked.min_rows is None else asked.min_rows,
            max_delay=self._today.delay if asked.max_delay is None else asked.max_delay,
        )
        self._check(asked, setting)
        with self._lock:
            cells = [self._row(SliderPositions(times, setting.cores, setting.min_rows, setting.max_delay)) for times in rates]
        return {
            "rates": RATES,
            "triggers": self._triggers,
            "figures": FIGURES,
            "cells": cells,
            "present": self._present,
            "fit": self._fit,
            "asked": rates,
            "cores": setting.cores,
            "offered": self._cores,
            "min_rows": setting.min_rows,
            "thresholds": self._thresholds,
            "max_delay": setting.max_delay,
            "delays": self._delays,
        }

    def plan(self, place: SliderPositions, trigger: float) -> Plan:
        """Return the plan of the sliders' positions.

        Raises:
            ConfigurationError: the place is not among the sliders' positions.
            UnstableServerError: the query would not keep up.
        """
        self._check(place, place)
        if trigger not in self._triggers:
            raise ConfigurationError(
                f"There is no answer for a trigger of {trigger:g} s: ask for one of {_listed(self._triggers)}."
            )
        chosen = self._calibration.predict(self._setting(place, trigger))
        because = (
            f"Chosen by hand on the page of the run, for {place.times:g} times its rate: a p95 of {chosen.p95:.2f} s is "
            "expected (predicted)."
        )
        changed = place.cores not in (None, self._today.cores)
        return plan_of(self._observation, chosen, None, because=because, fixes_cores=changed)

    def _row(self, place: SliderPositions) -> list[list[float] | None]:
        if place not in self._rows:
            self._rows[place] = [self._cell(self._setting(place, trigger)) for trigger in self._triggers]
        return self._rows[place]

    def _setting(self, place: SliderPositions, trigger: float) -> Setting:
        gate: dict[str, float] = {}
        if self._thresholds and place.min_rows is not None:
            gate = {"min_rows": place.min_rows}
            if place.min_rows > 1 and place.max_delay is not None:
                gate["max_delay"] = place.max_delay
        return Setting(rate=place.times * self._present, trigger=trigger, cores=place.cores, **gate)

    def _cell(self, setting: Setting) -> list[float] | None:
        try:
            prediction = self._calibration.predict(setting, replicates=0, batches=SIMULATED)
        except PenstockError:
            return None
        return [round(float(getattr(prediction, name)), 4) for name in FIGURES]

    def _check(self, asked: SliderPositions, where: SliderPositions) -> None:
        if asked.times not in RATES:
            raise ConfigurationError(f"There is no answer for {asked.times:g} times the rate: ask for one of {_listed(RATES)}.")
        for name, value, present, offered in (
            ("cores", where.cores, self._today.cores, self._cores),
            ("rows to open the gate", where.min_rows, self._today.min_rows or 1.0, self._thresholds),
            ("seconds to open the gate", where.max_delay, self._today.delay, self._delays),
        ):
            if value not in (*offered, present, None):
                raise ConfigurationError(f"There is no answer for {value:g} {name}: ask for {_listed(offered) or 'none'}.")

    def _offered_cores(self) -> list[float]:
        """Return the numbers of cores to offer; an empty list if the recording does not have the present number."""
        present = self._today.cores
        return [] if present is None else sorted({max(1.0, math.floor(times * present)) for times in CORES})

    def _offered_thresholds(self) -> list[float]:
        """Return the row thresholds of the gate to offer, where 1 means no gate; an empty list if a source has no gate."""
        manifest = self._observation.manifest
        if manifest is None or not manifest.sources or not all(map(is_gated, manifest.sources.values())):
            return []
        least, most = (seconds * self._present for seconds in THRESHOLDS_S)
        round_numbers = [float(digit * 10**power) for power in range(8) for digit in (1, 2, 5)]
        most = min(most, self._today.max_rows or math.inf)
        offered = {rows for rows in round_numbers if max(least, 2.0) <= rows <= most}
        return sorted({1.0, self._today.min_rows or 1.0, *offered})


def _listed(values: Any) -> str:
    return ", ".join(f"{value:g}" for value in values)
