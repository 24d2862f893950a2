"""Figures as a table for a person, or as JSON."""

import json
import math
from collections.abc import Mapping
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from penstock.queueing.estimate import Estimate
from penstock.queueing.microbatch_solution import MicroBatchState
from penstock.queueing.model import Solution, figures_of
from penstock.queueing.steadystate import SteadyState
from penstock.queueing.sweep import Value

QUANTILES = (0.5, 0.95, 0.99)
UNITS = {
    "arrival_rate": "1/s", "service_rate": "1/s", "batch_size": "jobs", "timer_rate": "1/s", "timer": "s", "transfer_rate": "1/s",
    "threshold": "rows", "delay": "s", "cap": "rows", "trigger_interval": "s", "poll": "s", "fixed": "s", "per_row": "s",
    "per_key": "s", "cost": "1/s", **SteadyState.FIGURES, **MicroBatchState.FIGURES, **{f"p{100 * p:g}": "s" for p in QUANTILES},
}  # fmt: skip
"""Of parameters and figures."""

Numbers = dict[str, Value | Estimate]


def quantile_name(p: float) -> str:
    """How a quantile is called, as p99."""
    return f"p{100 * p:g}"


def costed(solution: Solution[Any], costs: Mapping[str, float]) -> Numbers:
    """A solution's figures, and its cost if prices are given."""
    numbers: Numbers = figures_of(solution)
    if costs:
        numbers["cost"] = solution.cost(costs.get("holding", 0.0), costs.get("transfer", 0.0))
    return numbers


def labelled(name: str) -> str:
    """A parameter or figure with its unit, as a column or an axis is headed."""
    unit = UNITS.get(name, "")
    return name.replace("_", " ") + (f" ({unit})" if unit else "")


def timer_of(rate: float) -> str:
    """What a timer rate is as a flush timer."""
    if rate == 0:
        return "no timer"
    shown, unit = _sensible(1 / rate, "s")
    return "no waiting" if math.isinf(rate) else f"a timer of {shown:.3g} {unit}"


def show(numbers: Mapping[str, Value | Estimate], units: Mapping[str, str], kind: str, *, as_json: bool) -> None:
    """Print figures.

    Parameters
    ----------
    kind: whether they are predicted, or simulated.
    """
    if as_json:
        plain = {
            name: {"value": value.value, "half_width": value.half_width} if isinstance(value, Estimate) else value
            for name, value in numbers.items()
        }
        click.echo(json.dumps({"kind": kind, **plain}))
        return
    units = {**UNITS, **units}
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column(kind, justify="right")
    table.add_column("unit")
    for name, value in numbers.items():
        shown, unit = _sensible(value, units.get(name, ""))
        text = format(shown, ".6g") if isinstance(shown, int | float | Estimate) else shown
        if name == "timer_rate" and isinstance(value, float):
            unit = f"{unit}, {timer_of(value)}"
        table.add_row(name.replace("_", " "), text, unit)
    Console(width=100).print(table)


def _sensible(value: Value | Estimate, unit: str) -> tuple[Value | Estimate, str]:
    """Times below a tenth of a second in milliseconds or microseconds."""
    size = value.value if isinstance(value, Estimate) else value
    if unit != "s" or not isinstance(size, int | float) or not 0 < size < 0.1:
        return value, unit
    factor, name = (1e3, "ms") if size >= 1e-4 else (1e6, "us")
    if isinstance(value, Estimate):
        return Estimate(value.value * factor, value.half_width * factor, value.confidence), name
    return size * factor, name


def show_points(points: list[dict[str, Value]]) -> None:
    """Print the points of a sweep as a table."""
    columns = max((list(p) for p in points), key=len)
    table = Table(box=None, pad_edge=False)
    for column in columns:
        if column != "stable":
            table.add_column(labelled(column), justify="right")
    for p in points:
        cells = [f"{p[c]:.6g}" if c in p else "unstable" for c in columns if c != "stable"]
        table.add_row(*cells)
    Console(width=30 * len(columns)).print(table)
