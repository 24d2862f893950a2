"""``penstock audit``: recount a run from outside, its input against what its sinks hold."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from datetime import datetime
from pathlib import Path

import click

from penstock.cli.arguments import RUN, load, pairs, parameters
from penstock.cli.bar import Bar
from penstock.cli.command import Command
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError

CODES = {"sound": 0, "not sound": 1, "cannot tell": 2}


@click.command(cls=Command, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("run", type=RUN)
@click.option("--app", metavar="APP.py", help="The application; that of the run's last start unless given.")
@click.option("--source", "sources", multiple=True, metavar="NAME=URI", help="Where a source reads from, if not where it did.")
@click.option("--sink", "sinks", multiple=True, metavar="NAME=URI", help="Where a sink writes to, if not where it did.")
@click.option(
    "--since", metavar="T", help="Results committed before need not be there any more: a time, or a duration before now."
)
@click.option(
    "--sample",
    metavar="SHARE",
    default="100%",
    help="Compare a share of the rows, or of the keys of a sink with key=, as 0.01 or 1%.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@click.pass_context
def audit(
    context: click.Context,
    /,
    run: Path,
    app: str | None,
    sources: tuple[str, ...],
    sinks: tuple[str, ...],
    since: str | None,
    sample: str,
    as_json: bool,
) -> None:
    """Recount a run from outside: read again what its sources hold of what it has committed, and compare its sinks with that.

    Nothing is written. Exit code 0: every event has come to its results, once; 1: not so; 2: that cannot be told.

    \b
    Example:
      penstock audit runs/divisibility
    """
    from penstock.audit.auditor import Auditor
    from penstock.audit.sample import RowSample
    from penstock.runs.manifest import manifest_of
    from penstock.runs.starts import Loaded, last_start

    manifest_of(run)
    start = last_start(run)
    file = app or (start and start.application.file)
    if not file:
        raise ConfigurationError(f"{run} does not say which application it runs: name its file, as --app app.py.")
    recorded = start.application if start is not None else Loaded(None, "", {})
    values = {**recorded.parameters, **parameters(context.args, [])}
    hidden = [name for name, value in values.items() if value == "***"]
    if hidden:
        raise ConfigurationError(f"Parameter --{hidden[0]} is a secret, which a run does not keep: give it again.")
    application, reference = load(file if app or not recorded.name else f"{file}:{recorded.name}", values)
    known = (start.sources, start.sinks) if start is not None else ({}, {})
    uris = {**known[0], **pairs("--source", sources)}, {**known[1], **pairs("--sink", sinks)}
    with Bar("Auditing") as advance, redirect_stdout(sys.stderr):  # elements that run again may print
        auditor = Auditor(
            run,
            application,
            reference,
            sources=uris[0],
            sinks=uris[1],
            since=None if since is None else _moment(since),
            sample=RowSample(_share(sample)),
            advance=advance,
        )
        report = auditor.audit()
    echo(json.dumps(report.to_json(), indent=2) if as_json else report.to_text())
    sys.exit(CODES[report.verdict])


def _moment(text: str) -> float:
    """A time in ISO 8601, or a duration before now, in seconds since the epoch."""
    import time

    from penstock.app.duration import seconds_of

    now = time.time()
    try:
        moment = datetime.fromisoformat(text).timestamp()
    except ValueError:
        moment = now - seconds_of("--since", text)
    if moment > now:
        raise ConfigurationError(f"--since {text} is in the future, so no row would be looked for; give an earlier time.")
    return moment


def _share(text: str) -> float:
    """A share, given as a number or in percent."""
    number = text.removesuffix("%")
    try:
        return float(number) / (100 if number != text else 1)
    except ValueError:
        raise ConfigurationError(f"--sample {text}: give a share of the rows, as 0.01 or 1%.") from None
