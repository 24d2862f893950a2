"""Probing, for ``observe`` and ``plan``: run an application three times for a short while, to get recordings of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.app.duration import above_zero
from penstock.cli.arguments import PLACE, load, pairs, refuse_given
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError

Command = TypeVar("Command", bound=Callable[..., Any])

APART, BETWEEN = (0.0, 5.0), 2.0
"""Triggers, in seconds, of the first two probes, and of the third if these do not tell a better one. Micro-batches of three
sizes are needed to tell the cost per row from the cost per micro-batch.
"""
STARTING_S = 25.0
"""Seconds that are added to a probe for the start and the first, slow micro-batches."""


def probes(command: Command) -> Command:
    """Add the options of probing to a command: ``probe``, ``length``, ``uris`` and ``runs``."""
    for decorate in (
        click.option("--runs", type=PLACE, default="runs", show_default=True, help="Where runs lie."),
        click.option("--source", "uris", multiple=True, metavar="NAME=URI", help="Where a probe's source reads from."),
        click.option(
            "--seconds", "length", metavar="T", default="45 s", show_default=True, help="Length of a probe, after its start."
        ),
        click.option("--probe", is_flag=True, help="SOURCE is an application: run it three times for short, and take that."),
    ):
        command = decorate(command)
    return command


def refuse_unprobed() -> None:
    """Refuse the options of probing where there is no ``--probe``."""
    refuse_given("belongs to --probe: add that, or leave it out", "length", "uris", "runs")


def probed(
    apps: tuple[str, ...],
    runs: Path,
    length: str,
    uris: tuple[str, ...],
    wanted: Callable[[tuple[str, ...]], float | None] = lambda recordings: None,
) -> tuple[str, ...]:
    """Run an application at three triggers; returns the directories of the runs.

    Args:
        wanted: from the recordings of the first two probes, the trigger of the third in seconds; None if these do not tell.
    """
    if len(apps) != 1 or not apps[0].endswith(".py"):
        raise ConfigurationError("--probe runs one application: give its file alone, as app.py --probe.")
    application, reference = load(apps[0])
    from penstock.engine import RunOptions
    from penstock.engine import run as run_application

    lasting = above_zero("--seconds", length)
    options = RunOptions(runs=runs, sources=pairs("--source", uris), duration=STARTING_S + lasting, fresh=True)
    made: tuple[str, ...] = ()
    for number in (1, 2, 3):
        trigger = APART[number - 1] if number < 3 else wanted(made) or BETWEEN
        name = f"{application.name}-probe-{number}"
        echo(f"probe {number} of 3: {lasting:g} s at a trigger of {trigger:g} s ...", err=True)
        result = run_application(application, replace(options, name=name, trigger=trigger), application=reference)
        made = (*made, str(result.directory))
        if result.interrupted:
            raise click.Abort
    return made
