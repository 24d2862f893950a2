"""``penstock queue optimize``."""

import math
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from penstock.cli.queue.given import read, server_options
from penstock.cli.queue.show import show
from penstock.errors import ConfigurationError
from penstock.queueing import StreamServer
from penstock.queueing import optimize as optimized
from penstock.queueing.model import figures_of


@click.command()
@server_options
@click.option("--max-mean-response", type=float, default=math.inf, help="Longest mean response time allowed, seconds.")
@click.option("--max-p99", type=float, help="Longest 99th percentile of the response time allowed, seconds.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the best cost over the batch size: .png or .svg.")
def optimize(max_mean_response: float, max_p99: float | None, plot: Path | None, as_json: bool, **given: Any) -> None:
    """Find the batch size and timer of least cost, jointly.

    \b
    Example:
      penstock queue optimize --arrival-rate 750 --service-rate 1000 --transfer-rate 900 \\
          --holding-cost 1 --transfer-cost 0.1
    """
    from penstock.bench.figures.plots import Curve, draw, require_drawable

    if plot is not None:
        require_drawable(plot)
    server, costs = read(given, {"batch_size": 1, "timer_rate": 0.0})
    if not isinstance(server, StreamServer):
        raise ConfigurationError("optimize takes a [server] only.")
    if set(costs) != {"holding", "transfer"}:
        raise ConfigurationError("Costs are missing; give --holding-cost and --transfer-cost, or a [cost] table.")
    with Console(stderr=True).status("Trying batch sizes") as status:
        best = optimized(
            server,
            costs["holding"],
            costs["transfer"],
            max_mean_response=max_mean_response,
            max_quantile=None if max_p99 is None else (0.99, max_p99),
            progress=lambda size: status.update(f"Trying batch size {size:g}"),
        )
    state = best.steady_state
    numbers = {"batch_size": best.batch_size, "timer_rate": best.timer_rate, "cost": best.cost}
    units = {"batch_size": "jobs", "timer_rate": "1/s", **state.FIGURES}
    show({**numbers, **figures_of(state, state.BRIEF)}, units, "predicted", as_json=as_json)
    if plot is not None:
        finite = [s for s in best.profile if math.isfinite(s.batch_size) and math.isfinite(s.cost)]
        curve = Curve("", [s.batch_size for s in finite], [s.cost for s in finite])
        draw(plot, "Predicted cost with the best timer", "batch size K", "cost per second", [curve], logarithmic=True)
