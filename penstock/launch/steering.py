"""What steers a run that is to keep to a bound on its latency."""

import os
from dataclasses import replace

from penstock.app.application import App
from penstock.app.duration import above_zero
from penstock.engine.running.options import RunOptions
from penstock.errors import ConfigurationError
from penstock.launch.words import Companions
from penstock.planner.adapting import Adapting
from penstock.planner.doors import Doors
from penstock.planner.tuning import Target
from penstock.runs.decisions import in_force


def steered(app: App, options: RunOptions, companions: Companions) -> tuple[RunOptions, Adapting]:
    """The options, with the trigger that was decided last, and the planner that decides while the run is on.

    Raises:
        ConfigurationError: there is not exactly one bound, or the adapter of ``door`` cannot be asked.
    """
    if len(companions.bounds) != 1:
        raise ConfigurationError("Give one target, as --p95 5s (or --p99, --p50, --mean).")
    [(figure, bound)] = companions.bounds.items()
    directory = options.directory(app.name)
    decided = None if options.fresh else in_force(directory)
    if decided is not None:
        options = replace(options, trigger=decided.trigger_s)
    trigger = app.trigger if options.trigger is None else options.trigger
    return options, Adapting(
        directory,
        Target(figure, above_zero(f"--{figure}", bound)),
        trigger,
        dry_run=companions.dry_run,
        doors=_doors(app, companions),
        gates=None if decided is None else decided.doors,
    )


def _doors(app: App, companions: Companions) -> Doors | None:
    """The doors of the adapter that feeds the run, whose gates are to be adapted as well."""
    url = companions.door or (f"http://127.0.0.1:{companions.port}" if companions.adapter else None)
    if url is None:
        return None
    doors = Doors(url, [source.name for source in app.topology().sources], os.environ.get("PENSTOCK_TOKEN"))
    if companions.door:
        doors.check()
    return doors
