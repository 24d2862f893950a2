"""The options of a run, with the same names on the command line and in Python."""

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from penstock.app.arguments import fits, shown, words_for
from penstock.app.duration import Duration, seconds_of
from penstock.app.spelling import did_you_mean
from penstock.engine.running.options import RunOptions
from penstock.errors import ConfigurationError
from penstock.storage.place import on_disk

DURATIONS = ("duration", "trigger", "checkpoint_every")
"""Options of `RunOptions` that are durations, which may be written as texts."""
PATHS = ("report", "plan", "spool")
"""Options that are files or directories of this machine, which may be written as texts."""
ALLOWED: dict[str, Any] = {
    **dict.fromkeys(DURATIONS, Duration),
    **dict.fromkeys(PATHS, str),
    "ui": bool,
    "otlp": bool,
    "archives": Sequence[str | Path],
    "runs": Any,  # a path in a store is none of pathlib's
}
"""What options may be given as, besides what they are kept as."""
MOST_PARTITIONS = 10_000


@dataclass(frozen=True)
class Companions:
    """What goes beside a run.

    Args:
        plan: a file that `penstock plan` has written; the run is started as it says.
        adapt: keep to a bound on the latency as rates change. Needs one of ``p95``, ``p99``, ``p50`` and ``mean``: the bound.
        dry_run: with ``adapt``: decide and write the decisions down, and change nothing.
        door: with ``adapt``: the address of the adapter that feeds the run, whose gates are chosen too; that of ``adapter``
            unless given.
        adapter: run an adapter for the sources and sinks that have no URI.
        port: which it listens on.
        spool: the directory of its event log.
        ui: the port of a page on the runs, at 127.0.0.1; 0 for any that is free, and None for no page.
        otlp: the address of an OpenTelemetry collector; an empty text for the usual one, and None for none.
        real_time: run in Spark's real-time mode.
    """

    plan: Path | None = None
    adapt: bool = False
    p95: Duration | None = None
    p99: Duration | None = None
    p50: Duration | None = None
    mean: Duration | None = None
    dry_run: bool = False
    door: str | None = None
    adapter: bool = False
    port: int = 8470
    spool: Path = Path("spool")
    ui: int | None = None
    otlp: str | None = None
    real_time: bool = False

    @property
    def bounds(self) -> dict[str, Duration]:
        """The bounds on the latency that were given, by the names of the figures."""
        named = {"p95": self.p95, "p99": self.p99, "p50": self.p50, "mean": self.mean}
        return {name: bound for name, bound in named.items() if bound is not None}

    def check(self, options: RunOptions) -> None:
        """Refuse what does not go together.

        Raises:
            ConfigurationError: names the two options.
        """
        if not self.adapt:
            asked = [f"--{name}" for name in self.bounds]
            asked += [option for option, value in (("--dry-run", self.dry_run), ("--door", self.door)) if value]
            if asked:
                raise ConfigurationError(f"{asked[0]} belongs to --adapt: add that, or leave it out.")
        if self.adapt and options.trigger is not None:
            raise ConfigurationError("--trigger fixes what --adapt is to choose: leave out the one or the other.")
        if self.real_time and self.adapter:
            raise ConfigurationError(
                "--real-time reads and writes Kafka only; start `penstock adapter` beside it, with --stream."
            )
        if self.real_time and (self.adapt or self.plan is not None):
            raise ConfigurationError("--plan and --adapt choose a trigger for micro-batches; --real-time has none.")
        if self.real_time and options.trigger is not None:
            raise ConfigurationError("--trigger is of micro-batches; --real-time has --checkpoint-every.")
        if not self.real_time and options.checkpoint_every != RunOptions.checkpoint_every:
            raise ConfigurationError("--checkpoint-every is of --real-time; micro-batches have --trigger.")


def divided(words: Mapping[str, Any]) -> tuple[RunOptions, Companions]:
    """The options of a run and what goes beside it, from all words together.

    Raises:
        ConfigurationError: a word that there is not, a value of another type, a number out of its range, or options that do
            not go together.
    """
    own, beside = ([field.name for field in fields(kind)] for kind in (RunOptions, Companions))
    for name in words:
        if name not in own and name not in beside:
            known = [*own, *beside]
            raise ConfigurationError(
                f"penstock.run has no option {name}{did_you_mean(name, known) or '; there are ' + ', '.join(known) + '.'}"
            )
    hints = typing.get_type_hints(RunOptions, localns={"SparkSession": Any}) | typing.get_type_hints(Companions)
    for name, value in words.items():
        hint = hints[name] | ALLOWED[name] if name in ALLOWED else hints[name]
        if not fits(value, hint):
            raise ConfigurationError(f"{name}={shown(value)}: give {words_for(hint)}.")
    partitions = words.get("partitions")
    if partitions is not None and not 1 <= partitions <= MOST_PARTITIONS:
        raise ConfigurationError(f"--partitions {partitions}: choose a number from 1 to {MOST_PARTITIONS}.")
    values = dict(words)
    for name in DURATIONS:
        if values.get(name) is not None:
            values[name] = seconds_of(f"--{name.replace('_', '-')}", values[name])
    for name in PATHS:
        if values.get(name) is not None:
            values[name] = on_disk("--spool", values[name]) if name == "spool" else Path(values[name])
    for name, usual in (("ui", 8471), ("otlp", "")):
        if values.get(name) is True:
            values[name] = usual
        elif values.get(name) is False:
            values[name] = None
    for name, least in (("port", 1), ("ui", 0)):
        port = values.get(name)
        if port is not None and not (isinstance(port, int) and least <= port <= 65_535):
            raise ConfigurationError(f"--{name} {port!r}: choose a port from {least} to 65535.")
    report = values.get("report")
    if report is not None and report.exists() and not report.is_file():
        raise ConfigurationError(f"--report {report} is no file: name one to write the report to.")
    options = RunOptions(**{name: value for name, value in values.items() if name in own})
    companions = Companions(**{name: value for name, value in values.items() if name in beside})
    companions.check(options)
    return options, companions
