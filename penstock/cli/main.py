"""The ``penstock`` command. Its verbs fail with one sentence on standard error and exit code 2."""

import io
import os
import sys
from typing import Any

import click

import penstock
from penstock.cli.echo import echo
from penstock.cli.lazy import LazyGroup
from penstock.errors import PenstockError
from penstock.extras import needs

VERBS = {
    "run": "Run an application on Spark.",
    "adapter": "Take events from clients over HTTP, and answer with results.",
    "graph": "Check an application's topology, and draw it.",
    "prove": "Try whether an application's results are always the same.",
    "schema": "Print the schema of an event type, or the event type of a schema.",
    "status": "Say which runs are on, how far they are, and how fresh their results are.",
    "rescale": "Change the partitions, or the groups, of a run that is stopped.",
    "ui": "Show runs on a page, live and past: what is measured beside what is predicted.",
    "audit": "Recount a run from outside: its input against what its sinks hold.",
    "letters": "Say what became a dead letter in a run, and write it out to be read again.",
    "new": "Make a small project: an application, its test, its input.",
    "observe": "Say what a recording shows of a query.",
    "predict": "Predict the latency of a recorded query at another setting.",
    "tune": "Say which trigger to set for a latency target.",
    "plan": "Choose how an application is to be run, for a target or a price.",
    "pack": "Say which applications are to share a driver.",
    "queue": "Solve, sweep, optimise and simulate the queue of one server.",
    "allocate": "Allocate the tasks of a graph to resources.",
    "reproduce": "Reproduce a figure of the papers.",
    "bench": "Evaluations that anyone can repeat.",
}


@click.group(
    cls=LazyGroup,
    package="penstock.cli",
    lines=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(penstock.__version__, prog_name="penstock")
def cli() -> None:
    """Stream processing on Apache Spark that knows how long events will wait.

    \b
    Example:
      penstock new hello && cd hello && penstock run app.py --until-idle
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; for an error of the user's it prints one sentence and exits with 2."""
    _require_output()
    try:
        with needs():
            cli.main(args=arguments, prog_name="penstock", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _fail(error.format_message())
    except click.exceptions.Abort as error:
        if isinstance(error.__cause__, EOFError):  # click takes any EOFError for a closed terminal
            _fail_within(error.__cause__)
        _fail("interrupted.", 130)
    except PenstockError as error:
        _fail(str(error))
    except ConnectionError as error:
        _fail(f"a connection was refused or lost ({error}): see that what is at its other end runs, and run again.")
    except MemoryError as error:
        _fail(f"there is too little memory for this{f' ({error})' if str(error) else ''}: ask for less at once.")
    except OSError as error:
        where = error.filename or "standard output, or a file"
        _fail(f"{where}: {error.strerror or error}; free space or mend permissions, and run again.")
    except Exception as error:
        _fail_within(error)


def _require_output() -> None:
    """Refuse to start without a standard output; what the terminal's encoding lacks is spelled by its number."""
    if sys.stdout is None:
        _fail("standard output is closed, so no answer could be read: redirect it instead, as >/dev/null.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _fail_within(error: BaseException) -> None:
    if os.environ.get("PENSTOCK_DEBUG"):
        raise error
    _fail(f"internal error: {type(error).__name__}: {error}; set PENSTOCK_DEBUG=1 to see where.", 1)


def _fail(sentence: str, code: int = 2) -> Any:
    echo(f"penstock: {sentence}", err=True)
    sys.exit(code)
