"""``penstock status``: say which runs are on, how far they are, and how fresh their results are."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.arguments import PLACE, RUN, refuse_given
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.errors import PenstockError
from penstock.visible import line

if TYPE_CHECKING:
    from penstock.runs.overview import Overview

WIDTH = 160
"""Columns of the output if it is no terminal."""


@command()
@click.argument("runs", metavar="[RUN]...", nargs=-1, type=RUN)
@click.option("--runs", "directory", type=PLACE, default="runs", show_default=True, help="Where runs lie.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def status(runs: tuple[Path, ...], directory: Path, as_json: bool) -> None:
    """Say which runs are on, how far they are, and how fresh their results are; all measured.

    \b
    Example:
      penstock status
      penstock status runs/divisibility --json
    """
    from rich.console import Console
    from rich.table import Table

    from penstock.runs.overview import overview, runs_in

    if runs:
        refuse_given("says where all runs lie: leave it out, or the names of runs", "directory")
    overviews = []
    for run in dict.fromkeys(runs) or runs_in(directory):
        try:
            overviews.append(overview(run))
        except PenstockError as error:
            if runs:
                raise
            echo(f"{run.name}: {error}", err=True)  # the others are shown
    if as_json:
        echo(json.dumps([run_overview.to_json() for run_overview in overviews], indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for name in ("run", "state"):
        table.add_column(name, no_wrap=True)
    for name in ("last commit", "batches", "accepted", "dead-lettered", "events/s", "p50", "p95", "trigger"):
        table.add_column(name, justify="right", no_wrap=True)
    for run_overview in overviews:
        table.add_row(*map(line, _row(run_overview)))
    console = Console()
    Console(width=console.width if console.is_terminal else WIDTH).print(table)


def _row(one: Overview) -> tuple[str, ...]:
    rate = "-" if one.rate is None else f"{one.rate:,.0f}"
    return (
        one.name,
        one.state,
        _age(one.last_commit),
        f"{one.batches:,}",
        _whole(one.accepted),
        _whole(one.dead_lettered),
        rate,
        _seconds(one.p50_s),
        _seconds(one.p95_s),
        _seconds(one.trigger_s),
    )


def _whole(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g} s"


def _age(moment: float | None) -> str:
    if moment is None:
        return "never"
    age = max(0.0, time.time() - moment)
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if age >= 2 * length:
            return f"{age / length:.0f} {unit} ago"
    return f"{age:.0f} s ago"
