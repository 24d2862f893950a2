"""Predictions: latencies and other figures of a setting, with bands, the method, and the assumptions."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from penstock.app.display import rounded, table
from penstock.errors import ConfigurationError
from penstock.planner.setting import Setting
from penstock.queueing import parameter

Real = NDArray[np.float64]
Method = Literal["simulated", "solved"]

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
LATENCIES = ("mean", *QUANTILES)
LIMIT = "throughput_limit"
DAY_S = 86_400.0


@dataclass(frozen=True)
class Prediction:
    """The expected effect of a setting. All figures are predicted, from recordings and the ``assumptions``.

    Args:
        setting: the setting that was asked for, completed with the recorded values.
        rate: rows per second.
        mean, p50, p95, p99: of a row's latency, from its arrival until its results are visible, seconds.
        backlog: mean number of rows that wait or are in a micro-batch.
        utilisation: share of the time during which a micro-batch runs, of the busiest query.
        throughput_limit: rows per second beyond which the backlog grows without bound.
        rows_per_batch, batches_per_day: of the first query.
        files_per_day: of all queries, one per partition and micro-batch, as Spark's file sinks write them.
        method: by which the latencies were computed.
        replicates: by name, latencies and throughput limits of simulated runs as long as the recording, for `band`.
        assumptions: sentences on what is assumed and no recording shows.
    """

    setting: Setting
    rate: float
    mean: float
    p50: float
    p95: float
    p99: float
    backlog: float
    utilisation: float
    throughput_limit: float
    rows_per_batch: float
    batches_per_day: float
    files_per_day: float
    method: Method
    replicates: Mapping[str, Real]
    assumptions: tuple[str, ...]

    @property
    def rows_per_file(self) -> float:
        """Rows of the source for each file of the sink."""
        return self.rate * DAY_S / self.files_per_day

    def band(self, name: str, level: float = 0.9) -> tuple[float, float]:
        """The interval that contains, with probability ``level``, a figure measured for as long as the recording.

        Args:
            name: ``"mean"``, ``"p50"``, ``"p95"`` or ``"p99"``, seconds; or ``"throughput_limit"``, rows per second.
        """
        name = parameter.one_of("name", name, (*LATENCIES, LIMIT))
        level = parameter.fraction("level", level)
        if not len(self.replicates[name]):
            raise ConfigurationError("This prediction was made without replicates, so it has no bands.")
        values = self.replicates[name]  # some may be infinite: one cannot interpolate to these
        between: Literal["linear", "higher"] = "linear" if np.isfinite(values).all() else "higher"
        low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], method=between)
        return min(float(low), getattr(self, name)), max(float(high), getattr(self, name))

    @property
    def keeps_up(self) -> str:
        """The rate up to which the query keeps up, in words, with its 90% band if there is one."""
        if math.isinf(self.throughput_limit):
            return "unknown: the recording shows no cost per row"
        text = f"{rounded(self.throughput_limit)} rows/s"
        if not len(self.replicates[LIMIT]):
            return text
        low, high = self.band(LIMIT)
        return f"{text} ({rounded(low)} to {'no limit' if math.isinf(high) else rounded(high)})"

    def _repr_html_(self) -> str:
        """HTML for notebooks: the latencies, with their bands."""
        banded = bool(len(self.replicates["mean"]))
        bands = {name: " ({:.2f} to {:.2f})".format(*self.band(name)) if banded else "" for name in LATENCIES}
        rows = [(name, f"{getattr(self, name):.2f} s{bands[name]}") for name in LATENCIES]
        rows += [("utilisation", f"{self.utilisation:.0%}"), ("micro-batches a day", f"{self.batches_per_day:,.0f}")]
        return table(f"At {rounded(self.rate)} rows/s", rows, "Predicted; bands of 90%." if banded else "Predicted.")

    def to_json(self) -> dict[str, Any]:
        """The prediction as `penstock predict --json` prints it."""
        return {
            **{name: getattr(self, name) for name in LATENCIES},
            "bands": {name: list(self.band(name)) for name in LATENCIES},
            "utilisation": self.utilisation,
            "method": self.method,
            "rate": self.rate,
            "backlog": self.backlog,
            "throughput_limit": self.throughput_limit,
            "throughput_limit_band": list(self.band(LIMIT)),
            "rows_per_batch": self.rows_per_batch,
            "batches_per_day": self.batches_per_day,
            "files_per_day": self.files_per_day,
            "setting": self.setting.given()
            if not isinstance(self.setting.arrivals, tuple)
            else {**self.setting.given(), "arrivals": f"{len(self.setting.arrivals)} times"},
            "assumptions": list(self.assumptions),
            "kind": "predicted; latencies in seconds, bands of 90%",
        }


def summary(latencies: Real) -> dict[str, float]:
    """Mean and quantiles of latencies by name; nan if there are none."""
    if not len(latencies):
        return dict.fromkeys(LATENCIES, math.nan)
    quantiles = np.quantile(latencies, list(QUANTILES.values())).tolist()
    return {"mean": float(latencies.mean()), **dict(zip(QUANTILES, quantiles, strict=True))}
