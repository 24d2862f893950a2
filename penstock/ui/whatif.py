"""Predictions at settings not yet tried, where the page's sliders stop, and the plan of one of them."""

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
"""Where sliders stop: seconds of the trigger, times the present rate and cores, seconds of the gate."""
THRESHOLDS_S = (0.1, 60.0)
"""The least and the most rows that may open the gate, in seconds of the present rate."""
FIGURES = ("p50", "p95", "p99", "utilisation", "batches_per_day")
"""What a cell has."""
SIMULATED = 200
"""Micro-batches of a simulation, so that a row of cells comes while a slider moves."""


@dataclass(frozen=True)
class Place:
    """Where the sliders are but for the trigger; None: as it is now.

    Parameters
    ----------
    times: of the present rate. min_rows, max_delay: the gate; one row is none.
    """

    times: float = 1.0
    cores: float | None = None
    min_rows: float | None = None
    max_delay: float | None = None


class WhatIf:
    """What a calibration says, each row of cells worked out once.

    Parameters
    ----------
    fit: a number that tells one calibration of a run from the next.
    """

    def __init__(self, observation: Observation, calibration: Calibration, fit: int) -> None:
        self._observation, self._calibration, self._fit = observation, calibration, fit
        self._lock = threading.Lock()
        self._rows: dict[Place, list[list[float] | None]] = {}
        self._today = calibration.complete(None)
        self._present = float(self._today.rate or 0.0)
        self._cores = self._offered_cores()
        self._thresholds = self._offered_thresholds()
        self._triggers = sorted({*TRIGGERS, self._today.interval})
        self._delays = sorted({*DELAYS, self._today.delay} if (self._today.min_rows or 1) > 1 else DELAYS)

    def surface(self, place: Place | None = None) -> dict[str, Any]:
        """Where the sliders stop, and the cells: a row for each rate, or for that of the place alone, with a cell for each
        trigger; None where the query would not keep up.

        Raises
        ------
        ConfigurationError: the place is not one of those that are offered.
        """
        asked = place or Place()
        rates = RATES if place is None else (asked.times,)
        where = Place(
            cores=self._today.cores if asked.cores is None else asked.cores,
            min_rows=self._today.min_rows or 1.0 if asked.min_rows is None else asked.min_rows,
            max_delay=self._today.delay if asked.max_delay is None else asked.max_delay,
        )
        self._check(asked, where)
        with self._lock:
            cells = [self._row(Place(times, where.cores, where.min_rows, where.max_delay)) for times in rates]
        return {
            "rates": RATES,
            "triggers": self._triggers,
            "figures": FIGURES,
            "cells": cells,
            "present": self._present,
            "fit": self._fit,
            "asked": rates,
            "cores": where.cores,
            "offered": self._cores,
            "min_rows": where.min_rows,
            "thresholds": self._thresholds,
            "max_delay": where.max_delay,
            "delays": self._delays,
        }

    def plan(self, place: Place, trigger: float) -> Plan:
        """The plan that runs as the sliders are.

        Raises
        ------
        ConfigurationError: the place is not one of those that are offered. UnstableServerError: the query would not keep up.
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

    def _row(self, place: Place) -> list[list[float] | None]:
        if place not in self._rows:
            self._rows[place] = [self._cell(self._setting(place, trigger)) for trigger in self._triggers]
        return self._rows[place]

    def _setting(self, place: Place, trigger: float) -> Setting:
        gate: dict[str, float] = {}
        if self._thresholds and place.min_rows is not None:
            gate = {"min_rows": place.min_rows}
            if place.min_rows > 1 and place.max_delay is not None:
                gate["max_delay"] = place.max_delay
        return Setting(rate=place.times * self._present, trigger=trigger, cores=place.cores, **gate)

    def _cell(self, setting: Setting) -> list[float] | None:
        try:
            found = self._calibration.predict(setting, replicates=0, batches=SIMULATED)
        except PenstockError:
            return None
        return [round(float(getattr(found, name)), 4) for name in FIGURES]

    def _check(self, asked: Place, where: Place) -> None:
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
        """None, where the recording does not say how many there are."""
        present = self._today.cores
        return [] if present is None else sorted({max(1.0, math.floor(times * present)) for times in CORES})

    def _offered_thresholds(self) -> list[float]:
        """Rows that open the gate, the first of which is none; empty, where a source has no gate."""
        manifest = self._observation.manifest
        if manifest is None or not manifest.sources or not all(map(is_gated, manifest.sources.values())):
            return []
        least, most = (seconds * self._present for seconds in THRESHOLDS_S)
        round_ones = [float(digit * 10**power) for power in range(8) for digit in (1, 2, 5)]
        most = min(most, self._today.max_rows or math.inf)
        offered = {one for one in round_ones if max(least, 2.0) <= one <= most}
        return sorted({1.0, self._today.min_rows or 1.0, *offered})


def _listed(values: Any) -> str:
    return ", ".join(f"{one:g}" for one in values)
