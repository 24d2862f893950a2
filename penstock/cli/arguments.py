"""Arguments that several commands take: pairs, bounds on a latency, and an application with its own parameters."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.app.application import App
from penstock.app.loader import AppReference, load_app
from penstock.app.spelling import did_you_mean
from penstock.cli.command import Command
from penstock.errors import ConfigurationError, PenstockError
from penstock.storage.place import path_of
from penstock.storage.reach import meet

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


class Place(click.ParamType[Path]):
    """A directory on a disk, or the URI of one in a store."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        path = path_of(value)
        meet(path)
        return path


class RunPlace(Place):
    """A run: its directory on a disk or in a store, or its name under ``runs``."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return super().convert(where_run_lies(str(value)), param, ctx)


class Recording(click.ParamType[str]):
    """A recording, as text: a file, or a run by its directory or by its name under ``runs``."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return where_run_lies(str(value))


def where_run_lies(text: str) -> str:
    """A run's directory, of which its name may be given."""
    named = Path("runs") / text
    return str(named) if not Path(text).exists() and "/" not in text and named.is_dir() else text


PLACE, RUN, RECORDING = Place(), RunPlace(), Recording()
PAUSE = "--until-idle=pause"
PAUSES = "--pauses"
"""What click knows the former by: an option whose value may be left out would take the application that follows for it."""


class AppCommand(Command):
    """A command on an application, whose help tells the application's own parameters, too, where one is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["app"] = next((one for one in args if one.partition(":")[0].endswith(".py")), None)
        for one in args:
            if one.startswith("--until-idle=") and one != PAUSE:
                raise ConfigurationError(f"{one}: write --until-idle, or {PAUSE} where more input is to come.")
        return super().parse_args(ctx, [PAUSES if one == PAUSE else one for one in args])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        file = ctx.meta.get("app")
        if not file:
            return
        try:
            app, _ = load_app(file)
        except PenstockError as error:
            formatter.write_paragraph()
            formatter.write_text(str(error))
            return
        rows = []
        for one in app.parameters.values():
            choices = f"; one of {', '.join(map(str, one.choices))}" if one.choices else ""
            rows.append(
                (f"--{one.name} {type(one.default).__name__.upper()}", f"{one.help}  [default: {one.default}{choices}]")
            )
        if rows:
            with formatter.section(f"Parameters of {app.name}"):
                formatter.write_dl(rows)


def loaded(context: click.Context, file: str) -> tuple[App, AppReference]:
    """The application of a command, with the parameters that the command line gives it."""
    options = [name for one in context.command.params for name in one.opts if name.startswith("--")]
    return load_app(file, parameters(context.args, options), options)


def pairs(flag: str, given: tuple[str, ...]) -> dict[str, str]:
    """Values by name, from options such as ``--source NAME=URI``."""
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
    """The application's parameters, from what the command itself did not know: ``--keys 4`` or ``--keys=4``."""
    found: dict[str, str] = {}
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
        if name in found:
            raise ConfigurationError(f"--{name} is given twice, as {found[name]} and as {value}: give it once.")
        found[name] = value
    return found


def bounds(command: Decorated) -> Decorated:
    """A bound on a figure of the latency."""
    names = {"mean": "mean", "p50": "median", "p99": "99th percentile", "p95": "95th percentile"}
    for name, words in names.items():
        command = click.option(f"--{name}", metavar="T", help=f"Bound on the {words} of the latency.")(command)
    return command
