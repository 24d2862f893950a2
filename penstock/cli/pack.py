"""``penstock pack``: say which applications are to share a driver."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.app.duration import above_zero
from penstock.cli.arguments import RECORDING
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.planner.packing import Packing


@command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=RECORDING)
@click.option("--cores", type=click.IntRange(min=1), metavar="N", help="Of a driver; those recorded, unless given.")
@click.option("--p95", metavar="T", help="Bound on the p95 of each; 1.1 times what it is alone, unless given.")
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def pack(runs: tuple[str, ...], cores: int | None, p95: str | None, as_json: bool) -> None:
    """Say which recorded applications are to share a driver, and how much slower each becomes.

    \b
    Example:
      penstock pack runs/orders runs/clicks runs/sensors --cores 4 --p95 5s
    """
    from rich.console import Console

    from penstock.planner import calibrate, observe
    from penstock.planner.interference import load_of
    from penstock.planner.packing import pack as packed

    names = [Path(run).name for run in runs]
    shown = [str(run) if names.count(name) > 1 else name for run, name in zip(runs, names, strict=True)]
    if len({*shown}) < len(shown):
        raise ConfigurationError("A recording is given twice: give each application once.")
    calibrations = {name: calibrate(observe(run)) for name, run in zip(shown, runs, strict=True)}
    recorded = [calibration.today.cores for calibration in calibrations.values()]
    if cores is None and (None in recorded or len(set(recorded)) > 1):
        raise ConfigurationError("The recordings have different numbers of cores, or do not say theirs: give --cores.")
    loads = [load_of(name, calibration) for name, calibration in calibrations.items()]
    with Console(stderr=True).status("Simulating drivers") as status:
        answer = packed(
            loads,
            float(cores or recorded[0] or 1),
            None if p95 is None else above_zero("--p95", p95),
            progress=lambda tried: status.update(f"Simulating drivers: {tried} so far"),
        )
    echo(json.dumps(answer.to_json(), indent=2) if as_json else _shown(answer))


def _shown(answer: Packing) -> str:
    """The answer as text for a person."""
    count = len(answer.drivers)
    proof = (
        "no fewer can do (by these predictions)"
        if count == answer.fewest
        else f"{answer.fewest} at least are needed, so this is at most {answer.gap:.0%} more than the best"
    )
    lines = [f"{count} driver{'s' * (count > 1)} of {answer.cores:g} cores; {proof}."]
    for number, driver in enumerate(answer.drivers, 1):
        lines.append(f"  driver {number}: {driver.busy_cores:.2f} of {answer.cores:g} cores busy (predicted)")
        lines += [
            f"    {name:20} p95 {driver.together[name]:.2f} s together, {driver.alone[name]:.2f} s alone, "
            f"{answer.bounds[name]:.2f} s allowed (predicted)"
            for name in driver.names
        ]
    return "\n".join(lines)
