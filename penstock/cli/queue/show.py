"""Prints figures as a table, or as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli.echo import echo
from penstock.kinds.coding import finite

if TYPE_CHECKING:
    from penstock.queueing.estimate import Estimate
    from penstock.queueing.model import Solution
    from penstock.queueing.sweep import Value

QUANTILES = (0.5, 0.95, 0.99)
UNITS = {
    "arrival_rate": "1/s",
    "service_rate": "1/s",
    "batch_size": "jobs",
    "timer_rate": "1/s",
    "timer": "s",
    "transfer_rate": "1/s",
    "threshold": "rows",
    "delay": "s",
    "cap": "rows",
    "trigger_interval": "s",
    "poll": "s",
    "fixed": "s",
    "per_row": "s",
    "per_key": "s",
    "cost": "1/s",
    **{f"p{100 * p:g}": "s" for p in QUANTILES},
}
"""Units of parameters; those of figures are kept with the figures."""


def quantile_name(p: float) -> str:
    """The name of a quantile, such as p99."""
    return f"p{100 * p:g}"


def costed(solution: Solution[Any], costs: Mapping[str, float]) -> dict[str, Value | Estimate]:
    """The figures of a solution, and its cost if there are prices."""
    from penstock.queueing.model import figures_of

    numbers: dict[str, Any] = figures_of(solution)
    if costs:
        numbers["cost"] = solution.cost(costs.get("holding", 0.0), costs.get("transfer", 0.0))
    return numbers


def labelled(name: str) -> str:
    """The name of a parameter or figure with its unit, for a column or an axis."""
    from penstock.queueing.microbatch_solution import MicroBatchState
    from penstock.queueing.steadystate import SteadyState

    unit = {**SteadyState.FIGURES, **MicroBatchState.FIGURES, **UNITS}.get(name, "")
    return name.replace("_", " ") + (f" ({unit})" if unit else "")


def timer_of(rate: float) -> str:
    """A timer rate in words, as the mean time of the flush timer."""
    if rate == 0:
        return "no timer"
    factor, unit = _scale([1 / rate])
    return "no waiting" if math.isinf(rate) else f"a timer of {factor / rate:.3g} {unit}"


def show(numbers: Mapping[str, Value | Estimate], units: Mapping[str, str], kind: str, *, as_json: bool) -> None:
    """Print figures.

    Args:
        numbers: the figures by name.
        units: of the figures.
        kind: whether they are predicted or simulated.
    """
    from rich.console import Console
    from rich.table import Table

    from penstock.queueing.estimate import Estimate

    _warn([value for value in numbers.values() if isinstance(value, Estimate)])
    if as_json:
        plain = {
            name: {"value": value.value, "half_width": value.half_width, "independent": round(value.independent, 1)}
            if isinstance(value, Estimate)
            else value
            for name, value in numbers.items()
        }
        echo(json.dumps(finite({"kind": kind, **plain})))
        return
    units = {**UNITS, **units}
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column(kind, justify="right")
    table.add_column("unit")
    factor, scale = _scale(_size(value) for name, value in numbers.items() if units.get(name) == "s")
    for name, value in numbers.items():
        unit = units.get(name, "")
        shown, unit = (_scaled(value, factor), scale) if unit == "s" else (value, unit)
        text = format(shown, ".6g") if isinstance(shown, int | float | Estimate) else shown
        if name == "timer_rate" and isinstance(value, float):
            unit = f"{unit}, {timer_of(value)}"
        table.add_row(name.replace("_", " "), text, unit)
    Console(width=100).print(table)


def _warn(estimates: Sequence[Estimate]) -> None:
    """Tell on stderr that intervals are too narrow, where a simulation is worth too few independent observations."""
    from penstock.queueing.estimate import ENOUGH

    least = min((estimate.independent for estimate in estimates), default=math.inf)
    if least < ENOUGH:
        echo(
            f"The intervals are too narrow: near saturation a queue changes slowly, and these jobs are worth about {least:.2g} "
            f"independent observations. Simulate more, about {math.ceil(2 * ENOUGH / least)} times as many (--jobs).",
            err=True,
        )


def _size(value: Value | Estimate) -> Value:
    from penstock.queueing.estimate import Estimate

    return value.value if isinstance(value, Estimate) else value


def _scale(times: Iterable[Value]) -> tuple[float, str]:
    """Factor and unit in which times are shown, s, ms or us, so that the least of them above 0 is readable."""
    least = min((time for time in times if isinstance(time, int | float) and 0 < time < math.inf), default=1.0)
    return (1.0, "s") if least >= 0.1 else (1e3, "ms") if least >= 1e-4 else (1e6, "us")


def _scaled(value: Value | Estimate, factor: float) -> Value | Estimate:
    from penstock.queueing.estimate import Estimate

    if isinstance(value, Estimate):
        return Estimate(value.value * factor, value.half_width * factor, value.confidence)
    return value * factor if isinstance(value, int | float) else value


def show_points(points: list[dict[str, Value]]) -> None:
    """Print the points of a sweep as a table."""
    from rich.console import Console
    from rich.table import Table

    columns = max((list(p) for p in points), key=len)
    table = Table(box=None, pad_edge=False, title="predicted", title_justify="left")
    for column in columns:
        if column != "stable":
            table.add_column(labelled(column), justify="right")
    for p in points:
        lacking = "-" if p.get("stable") else "unstable"
        cells = [f"{p[c]:.6g}" if c in p else lacking for c in columns if c != "stable"]
        table.add_row(*cells)
    Console(width=30 * len(columns)).print(table)
