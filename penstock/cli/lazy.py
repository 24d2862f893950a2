"""A group of commands that are imported on demand, so that `penstock --help` need not wait for SciPy."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from penstock.app.spelling import did_you_mean


class LazyGroup(click.Group):
    """A group with one command per module of a package.

    Args:
        package: its modules each contain a command of the module's name.
        lines: a line of help for each command, by name; a test checks that the commands exist.
    """

    def __init__(self, *arguments: Any, package: str, lines: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._package, self._lines = package, lines

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lines)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self._lines:
            near = did_you_mean(args[0], self._lines) or f"; there are {', '.join(self._lines)}."
            raise click.UsageError(f"There is no command {args[0]}{near}", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lines:
            return None
        command: click.Command = getattr(import_module(f"{self._package}.{cmd_name}"), cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands, without importing any."""
        begun = [name for name in self._lines if name.startswith(incomplete)]
        return [
            *(CompletionItem(name, help=self._lines[name]) for name in begun),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self._lines.items()))
