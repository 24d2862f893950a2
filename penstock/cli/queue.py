"""``penstock queue``: solve, sweep, optimise and simulate one server."""

import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, TimeRemainingColumn
from rich.table import Table

from penstock.cli.bar import Bar
from penstock.errors import ConfigurationError, NotSolvableError, SinkError, SourceError
from penstock.queueing import MicroBatchServer, SteadyState, StreamServer, optimize, simulate, solve, with_scv
from penstock.queueing.estimate import Estimate
from penstock.queueing.sweep import Axis, Value, point, require_parameters, settings

Server = StreamServer | MicroBatchServer

_QUANTILES = (0.5, 0.95, 0.99)
_SERVER_PARAMETERS = tuple(field.name for field in fields(StreamServer))


@click.group()
def queue() -> None:
    """Predict how long events wait in a server with an external and an internal queue.

    The server is given by flags, or by a TOML file with a [server] table (or [micro_batch], for Spark's own gate)
    and, if costs matter, a [cost] table with "holding" and "transfer"; flags come before the file.

    \b
    Example:
      penstock queue solve --arrival-rate 750 --service-rate 1000 --batch-size 100 --timer-rate 500
    """


class _NumberOrInfinity(click.ParamType):  # type: ignore[type-arg]
    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number; give one, or inf.", param, ctx)
        return int(number) if math.isfinite(number) and number == int(number) else number


_NUMBER = _NumberOrInfinity()
_PARAMETERS = (
    ("--arrival-rate", "lambda, jobs per second."),
    ("--service-rate", "mu, jobs per second."),
    ("--batch-size", "K, jobs that make a transfer; inf for no limit."),
    ("--timer-rate", "tau, per second; 0 for no timer, inf for no waiting."),
    ("--transfer-rate", "gamma, per second; inf (the default) for transfers that take no time."),
)


def _server_options(command: Callable[..., None]) -> Callable[..., None]:
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    command = click.option("--transfer-cost", type=float, help="c2, per transfer.")(command)
    command = click.option("--holding-cost", type=float, help="c1, per job and second.")(command)
    command = click.option("--timer", type=click.Choice(["idle", "always"]), help="When the timer runs.")(command)
    for flag, text in reversed(_PARAMETERS):
        command = click.option(flag, type=_NUMBER, help=text)(command)
    return click.option("--file", "-f", type=click.Path(path_type=Path), help="A TOML file with the server.")(command)


def _read(given: Mapping[str, Any], defaults: Mapping[str, float] | None = None) -> tuple[Server, dict[str, float]]:
    """The server and the costs, from flags and file."""
    path: Path | None = given["file"]
    tables: dict[str, Any] = {}
    if path is not None:
        try:
            tables = tomllib.loads(path.read_text())
        except OSError as error:
            raise SourceError(
                f"{path} cannot be read ({error.strerror}); give a TOML file with a [server] table."
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path} is not TOML: {str(error)[:1].lower()}{str(error)[1:]}.") from error
        unknown = set(tables) - {"server", "micro_batch", "cost"}
        if unknown or ("server" in tables and "micro_batch" in tables):
            raise ConfigurationError(
                f"{path}: give one of the tables [server] and [micro_batch], and [cost] if wanted."
            )
    costs = {name: given[f"{name}_cost"] for name in ("holding", "transfer") if given[f"{name}_cost"] is not None}
    costs = {**_table(path, tables, "cost", ("holding", "transfer")), **costs}
    flags = {
        name: given[name] for name in (*(_name(flag) for flag, _ in _PARAMETERS), "timer") if given[name] is not None
    }
    if "micro_batch" in tables:
        names = [field.name for field in fields(MicroBatchServer) if field.name != "residual"]
        table = _table(path, tables, "micro_batch", (*names, "residual_scv"))
        residual = with_scv(1.0, table.pop("residual_scv", 0.0))
        _refuse_missing(table, ("arrival_rate",), path)
        return MicroBatchServer(**{**table, **flags}, residual=residual), costs
    table = {
        **(defaults or {}),
        **_table(path, tables, "server", _SERVER_PARAMETERS),
        **flags,
    }
    _refuse_missing(table, ("arrival_rate", "service_rate", "batch_size", "timer_rate"), path)
    return StreamServer(**table), costs


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _table(path: Path | None, tables: Mapping[str, Any], name: str, known: tuple[str, ...]) -> dict[str, Any]:
    table = tables.get(name, {})
    if not isinstance(table, dict) or set(table) - set(known):
        raise ConfigurationError(f"{path}: [{name}] may have {', '.join(known)}; got {', '.join(map(str, table))}.")
    return dict(table)


