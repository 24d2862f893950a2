"""Settings of a query: its gate and cores, which may be chosen, and its arrivals, which may change."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from penstock.app.duration import Duration, seconds
from penstock.errors import ConfigurationError
from penstock.queueing import parameter

LARGEST_SCV = 100_000
"""The greatest squared coefficient of variation of gaps, far above any that was recorded; more takes too much memory."""
LONGEST_S = 365 * 86_400.0
DEFAULT_DELAY_S = 900.0
"""Spark's default of ``maxTriggerDelay``."""

Arrivals = str | float | Sequence[float]


@dataclass(frozen=True)
class Setting:
    """The setting that a prediction is for; fields that are left out stay as they were recorded.

    Args:
        trigger: time between the starts of micro-batches (Spark's ``processingTime``), as ``"2 seconds"`` or in seconds; 0
            starts one as soon as the last is over.
        rate: rows per second, or a multiple of what was recorded, as ``"2x"``.
        min_rows: rows that open the gate (``minOffsetsPerTrigger``, ``min_rows=``).
        max_delay: time after which one row opens it (``maxTriggerDelay``, ``max_delay=``).
        max_rows: most rows in a micro-batch (``maxOffsetsPerTrigger``, ``max_rows=``).
        arrivals: ``"poisson"``; a number, the squared coefficient of variation of the gaps; or times in seconds, which are
            replayed and sped up to the rate.
        cores, partitions: of the query.

    Raises:
        ConfigurationError: a value is out of its range.

    Examples:
        >>> Setting(trigger="2 seconds", min_rows=500, max_delay="10 s").options()["minOffsetsPerTrigger"]
        '500'
    """

    trigger: Duration | None = None
    rate: float | str | None = None
    min_rows: float | None = None
    max_delay: Duration | None = None
    max_rows: float | None = None
    arrivals: Arrivals | None = None
    cores: float | None = None
    partitions: float | None = None

    def __post_init__(self) -> None:
        for name in ("trigger", "max_delay"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, seconds(value))
                if seconds(value) > LONGEST_S:
                    raise ConfigurationError(f"{name} is {value}; give 365 days or less.")
        for name in ("min_rows", "max_rows", "cores", "partitions"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, parameter.count(name, value, infinite=name == "max_rows"))
        if isinstance(self.rate, str) and not self.rate.endswith("x"):
            object.__setattr__(self, "rate", _number("rate", self.rate))
        if isinstance(self.rate, str):
            parameter.rate("rate", _number("rate", self.rate[:-1]))
        elif self.rate is not None:
            object.__setattr__(self, "rate", parameter.rate("rate", self.rate))
        if (self.min_rows or 1) > (self.max_rows or float("inf")):
            raise ConfigurationError(
                f"min_rows={self.min_rows:g} is above max_rows={self.max_rows:g}, which Spark refuses; lower the one or "
                "raise the other."
            )
        if isinstance(self.arrivals, str) and self.arrivals != "poisson":
            raise ConfigurationError(
                f"arrivals={self.arrivals!r}: give 'poisson', a squared coefficient of variation, or times in seconds."
            )
        if isinstance(self.arrivals, int | float):
            if isinstance(self.arrivals, bool) or not 0 <= self.arrivals <= LARGEST_SCV:
                raise ConfigurationError(
                    f"arrivals={self.arrivals!s:.20}: a squared coefficient of variation is from 0 (evenly) to {LARGEST_SCV:,}."
                )
        elif self.arrivals is not None and not isinstance(self.arrivals, str):
            try:
                given = np.asarray(self.arrivals, dtype=float)
            except (ValueError, TypeError, OverflowError):
                given = np.empty(0)
            times = tuple(np.sort(given.ravel()).tolist())
            if given.ndim > 1 or not np.isfinite(given).all() or len(times) < 2 or times[0] == times[-1]:
                raise ConfigurationError("arrivals must be two or more times in seconds: finite, and one a line.")
            object.__setattr__(self, "arrivals", times)

    @property
    def interval(self) -> float:
        """The trigger in seconds; 0 for none."""
        return 0.0 if self.trigger is None else seconds(self.trigger)

    @property
    def delay(self) -> float:
        """The longest wait of a row for the gate, in seconds; Spark's default if none is given."""
        return DEFAULT_DELAY_S if self.max_delay is None else seconds(self.max_delay)

    def rate_from(self, recorded: float) -> float:
        """The rate in rows per second, given the recorded one."""
        if self.rate is None:
            return recorded
        return recorded * float(self.rate[:-1]) if isinstance(self.rate, str) else float(self.rate)

    def over(self, recorded: Self) -> Self:
        """This setting, completed with the values of the recorded one."""
        return replace(recorded, **self.given())

    def ungated(self) -> Self:
        """This setting without a threshold; where it had one, 1, as a field that is left out means what was recorded."""
        return replace(self, min_rows=None if self.min_rows is None else 1.0, max_delay=None)

    def given(self) -> dict[str, Any]:
        """The fields that are not left out, by name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    def options(self) -> dict[str, str]:
        """The gate as Spark's documentation names it: the arguments of ``trigger()``, and the options of the source."""
        written = {}
        if self.trigger is not None:
            written["trigger(processingTime=...)"] = _written(self.interval)
        if self.min_rows is not None:
            written["minOffsetsPerTrigger"] = f"{self.min_rows:.0f}"
        if self.min_rows is not None and self.min_rows > 1:
            written["maxTriggerDelay"] = _written(self.delay)
        if self.max_rows is not None and self.max_rows != float("inf"):
            written["maxOffsetsPerTrigger"] = f"{self.max_rows:.0f}"
        return written


def _written(duration: float) -> str:
    return f"{duration:g} seconds" if duration >= 1 or duration == 0 else f"{duration * 1000:g} milliseconds"


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigurationError(f"{name}={text!r}: give a number, or a multiple such as '2x'.") from None
