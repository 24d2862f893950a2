"""Options for recordings, targets and settings, shared by ``observe``, ``predict``, ``tune`` and ``plan``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from penstock.app.duration import above_zero, seconds_of
from penstock.cli.arguments import RECORDING, FiniteRange
from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.planner.setting import Arrivals, Setting
    from penstock.planner.tuning import Target

Command = TypeVar("Command", bound=Callable[..., Any])


def recordings(command: Command) -> Command:
    """Add the arguments that name the recordings, and a query of them, to a command."""
    for decorate in (
        click.option("--recorded-cores", type=FiniteRange(1), metavar="N", help="The query's cores, where not recorded."),
        click.option("--query", metavar="NAME", help="Which query, where a recording has several."),
        click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=RECORDING),
    ):
        command = decorate(command)
    return command


def setting_options(command: Command) -> Command:
    """Add the options of a setting to a command; what is left out stays as recorded."""
    for decorate in (
        click.option("--partitions", type=click.IntRange(min=1), metavar="N", help="Partitions of the query."),
        click.option("--cores", type=click.IntRange(min=1), metavar="N", help="Cores of the query."),
        click.option("--arrivals", metavar="A", help="poisson, a squared coefficient of variation, or a file of times (s)."),
        click.option("--max-rows", type=click.IntRange(min=1), metavar="N", help="Most rows in a micro-batch."),
        click.option("--max-delay", metavar="T", help="Time after which one row opens the gate."),
        click.option("--min-rows", type=click.IntRange(min=1), metavar="N", help="Rows that open the gate."),
        click.option("--rate", metavar="R", help="Rows per second, or a multiple of the recorded ones, as 2x."),
        click.option("--trigger", metavar="T", help="Time between the starts of micro-batches; 0 for none."),
    ):
        command = decorate(command)
    return command


def target_of(given: dict[str, str | None]) -> Target:
    """The target from the options ``--mean``, ``--p50``, ``--p95`` and ``--p99``, of which one must be given."""
    from penstock.planner.tuning import Target

    named = [(name, text) for name, text in given.items() if text is not None]
    if len(named) != 1:
        raise ConfigurationError("Give one target, as --p95 5s (or --p99, --p50, --mean).")
    name, text = named[0]
    return Target(name, above_zero(f"--{name}", text))


def setting_of(given: dict[str, Any]) -> Setting:
    """The setting that the options describe."""
    from penstock.planner.setting import Setting

    return Setting(
        trigger=None if given["trigger"] is None else seconds_of("--trigger", given["trigger"]),
        rate=given["rate"],
        min_rows=given["min_rows"],
        max_delay=None if given["max_delay"] is None else seconds_of("--max-delay", given["max_delay"]),
        max_rows=given["max_rows"],
        arrivals=arrivals_of(given["arrivals"]),
        cores=given["cores"],
        partitions=given["partitions"],
    )


def what_if(given: dict[str, str]) -> Setting:
    """The setting that ``--what-if NAME=VALUE`` describes: rate, arrivals, cores."""
    from penstock.planner.setting import Setting

    unknown = sorted(set(given) - {"rate", "arrivals", "cores"})
    if unknown:
        raise ConfigurationError(f"--what-if {unknown[0]}=...: choose rate, arrivals or cores; tune chooses the rest.")
    cores = given.get("cores")
    if cores is not None and not cores.isdecimal():
        raise ConfigurationError(f"--what-if cores={cores}: give a whole number.")
    return Setting(
        rate=given.get("rate"), arrivals=arrivals_of(given.get("arrivals")), cores=None if cores is None else int(cores)
    )


def arrivals_of(text: str | None) -> Arrivals | None:
    """Arrivals from the text of an option: Poisson, a squared coefficient of variation, or the times in a file."""
    import numpy as np

    if text is None or text == "poisson":
        return text
    try:
        return float(text)
    except ValueError:
        pass
    try:
        times: list[float] = np.loadtxt(Path(text), ndmin=1).tolist()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"--arrivals {text}: write poisson, a squared coefficient of variation, or a file with one time in seconds a line "
            f"({error})."
        ) from error
    return times
