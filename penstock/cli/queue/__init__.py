"""``penstock queue``: solve, sweep, optimise and simulate one server."""

import os

import click

from penstock.cli.lazy import LazyGroup

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # threads wait for each other longer than these small matrices take

COMMANDS = {
    "solve": "Solve a server: mean numbers, transfers, response times.",
    "sweep": "Solve a server at every combination of some parameters' values.",
    "optimize": "Find the batch size and timer of least cost, jointly.",
    "simulate": "Simulate a server with any variability of arrivals and services.",
}


@click.group(cls=LazyGroup, package="penstock.cli.queue", lines=COMMANDS)
def queue() -> None:
    """Predict how long events wait in a server with an external and an internal queue.

    The server is given by flags, or by a TOML file with a [server] table (or [micro_batch], for Spark's own gate)
    and, if costs matter, a [cost] table with "holding" and "transfer"; flags come before the file.

    \b
    Example:
      penstock queue solve --arrival-rate 750 --service-rate 1000 --batch-size 100 --timer-rate 500
    """