def _refuse_missing(table: Mapping[str, Any], needed: tuple[str, ...], path: Path | None) -> None:
    missing = [name for name in needed if name not in table]
    if missing:
        flags = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise ConfigurationError(f"The server lacks {', '.join(missing)}; give {flags}, or a file that has them.")


@queue.command("solve")
@_server_options
@click.option(
    "--method", type=click.Choice(["auto", "spectral", "iterative", "chain"]), default="auto", show_default=True
)
def solve_command(method: str, as_json: bool, **given: Any) -> None:
    """Solve a server exactly: mean numbers, transfers, response times and their quantiles.

    \b
    Example:
      penstock queue solve --arrival-rate 750 --service-rate 1000 --batch-size 25 --timer-rate 600 \\
          --holding-cost 1 --transfer-cost 0.05
    """
    server, costs = _read(given)
    steady = solve(server, method)
    names: tuple[str, ...]
    if isinstance(steady, SteadyState):
        names = (
            "mean_jobs", "mean_external", "mean_internal", "transfers_per_second", "mean_batch", "utilisation",
            "blocked_fraction", "idle_probability", "mean_response_time",
        )  # fmt: skip
    else:
        names = ("mean_rows", "rows_per_batch", "batches_per_second", "busy_fraction", "mean_latency")
    numbers: dict[str, Value] = {name: getattr(steady, name) for name in names}
    try:
        waiting = steady.response_time if isinstance(steady, SteadyState) else steady
        numbers |= {f"p{100 * p:g}": waiting.quantile(p) for p in _QUANTILES}
    except NotSolvableError as error:
        click.echo(f"No quantiles: {error}", err=True)
    if costs:
        numbers["cost"] = steady.cost(costs.get("holding", 0.0), costs.get("transfer", 0.0))
    _show(numbers, as_json, "predicted")


@queue.command("simulate")
@_server_options
@click.option("--jobs", type=int, default=2_000_000, show_default=True, help="Jobs to simulate.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--arrival-scv", type=float, default=1.0, show_default=True, help="Squared variation of interarrivals.")
@click.option("--service-scv", type=float, default=1.0, show_default=True, help="Squared variation of services.")
def simulate_command(jobs: int, seed: int, arrival_scv: float, service_scv: float, as_json: bool, **given: Any) -> None:
    """Simulate a server with any variability of arrivals and services; 95% confidence intervals.

    \b
    Example:
      penstock queue simulate --arrival-rate 750 --service-rate 1000 --batch-size 25 --timer-rate 600 \\
          --arrival-scv 10 --jobs 5000000
    """
    server, costs = _read(given)
    arrivals = with_scv(1 / server.arrival_rate, arrival_scv)
    numbers: dict[str, Value | Estimate] = {}
    if isinstance(server, StreamServer):
        services = with_scv(1 / server.service_rate, service_scv)
        with Bar("simulating", MofNCompleteColumn(), TimeRemainingColumn()) as advance:
            run = simulate(server, jobs=jobs, seed=seed, interarrival=arrivals, service=services, progress=advance)
        for name in ("mean_jobs", "transfers_per_second", "idle_probability", "mean_response_time"):
            numbers[name] = getattr(run, name)
        numbers |= {f"p{100 * p:g}": run.quantile(p) for p in _QUANTILES}
        if costs:
            numbers["cost"] = run.cost(costs.get("holding", 0.0), costs.get("transfer", 0.0))
    else:
        batches = simulate(server, jobs=jobs, seed=seed, interarrival=arrivals)
        for name in ("rows_per_batch", "batches_per_second", "busy_fraction", "mean_latency"):
            numbers[name] = getattr(batches, name)
        numbers |= {f"p{100 * p:g}": batches.quantile(p) for p in _QUANTILES}
    _show(numbers, as_json, "simulated, 95% confidence")


