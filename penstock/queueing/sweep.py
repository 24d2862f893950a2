"""Solving one server at many combinations of its parameters."""

import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from penstock.errors import ConfigurationError, NotSolvableError, UnstableServerError
from penstock.queueing.model import Model, figures_of, solve

Value = float | str
_COUNTS = ("batch_size", "threshold", "cap", "keys")
MOST_VALUES = 1_000_000
"""How many values a grid may have."""
Point = Mapping[str, Value]


@dataclass(frozen=True)
class Axis:
    """One parameter of a sweep, and the values that it takes.

    Args:
        name: a parameter of the server.
        values: one value or more.
    """

    name: str
    values: Sequence[float]

    @classmethod
    def parse(cls, text: str) -> "Axis":
        """Read ``NAME=a,b,c``, or a grid ``NAME=start:stop:count``, geometric if ``:log`` is appended.

        The points of a grid are rounded to integers if the parameter is a number of events.

        Raises:
            ConfigurationError: the text has none of these forms.

        Examples:
            >>> Axis.parse("timer_rate=1:100:3:log").values
            [1.0, 10.0, 100.0]
        """
        name, _, values = text.partition("=")
        try:
            parts = values.split(":")
            if len(parts) in (3, 4) and parts[3:] in ([], ["log"]) and int(parts[2]) <= MOST_VALUES:
                grid = np.geomspace if len(parts) == 4 else np.linspace
                numbers = [float(f"{x:.12g}") for x in grid(float(parts[0]), float(parts[1]), int(parts[2]))]
                if name.strip().replace("-", "_") in _COUNTS:
                    numbers = list(dict.fromkeys(float(round(number)) for number in numbers))
            else:
                numbers = [float(part) for part in values.split(",")]
        except ValueError:
            numbers = []
        if not numbers or not name.strip() or any(math.isnan(number) for number in numbers):
            raise ConfigurationError(
                f"The axis {text!r} is not understood; give NAME=a,b,c or NAME=start:stop:count or NAME=start:stop:count:log, "
                f"with a count of at most {MOST_VALUES:,}."
            )
        return cls(name.strip().replace("-", "_"), numbers)


def settings(axes: Sequence[Axis]) -> list[dict[str, float]]:
    """Every combination of the axes' values, the last axis fastest."""
    names = [axis.name for axis in axes]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(axis.values for axis in axes))]


def require_parameters(server: Model, axes: Sequence[Axis]) -> None:
    """Raise ``ConfigurationError`` unless every axis is a numeric parameter of the server, and each another one."""
    names, seen = server.NUMERIC, set[str]()
    for axis in axes:
        if axis.name in seen:
            raise ConfigurationError(f"The axis {axis.name} is given twice: give all its values in one.")
        seen.add(axis.name)
        if axis.name not in names:
            raise ConfigurationError(f"The server has no parameter {axis.name!r} to sweep; choose {', '.join(names)}.")


def point(
    server: Model,
    setting: Mapping[str, float],
    holding_cost: float | None = None,
    transfer_cost: float | None = None,
    quantiles: Sequence[float] = (),
) -> dict[str, Value]:
    """Solve the server at one setting, and return a row of a table: parameters, then predictions in seconds and per second.

    The row of an unstable setting has only the parameters and ``"stable": 0``; figures that cannot be solved are left out.
    """
    try:
        changed: Model = replace(server, **setting)  # type: ignore[type-var]  # models are dataclasses
        solution = solve(changed)
    except UnstableServerError:
        return {**setting, "stable": 0}
    except NotSolvableError:  # the settings that can be solved are told
        return {**setting, "stable": 1}
    result: dict[str, Value] = {**setting, "stable": 1, **figures_of(solution, solution.BRIEF)}
    for p in quantiles:
        with suppress(NotSolvableError):
            result[f"p{100 * p:g}"] = solution.quantile(p)
    if holding_cost is not None and transfer_cost is not None:
        result["cost"] = solution.cost(holding_cost, transfer_cost)
    return result
