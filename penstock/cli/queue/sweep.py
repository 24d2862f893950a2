"""``penstock queue sweep``: solve a server at every combination of some parameters' values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.arguments import WRITTEN
from penstock.cli.bar import Bar
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.cli.queue.given import read, server_options
from penstock.cli.queue.show import QUANTILES, labelled, show_points
from penstock.errors import ConfigurationError, SinkError
from penstock.kinds.coding import finite

if TYPE_CHECKING:
    from penstock.queueing.model import Model
    from penstock.queueing.sweep import Axis, Value

MOST = 1_000_000
"""How many settings a sweep may have."""


@command()
@server_options
@click.option("--over", "axes", multiple=True, required=True, metavar="NAME=VALUES", help="a,b,c or start:stop:count[:log].")
@click.option("--quantiles/--no-quantiles", default=False, help="Predict p50, p95 and p99 too (slower).")
@click.option(
    "--output",
    "-o",
    type=WRITTEN,
    help="A .jsonl file: a line about the sweep, and a line a setting; the same command resumes it.",
)
@click.option("--plot", type=WRITTEN, help="Draw the last column over the last axis: .png or .svg.")
@click.option("--master", help="Solve on a Spark master, as local[*]; in this process unless given.")
def sweep(
    axes: tuple[str, ...],
    quantiles: bool,
    output: Path | None,
    plot: Path | None,
    master: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Solve a server at every combination of some parameters' values.

    \b
    Example:
      penstock queue sweep --arrival-rate 750 --service-rate 1000 --holding-cost 1 --transfer-cost 0.05 \\
          --over batch-size=5,25,100 --over timer-rate=10:10000:40:log --plot cost.png
    """
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    from penstock.allocation.drawing import require_picture
    from penstock.queueing.sweep import Axis, require_parameters, settings

    if plot is not None:
        require_picture(plot)
    parsed = [Axis.parse(text) for text in axes]
    if plot is not None and not any(map(math.isfinite, parsed[-1].values)):
        raise ConfigurationError(f"--plot draws over the last axis, {parsed[-1].name}, which has no finite value: give it one.")
    assumed = {"batch_size": 1.0, "timer_rate": 0.0} | {axis.name: axis.values[0] for axis in parsed}
    server, costs = read(given, assumed)
    require_parameters(server, parsed)
    solved = partial(
        _point,
        server,
        costs.get("holding", 0.0) if costs else None,
        costs.get("transfer", 0.0) if costs else None,
        QUANTILES if quantiles else (),
    )
    if math.prod(len(axis.values) for axis in parsed) > MOST:
        raise ConfigurationError(f"The axes have more than {MOST:,} settings together: give them fewer values.")
    wanted = settings(parsed)
    about = {"kind": "predicted", "sweep": repr(server), "costs": costs or {}, "quantiles": quantiles}
    known = _resume(output, [axis.name for axis in parsed], about)
    missing = [setting for setting in wanted if _key(setting) not in known]
    if master is not None and missing:
        from penstock.engine.session.parallel import spark_map

        results: Iterator[dict[str, Value]] = spark_map(solved, missing, master, "penstock-sweep")
    else:
        results = map(solved, missing)
    with Bar("settings", MofNCompleteColumn(), TimeRemainingColumn()) as advance:
        for number, (setting, result) in enumerate(zip(missing, results, strict=True), 1):
            known[_key(setting)] = result
            _append(output, result, about)
            advance(number, len(missing))
    points = [known[_key(setting)] for setting in wanted]
    if as_json:
        echo(json.dumps(finite([{"kind": "predicted", **point} for point in points]), default=str))
    elif output is None:
        show_points(points)
    else:
        echo(f"Wrote {len(missing)} of {len(points)} settings to {output}.")
    if plot is not None:
        _plot_sweep(plot, parsed, points)


