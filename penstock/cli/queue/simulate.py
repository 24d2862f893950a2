"""``penstock queue simulate``: simulate a server with any variability of arrivals and services."""

from typing import Any

import click

from penstock.cli.bar import Bar
from penstock.cli.command import command
from penstock.cli.queue.given import read, server_options
from penstock.cli.queue.show import QUANTILES, costed, quantile_name, show
from penstock.errors import ConfigurationError


@command()
@server_options
@click.option("--jobs", type=int, default=2_000_000, show_default=True, help="Jobs to simulate.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--arrival-scv", type=float, default=1.0, show_default=True, help="Squared variation of interarrivals.")
@click.option("--service-scv", type=float, help="Squared variation of services; 1 unless given.")
def simulate(jobs: int, seed: int, arrival_scv: float, service_scv: float | None, as_json: bool, **given: Any) -> None:
    """Simulate a server with any variability of arrivals and services; 95% confidence intervals.

    \b
    Example:
      penstock queue simulate --arrival-rate 750 --service-rate 1000 --batch-size 25 --timer-rate 600 \\
          --arrival-scv 10 --jobs 5000000
    """
    from rich.progress import MofNCompleteColumn, TimeRemainingColumn

    from penstock.queueing import simulate as simulated
    from penstock.queueing import with_scv

    server, costs = read(given)
    laws = {"interarrival": with_scv(1 / server.arrival_rate, arrival_scv)}
    if service_scv is not None:
        rate = getattr(server, "service_rate", None)
        if rate is None:
            raise ConfigurationError("--service-scv needs a server with a service_rate; leave it out for this one.")
        laws["service"] = with_scv(1 / rate, service_scv)
    with Bar("simulating", MofNCompleteColumn(), TimeRemainingColumn()) as advance:
        run = simulated(server, jobs=jobs, seed=seed, progress=advance, **laws)
    numbers = costed(run, costs) | {quantile_name(p): run.quantile(p) for p in QUANTILES}
    show(numbers, run.FIGURES, "simulated, 95% confidence", as_json=as_json)
