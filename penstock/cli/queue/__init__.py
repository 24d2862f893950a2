"""``penstock queue``: solve, sweep, optimise and simulate one server."""

from importlib import import_module

import click

COMMANDS = ("solve", "sweep", "optimize", "simulate")


class _Commands(click.Group):
    """One command per module of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"penstock.cli.queue.{cmd_name}"), cmd_name)
        return command


@click.group(cls=_Commands)
def queue() -> None:
    """Predict how long events wait in a server with an external and an internal queue.

    The server is given by flags, or by a TOML file with a [server] table (or [micro_batch], for Spark's own gate)
    and, if costs matter, a [cost] table with "holding" and "transfer"; flags come before the file.

    \b
    Example:
      penstock queue solve --arrival-rate 750 --service-rate 1000 --batch-size 100 --timer-rate 500
    """
