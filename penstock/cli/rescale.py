"""``penstock rescale``: change the partitions, or the groups, of a run that is stopped."""

from itertools import islice
from pathlib import Path

import click
import msgspec

from penstock.cli.arguments import PLACE, load, pairs, refuse_given
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError, SourceError
from penstock.runs.manifest import manifest_of
from penstock.runs.moves import moves_of
from penstock.runs.starts import Start, last_start
from penstock.storage.place import path_of

MASKED = "***"
"""The text that a run stores in place of a secret."""


@command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1, 10_000), help="Partitions of each keyed hop.")
@click.option("--group", "groups", multiple=True, metavar="ELEMENT=GROUP", help="Put an element in a query of its own group.")
@click.option("--runs", type=PLACE, default="runs", show_default=True, help="Where runs lie.")
@click.option("--json", "as_json", is_flag=True, help="Print what was moved as JSON.")
def rescale(name: str, partitions: int | None, groups: tuple[str, ...], runs: Path, as_json: bool) -> None:
    """Change the partitions, or the groups, of a run that is stopped; all its state is kept and counted.

    The application is that of the run's last start, with its parameters. `penstock run` with --partitions or --group does the
    same, and goes on.

    \b
    Example:
      penstock rescale divisibility --partitions 4
    """
    from penstock.engine import RunOptions
    from penstock.engine import rescale as move

    if partitions is None and not groups:
        raise ConfigurationError(
            "Say what is to change: --partitions N, or --group ELEMENT=GROUP (which Spark query runs an element)."
        )
    if "/" in name:  # it is the run's directory
        refuse_given("belongs to the name of a run, and not to its directory: leave it out", "runs")
        runs, name = path_of(name).parent, path_of(name).name
    run = runs / name
    start = _last_start(run)
    known = start.application
    if not known.file:
        raise ConfigurationError(
            f"{name} was started from Python, so its file is not known: call penstock.run with partitions= there."
        )
    uris = [*start.sources.values(), *start.sinks.values(), start.hops or ""]
    settings = {**start.conf, **known.parameters}
    hidden = [*(uri for uri in uris if MASKED in uri), *(name for name, value in settings.items() if value == MASKED)]
    if hidden:
        raise ConfigurationError(
            f"{name} was started with {hidden[0]}, whose secret is not kept: start it with `penstock run ... --partitions N` "
            "instead, which moves it and goes on."
        )
    app, reference = load(f"{known.file}:{known.name}", known.parameters)
    options = RunOptions(
        name=name,
        runs=runs,
        sources=start.sources,
        sinks=start.sinks,
        master=start.master,
        partitions=partitions,
        groups=pairs("--group", groups),
        hops=start.hops,
        conf=start.conf,
        archives=tuple(start.archives),
        trigger=start.trigger,
    )
    before = len(list(moves_of(run)))
    move(app, options, application=reference)
    moved = next(islice(moves_of(run), before, None), None)
    if as_json:
        echo("{}" if moved is None else msgspec.json.encode(moved).decode())
    elif moved is not None:
        echo(f"{name}: {moved.instances:,} instances were moved in {moved.took_s:.1f} s, and counted again (measured).")
    else:
        echo(f"{name} has its new layout; there was no state to move.")


def _last_start(run: Path) -> Start:
    """The last start of a run.

    Raises:
        SourceError: there is no such run, or it was never started.
    """
    manifest_of(run)  # raises an error if it is no run
    start = last_start(run)
    if start is None:
        raise SourceError(f"{run} is no run that was started: name one that `penstock status` shows.")
    return start
