"""``penstock ui``."""

from pathlib import Path

import click

from penstock.cli.arguments import RUN
from penstock.cli.command import command
from penstock.errors import ConfigurationError, SinkError
from penstock.extras import needs

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@command()
@click.argument("runs", type=RUN, default="runs")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=8471, show_default=True, type=click.IntRange(0, 65535), help="0 for any that is free.")
@click.option("--tokens", type=click.Path(path_type=Path), metavar="FILE", help="Who may look, as for the adapter.")
@click.option("--allow-host", "hosts", multiple=True, help="A name by which the page is asked.")
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="FILE", help="Write the page of a run as one file instead."
)
def ui(runs: Path, host: str, port: int, tokens: Path | None, hosts: tuple[str, ...], save: Path | None) -> None:
    """Show runs, live and past, on a page: what is measured, beside what is predicted.

    RUNS is where runs lie, or one run. Nothing of Spark is started; a run is read from its directory.

    \b
    Example:
      penstock ui
      penstock ui runs/divisibility --save report.html
    """
    with needs():
        from penstock.adapter.access import Access
        from penstock.ui.server import Page, saved, serve

    if save is not None:
        content = saved(runs)
        try:
            save.write_text(content, "utf-8")
        except OSError as error:
            raise SinkError(f"The page cannot be written to {save} ({error.strerror}).") from error
        click.echo(f"The page is in {save}.")
        return
    if host not in LOOPBACK and tokens is None:
        raise ConfigurationError(
            f"--host {host} shows the runs to who can reach it: say who may look with --tokens FILE, or leave out --host."
        )
    access = Access() if tokens is None else Access.read(tokens)
    serve(
        Page(runs, access, (host, *hosts)),
        host,
        port,
        lambda url: click.echo(f"The page is at {url}; Ctrl-C stops.", err=True),
    )
