"""The ``penstock`` command, and how its verbs fail: one sentence on standard error, exit code 2."""

import os
import sys
from importlib import import_module
from typing import Any

import click

import penstock
from penstock.app.spelling import did_you_mean
from penstock.errors import PenstockError
from penstock.extras import needs

VERBS = ("run", "adapter", "graph", "new", "observe", "predict", "tune", "queue", "allocate", "reproduce", "bench")


class _Verbs(click.Group):
    """One command per module of this package, imported when it is needed: ``run`` need not wait for SciPy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in VERBS:
            near = did_you_mean(args[0], VERBS) or f"; there are {', '.join(VERBS)}."
            raise click.UsageError(f"There is no command {args[0]}{near}", ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(import_module(f"penstock.cli.{cmd_name}"), cmd_name)
        return command


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(penstock.__version__, prog_name="penstock")
def cli() -> None:
    """Stream processing on Apache Spark that knows how long events will wait.

    \b
    Example:
      penstock new hello && cd hello && penstock run app.py --until-idle
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exits 2 with one sentence for input that cannot be used."""
    try:
        with needs():
            cli.main(args=arguments, prog_name="penstock", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _fail(error.format_message())
    except click.exceptions.Abort:
        _fail("interrupted.", 130)
    except PenstockError as error:
        _fail(str(error))
    except ConnectionError as error:
        _fail(f"a connection was refused or lost ({error}): see that what is at its other end runs, and run again.")
    except OSError as error:
        _fail(
            f"{error.filename or 'a file'}: {error.strerror or error}; free space or mend permissions, and run again."
        )
    except Exception as error:
        if os.environ.get("PENSTOCK_DEBUG"):
            raise
        _fail(f"internal error: {type(error).__name__}: {error}; set PENSTOCK_DEBUG=1 to see where.", 1)


def _fail(sentence: str, code: int = 2) -> Any:
    click.echo(f"penstock: {sentence}", err=True)
    sys.exit(code)
