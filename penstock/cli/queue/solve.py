"""``penstock queue solve``: solve a server exactly."""

from typing import Any

import click

from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.cli.queue.given import read, server_options
from penstock.cli.queue.show import QUANTILES, costed, quantile_name, show
from penstock.errors import NotSolvableError


@command()
@server_options
@click.option("--method", type=click.Choice(["auto", "spectral", "iterative", "chain"]), default="auto", show_default=True)
def solve(method: str, as_json: bool, **given: Any) -> None:
    """Solve a server exactly: mean numbers, transfers, response times and their quantiles.

    \b
    Example:
      penstock queue solve --arrival-rate 750 --service-rate 1000 --batch-size 25 --timer-rate 600 \\
          --holding-cost 1 --transfer-cost 0.05
    """
    from penstock.queueing import solve as solved

    server, costs = read(given)
    solution = solved(server, method)
    numbers = costed(solution, costs)
    try:
        numbers |= {quantile_name(p): solution.quantile(p) for p in QUANTILES}
    except NotSolvableError as error:
        echo(f"No quantiles: {error}", err=True)
    show(numbers, solution.FIGURES, "predicted", as_json=as_json)
