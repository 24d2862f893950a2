"""Arguments of several commands: places, NAME=VALUE pairs, latency bounds, and applications with their own parameters."""

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from penstock.app.application import App
from penstock.app.loader import AppReference, load_app
from penstock.app.spelling import did_you_mean
from penstock.cli.command import Command
from penstock.errors import ConfigurationError, PenstockError
from penstock.storage.place import on_disk, path_of
from penstock.storage.reach import meet

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class DirectoryType(click.ParamType[Path]):
    """The parameter type of a directory on a disk or, as a URI, in a store."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not str(value):
            raise ConfigurationError(f"{param.opts[0] if param else 'A directory'} is empty; name a directory.")
        path = path_of(value)
        meet(path)
        return path


class SpoolType(click.ParamType[Path]):
    """The parameter type of the directory of an embedded log, which is on a disk of this machine."""

    name = "directory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return on_disk("--spool", value)


class FiniteRange(click.FloatRange):
    """A range of numbers without infinity, and without NaN, which no bound refuses."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not finite.", param, ctx)
        return number


class RunPlace(DirectoryType):
    """The parameter type of a run: its directory on a disk or in a store, or its name under ``runs``."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return super().convert(where_run_lies(str(value)), param, ctx)


class RecordingType(click.ParamType[str]):
    """The parameter type of a recording, as text: a file, a run's directory, or the name of a run under ``runs``."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return where_run_lies(str(value))


def where_run_lies(text: str) -> str:
    """The directory of a run that is named by its directory or by its name under ``runs``; other texts stay as they are.

    A directory of that name that is no run, as one of input, hides no run.
    """
    if not text:
        raise ConfigurationError("Name a run, or a directory; the text is empty.")
    from penstock.runs.manifest import is_run

    here, named = Path(text), Path("runs") / text
    hides = here.exists() and not (here.is_dir() and not is_run(here) and is_run(named))
    return str(named) if not hides and "/" not in text and named.is_dir() else text


WRITTEN = click.Path(path_type=Path, dir_okay=False, writable=True)
"""The parameter type of a file that a command writes."""
PLACE, RUN, RECORDING, SPOOL = DirectoryType(), RunPlace(), RecordingType(), SpoolType()
PAUSE = "--until-idle=pause"
OPTIONAL = ("--ui", "--otlp")
"""Options whose value may be left out, so that they take any text that follows them."""
PAUSES = "--pauses"
"""The option that stands for `PAUSE` in click: one with an optional value would swallow the application that follows it."""


class AppCommand(Command):
    """A command on an application; its help lists the application's own parameters, too, if one is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["app"] = next((text for text in args if text.partition(":")[0].endswith(".py")), None)
        for text in args:
            if text.startswith("--until-idle=") and text != PAUSE:
                raise ConfigurationError(f"{text}: write --until-idle, or {PAUSE} where more input is to come.")
        for option, following in pairwise(args):
            if option in OPTIONAL and following.partition(":")[0].endswith(".py"):
                raise ConfigurationError(f"{option} takes what follows it for its value: write {following} before {option}.")
        return super().parse_args(ctx, [PAUSES if text == PAUSE else text for text in args])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        file = ctx.meta.get("app")
        if not file:
            return
        try:
            app, _ = load(file)
        except PenstockError as error:
            formatter.write_paragraph()
            formatter.write_text(str(error))
            return
        rows = []
        for parameter in app.parameters.values():
            choices = f"; one of {', '.join(map(str, parameter.choices))}" if parameter.choices else ""
            rows.append(
                (
                    f"--{parameter.name} {type(parameter.default).__name__.upper()}",
                    f"{parameter.help}  [default: {parameter.default}{choices}]",
                )
            )
        if rows:
            with formatter.section(f"Parameters of {app.name}"):
                formatter.write_dl(rows)


def load(file: str, parameters: Mapping[str, str] | None = None, options: Iterable[str] = ()) -> tuple[App, AppReference]:
    """Load an application. What its file prints goes to standard error, for programs read what a command prints.

    Raises:
        ApplicationNotFoundError, ConfigurationError: see `load_app`.
    """
    with redirect_stdout(sys.stderr):
        return load_app(file, parameters, options)


def loaded(context: click.Context, file: str) -> tuple[App, AppReference]:
    """Load the application of a command, with its parameters from the rest of the command line."""
    options = [name for option in context.command.params for name in option.opts if name.startswith("--")]
    if file.startswith("-"):
        raise ConfigurationError(
            f"{file} is no option of this command{did_you_mean(file, options) or '.'} Parameters of an application follow it."
        )
    app, reference = load(file, parameters(context.args, options), options)
    for option in context.command.params:
        is_given = option.name is not None and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        if is_given and any(f"--{name}" in option.opts for name in app.parameters):
            raise ConfigurationError(
                f"{option.opts[0]} is an option of this command, and a parameter of the application: rename the parameter, "
                "which cannot be set here."
            )
    return app, reference


def refuse_given(why: str, *names: str) -> None:
    """Refuse options of the present command that it would ignore.

    Args:
        why: what is said after the option's name.
        names: of the options, as the command's function takes them.

    Raises:
        ConfigurationError: one of them was given.
    """
    context = click.get_current_context()
    for parameter in context.command.params:
        if parameter.name in names and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise ConfigurationError(f"{parameter.opts[0]} {why}.")


def pairs(flag: str, given: tuple[str, ...]) -> dict[str, str]:
    """Values by name, from a repeated option such as ``--source NAME=URI``."""
    values: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ConfigurationError(f"{flag} {text}: write NAME=VALUE.")
        if name in values:
            raise ConfigurationError(f"{flag} {name} is given twice, as {values[name]} and as {value}: give it once.")
        values[name] = value
    return values


def parameters(arguments: list[str], options: list[str]) -> dict[str, str]:
    """The application's parameters by name, from arguments that are no options of the command: ``--keys 4`` or ``--keys=4``."""
    values: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        if not argument.startswith("--"):
            raise ConfigurationError(f"{argument!r} is not understood here; options begin with --, as in --until-idle.")
        name, equals, value = argument[2:].partition("=")
        if not equals:
            value = next(rest, "")
            if not value or value.startswith("--"):
                raise ConfigurationError(
                    f"--{name} is no option of this command, and as a parameter it needs a value"
                    f"{did_you_mean(f'--{name}', options) or '.'}"
                )
        if name in values:
            raise ConfigurationError(f"--{name} is given twice, as {values[name]} and as {value}: give it once.")
        values[name] = value
    return values


def bounds(command: Decorated) -> Decorated:
    """Add the options ``--mean``, ``--p50``, ``--p95`` and ``--p99``, bounds on the latency, to a command."""
    names = {"mean": "mean", "p50": "median", "p99": "99th percentile", "p95": "95th percentile"}
    for name, words in names.items():
        command = click.option(f"--{name}", metavar="T", help=f"Bound on the {words} of the latency.")(command)
    return command
