"""Probing: an application is run a few times for short, so that there are recordings of it; for ``observe`` and ``plan``."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.app.duration import seconds
from penstock.app.loader import load_app
from penstock.cli.arguments import pairs
from penstock.errors import ConfigurationError

Command = TypeVar("Command", bound=Callable[..., Any])

PROBES = ("0 s", "2 s", "5 s")
"""Triggers of the probes: micro-batches of three sizes tell what a row costs from what a micro-batch costs."""
STARTING_S = 25.0
"""What a start and the first, slow micro-batches take besides."""


def probes(command: Command) -> Command:
    """The options of a command that may probe: ``probe``, ``length``, ``uris`` and ``runs``."""
    for decorate in (
        click.option(
            "--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Where runs lie."
        ),
        click.option("--source", "uris", multiple=True, metavar="NAME=URI", help="Where a probe's source reads from."),
        click.option(
            "--seconds",
            "length",
            metavar="T",
            default="45 s",
            show_default=True,
            help="Length of a probe, after its start.",
        ),
        click.option(
            "--probe", is_flag=True, help="SOURCE is an application: run it three times for short, and take that."
        ),
    ):
        command = decorate(command)
    return command


def probed(apps: tuple[str, ...], runs: Path, length: str, uris: tuple[str, ...]) -> tuple[str, ...]:
    """Run an application at several triggers; returns the recordings."""
    if len(apps) != 1 or not apps[0].endswith(".py"):
        raise ConfigurationError("--probe runs one application: give its file alone, as app.py --probe.")
    application, reference = load_app(apps[0], {})
    from penstock.engine import RunOptions
    from penstock.engine import run as run_application

    lasting = seconds(length)
    options = RunOptions(runs=runs, sources=pairs("--source", uris), duration=STARTING_S + lasting, fresh=True)
    made = []
    for number, trigger in enumerate(PROBES, 1):
        name = f"{application.name}-probe-{number}"
        click.echo(f"probe {number} of {len(PROBES)}: {lasting:g} s at a trigger of {trigger} ...", err=True)
        result = run_application(
            application, replace(options, name=name, trigger=seconds(trigger)), application=reference
        )
        made.append(str(result.directory))
        if result.interrupted:
            raise click.Abort
    return tuple(made)
