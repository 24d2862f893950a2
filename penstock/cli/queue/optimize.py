"""``penstock queue optimize``: find the batch size and timer of least cost."""

import math
from pathlib import Path
from typing import Any

import click

from penstock.cli.arguments import WRITTEN
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.cli.queue.given import flag, read, server_options
from penstock.cli.queue.show import show, timer_of
from penstock.errors import ConfigurationError


@command()
@server_options
@click.option("--max-mean-response", type=float, default=math.inf, help="Longest mean response time allowed, seconds.")
@click.option("--max-p99", type=float, help="Longest 99th percentile of the response time allowed, seconds.")
@click.option("--plot", type=WRITTEN, help="Draw the best cost over the batch size: .png or .svg.")
def optimize(max_mean_response: float, max_p99: float | None, plot: Path | None, as_json: bool, **given: Any) -> None:
    """Find the batch size and timer of least cost, jointly.

    \b
    Example:
      penstock queue optimize --arrival-rate 750 --service-rate 1000 --transfer-rate 900 \\
          --holding-cost 1 --transfer-cost 0.1
    """
    from rich.console import Console

    from penstock.allocation.drawing import require_picture
    from penstock.bench.figures.plots import Curve, Mark, PlotContents, draw
    from penstock.queueing import StreamServer
    from penstock.queueing import optimize as optimized
    from penstock.queueing.model import figures_of

    if plot is not None:
        require_picture(plot)
    fixed = [name for name in ("batch_size", "timer_rate") if given[name] is not None]
    if fixed:
        raise ConfigurationError(f"optimize finds the batch size and the timer: leave out {' and '.join(map(flag, fixed))}.")
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
    if best.largest is not None:
        echo(
            f"No batch of more than {best.largest:,} jobs was tried but an endless one, and the cost still fell there: larger "
            "ones may be cheaper.",
            err=True,
        )
    state = best.steady_state
    numbers = {"batch_size": best.batch_size, "timer_rate": best.timer_rate, "cost": best.cost}
    show({**numbers, **figures_of(state, state.BRIEF)}, state.FIGURES, "predicted", as_json=as_json)
    if plot is not None:
        finite = [s for s in best.profile if math.isfinite(s.batch_size) and math.isfinite(s.cost)]
        curve = Curve("", [s.batch_size for s in finite], [s.cost for s in finite], "o")
        setting = f"batches of up to {best.batch_size:g} jobs and {timer_of(best.timer_rate)}"
        marks = [Mark(f"K = {best.batch_size:g}", best.batch_size, best.cost, curve=1)]
        draw(
            plot,
            PlotContents(
                f"Least cost: {best.cost:.4g} per second with {setting} (predicted)",
                "batch size K (jobs)",
                "cost with the best timer (per second, predicted)",
                [curve],
                log_x=True,
                marks=marks if math.isfinite(best.batch_size) else (),
            ),
        )