@queue.command("optimize")
@_server_options
@click.option("--max-mean-response", type=float, default=math.inf, help="Longest mean response time allowed, seconds.")
@click.option("--max-p99", type=float, help="Longest 99th percentile of the response time allowed, seconds.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the best cost over the batch size: .png or .svg.")
def optimize_command(
    max_mean_response: float, max_p99: float | None, plot: Path | None, as_json: bool, **given: Any
) -> None:
    """Find the batch size and timer of least cost, jointly.

    \b
    Example:
      penstock queue optimize --arrival-rate 750 --service-rate 1000 --transfer-rate 900 \\
          --holding-cost 1 --transfer-cost 0.1
    """
    from penstock.bench.plots import Curve, draw, require_drawable

    if plot is not None:
        require_drawable(plot)
    server, costs = _read(given, {"batch_size": 1, "timer_rate": 0.0})
    if not isinstance(server, StreamServer):
        raise ConfigurationError("optimize takes a [server], not a [micro_batch].")
    if set(costs) != {"holding", "transfer"}:
        raise ConfigurationError("Costs are missing; give --holding-cost and --transfer-cost, or a [cost] table.")
    with Console(stderr=True).status("Trying batch sizes") as status:
        best = optimize(
            server,
            costs["holding"],
            costs["transfer"],
            max_mean_response=max_mean_response,
            max_quantile=None if max_p99 is None else (0.99, max_p99),
            progress=lambda size: status.update(f"Trying batch size {size:g}"),
        )
    numbers: dict[str, Value] = {
        "batch_size": best.batch_size,
        "timer_rate": best.timer_rate,
        "cost": best.cost,
        "mean_jobs": best.steady_state.mean_jobs,
        "transfers_per_second": best.steady_state.transfers_per_second,
        "mean_response_time": best.steady_state.mean_response_time,
    }
    _show(numbers, as_json, "predicted")
    if plot is not None:
        finite = [s for s in best.profile if math.isfinite(s.batch_size) and math.isfinite(s.cost)]
        curve = Curve("", [s.batch_size for s in finite], [s.cost for s in finite])
        draw(plot, "Predicted cost with the best timer", "batch size K", "cost per second", [curve], logarithmic=True)