def _point(
    server: Model, holding: float | None, transfer: float | None, quantiles: tuple[float, ...], setting: dict[str, float]
) -> dict[str, Value]:
    """Solve one setting, importing on the Spark worker; the setting comes last for `partial`."""
    from penstock.queueing.sweep import point

    return point(server, setting, holding, transfer, quantiles)


def _key(setting: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """A setting as a key, whatever the order of its parameters."""
    return tuple(sorted((name, float(value)) for name, value in setting.items()))


def _resume(
    output: Path | None, names: list[str], about: dict[str, Any]
) -> dict[tuple[tuple[str, float], ...], dict[str, Value]]:
    """The results that an earlier, interrupted sweep wrote, by `_key`; cuts off half a line at the end of the file.

    The first line has what the sweep is about: its server, costs and figures, which must be those of this one.
    """
    known: dict[tuple[tuple[str, float], ...], dict[str, Value]] = {}
    if output is None or not output.exists():
        return known
    if not output.is_file():
        raise ConfigurationError(f"{output} is not a file; choose another place.")
    whole, end, torn = output.read_bytes().rpartition(b"\n")
    try:
        first, *results = map(json.loads, whole.splitlines() or [b"null"])
        for result in results:
            known[_key({name: result[name] for name in names})] = result
    except (ValueError, KeyError, TypeError, AttributeError):
        first = None
    if first != json.loads(json.dumps(about)) and (whole or torn):
        raise ConfigurationError(f"{output} does not hold this sweep of this server; choose another file.")
    if torn:  # a killed run may leave half a line at the end
        output.write_bytes(whole + end)
    return known


def _append(output: Path | None, result: Mapping[str, Value], about: dict[str, Any]) -> None:
    if output is None:
        return
    try:
        with output.open("a") as file:
            if not file.tell():
                file.write(json.dumps(about) + "\n")
            file.write(json.dumps(result) + "\n")
    except OSError as error:
        raise SinkError(f"{output} cannot be written ({error.strerror}); choose another place.") from error


def _plot_sweep(path: Path, axes: list[Axis], points: list[dict[str, Value]]) -> None:
    from penstock.bench.figures.plots import Curve, Mark, PlotContents, draw

    stable = [p for p in points if p.get("stable")]
    if not stable:
        raise ConfigurationError("No setting of the sweep is stable, so there is nothing to draw.")
    fullest: dict[str, Value] = max(stable, key=len)
    x_name, y_name = axes[-1].name, list(fullest)[-1]
    groups: dict[str, list[dict[str, Value]]] = {}
    for p in (p for p in stable if y_name in p):
        groups.setdefault(_named(p, axes[:-1]), []).append(p)
    style = "o" if all(x == round(x) for x in axes[-1].values if math.isfinite(x)) else "-"
    curves = [
        Curve(label, [float(p[x_name]) for p in group], [float(p[y_name]) for p in group], style)
        for label, group in groups.items()
    ]
    values = [x for x in axes[-1].values if math.isfinite(x)]
    figure = y_name.replace("_", " ")
    title, marks = f"{figure[0].upper()}{figure[1:]} over the {x_name.replace('_', ' ')} (predicted)", list[Mark]()
    if y_name == "cost":
        best = min((p for p in stable if "cost" in p), key=lambda p: float(p["cost"]))
        title = f"Least cost: {best['cost']:.4g} per second at {_named(best, axes)} (predicted)"
        if math.isfinite(float(best[x_name])):
            number = list(groups).index(_named(best, axes[:-1]))
            marks = [Mark("least", float(best[x_name]), float(best["cost"]), curve=number)]
    wide = min(values) > 0 and max(values) / min(values) > 50
    draw(path, PlotContents(title, labelled(x_name), f"{labelled(y_name)}, predicted", curves, log_x=wide, marks=marks))


def _named(p: Mapping[str, Value], axes: list[Axis]) -> str:
    """The values of a setting along these axes, in words."""
    return ", ".join(f"{axis.name.replace('_', ' ')} {p[axis.name]:.4g}" for axis in axes)