@queue.command("sweep")
@_server_options
@click.option(
    "--over", "axes", multiple=True, required=True, metavar="NAME=VALUES", help="a,b,c or start:stop:count[:log]."
)
@click.option("--quantiles/--no-quantiles", default=False, help="Predict p50, p95 and p99 too (slower).")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="A .jsonl file; the same command resumes it.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the last column over the last axis: .png or .svg.")
@click.option("--master", help="Solve on a Spark master, as local[*]; in this process unless given.")
def sweep_command(
    axes: tuple[str, ...], quantiles: bool, output: Path | None, plot: Path | None, master: str | None, as_json: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Solve a server at every combination of some parameters' values.

    \b
    Example:
      penstock queue sweep --arrival-rate 750 --service-rate 1000 --holding-cost 1 --transfer-cost 0.05 \\
          --over batch-size=5,25,100 --over timer-rate=10:10000:40:log --plot cost.png
    """
    from penstock.bench.plots import Curve, draw, require_drawable

    if plot is not None:
        require_drawable(plot)
    parsed = [Axis.parse(text) for text in axes]
    server, costs = _read(
        given,
        {"batch_size": 1, "timer_rate": 0.0}
        | {axis.name: axis.values[0] for axis in parsed if axis.name in _SERVER_PARAMETERS},
    )
    require_parameters(server, parsed)
    solved = partial(
        _point,
        server,
        costs.get("holding", 0.0) if costs else None,
        costs.get("transfer", 0.0) if costs else None,
        _QUANTILES if quantiles else (),
    )
    wanted = settings(parsed)
    known = _resume(output, [axis.name for axis in parsed])
    missing = [setting for setting in wanted if _key(setting) not in known]
    if master is not None and missing:
        from penstock.engine.parallel import spark_map

        results: Iterator[dict[str, Value]] = spark_map(solved, missing, master, "penstock-sweep")
    else:
        results = map(solved, missing)
    with Bar("settings", MofNCompleteColumn(), TimeRemainingColumn()) as advance:
        for number, (setting, result) in enumerate(zip(missing, results, strict=True), 1):
            known[_key(setting)] = result
            _append(output, result)
            advance(number, len(missing))
    points = [known[_key(setting)] for setting in wanted]
    if as_json:
        click.echo(json.dumps(points, default=str))
    elif output is None:
        _table_of(points)
    else:
        click.echo(f"Wrote {len(missing)} of {len(points)} settings to {output}.")
    if plot is not None:
        _plot_sweep(plot, parsed, points, Curve, draw)


def _point(
    server: Server,
    holding: float | None,
    transfer: float | None,
    quantiles: tuple[float, ...],
    setting: dict[str, float],
) -> dict[str, Value]:
    return point(server, setting, holding, transfer, quantiles)


def _key(setting: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted((name, float(value)) for name, value in setting.items()))


def _resume(output: Path | None, names: list[str]) -> dict[tuple[tuple[str, float], ...], dict[str, Value]]:
    known: dict[tuple[tuple[str, float], ...], dict[str, Value]] = {}
    if output is None or not output.exists():
        return known
    if not output.is_file():
        raise ConfigurationError(f"{output} is not a file; choose another place.")
    whole, end, torn = output.read_text().rpartition("\n")
    try:
        for result in map(json.loads, whole.splitlines()):
            known[_key({name: result[name] for name in names})] = result
    except (ValueError, KeyError, TypeError):
        raise ConfigurationError(f"{output} does not hold this sweep; choose another file.") from None
    if torn:  # a killed run may leave half a line at the end
        output.write_text(whole + end)
    return known


def _append(output: Path | None, result: Mapping[str, Value]) -> None:
    if output is None:
        return
    try:
        with output.open("a") as file:
            file.write(json.dumps(result) + "\n")
    except OSError as error:
        raise SinkError(f"{output} cannot be written ({error.strerror}); choose another place.") from error


def _plot_sweep(path: Path, axes: list[Axis], points: list[dict[str, Value]], curve: Any, draw: Any) -> None:
    stable = [p for p in points if p.get("stable")]
    if not stable:
        raise ConfigurationError("No setting of the sweep is stable, so there is nothing to draw.")
    x_name, y_name = axes[-1].name, next(reversed(stable[0]))
    groups: dict[str, list[dict[str, Value]]] = {}
    for p in stable:
        label = ", ".join(f"{axis.name} = {p[axis.name]:g}" for axis in axes[:-1])
        groups.setdefault(label, []).append(p)
    curves = [curve(label, [p[x_name] for p in group], [p[y_name] for p in group]) for label, group in groups.items()]
    values = [x for x in axes[-1].values if math.isfinite(x)]
    wide = min(values) > 0 and max(values) / min(values) > 50
    names = {"cost": "cost per second (predicted)"}
    draw(
        path,
        "Predicted by penstock.queueing",
        x_name,
        names.get(y_name, f"{y_name} (predicted)"),
        curves,
        logarithmic=wide,
    )


_UNITS = {
    "mean_response_time": "s", "mean_latency": "s", "p50": "s", "p95": "s", "p99": "s", "transfers_per_second": "1/s",
    "batches_per_second": "1/s", "timer_rate": "1/s", "cost": "1/s", "mean_jobs": "jobs", "mean_external": "jobs",
    "mean_internal": "jobs", "mean_batch": "jobs", "batch_size": "jobs", "mean_rows": "rows", "rows_per_batch": "rows",
}  # fmt: skip


def _show(numbers: Mapping[str, Value | Estimate], as_json: bool, kind: str) -> None:
    if as_json:
        plain = {
            name: {"value": value.value, "half_width": value.half_width} if isinstance(value, Estimate) else value
            for name, value in numbers.items()
        }
        click.echo(json.dumps({"kind": kind, **plain}))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column(kind, justify="right")
    table.add_column("unit")
    for name, value in numbers.items():
        text = format(value, ".6g") if isinstance(value, int | float | Estimate) else value
        table.add_row(name.replace("_", " "), text, _UNITS.get(name, ""))
    Console(width=100).print(table)


def _table_of(points: list[dict[str, Value]]) -> None:
    columns = max((list(p) for p in points), key=len)
    table = Table(box=None, pad_edge=False)
    for column in columns:
        if column != "stable":
            table.add_column(column.replace("_", " "), justify="right")
    for p in points:
        cells = [f"{p[c]:.6g}" if c in p else "unstable" for c in columns if c != "stable"]
        table.add_row(*cells)
    Console(width=30 * len(columns)).print(table)
