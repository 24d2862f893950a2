"""``penstock ui``: show runs on a page, live and past."""

from pathlib import Path

import click

from penstock.cli.arguments import RUN, WRITTEN, refuse_given
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.cli.page import write_page
from penstock.errors import ConfigurationError
from penstock.extras import needs


@command()
@click.argument("runs", type=RUN, default="runs")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=8471, show_default=True, type=click.IntRange(0, 65535), help="0 for any that is free.")
@click.option("--tokens", type=click.Path(path_type=Path), metavar="FILE", help="Who may look, as for the adapter.")
@click.option("--certificate", type=click.Path(path_type=Path), help="PEM file; with --private-key, serves TLS.")
@click.option("--private-key", type=click.Path(path_type=Path), help="PEM file.")
@click.option("--behind-proxy", is_flag=True, help="A proxy has the TLS, where other machines can ask.")
@click.option("--allow-host", "hosts", multiple=True, help="A name by which the page is asked.")
@click.option("--save", type=WRITTEN, metavar="FILE", help="Write the page of a run as one file instead.")
def ui(
    runs: Path,
    host: str,
    port: int,
    tokens: Path | None,
    certificate: Path | None,
    private_key: Path | None,
    behind_proxy: bool,
    hosts: tuple[str, ...],
    save: Path | None,
) -> None:
    """Show runs, live and past, on a page: what is measured, beside what is predicted.

    RUNS is where runs lie, or one run. Nothing of Spark is started; a run is read from its directory.

    \b
    Example:
      penstock ui
      penstock ui runs/divisibility --save report.html
    """
    with needs():
        from penstock.ui.server import Page, saved, serve
        from penstock.web.access import Access
        from penstock.web.exposure import check_exposure
        from penstock.web.server import Certificate

    if save is not None:
        refuse_given(
            "belongs to a page that is served: leave it out, or --save",
            *("host", "port", "tokens", "certificate", "private_key", "behind_proxy", "hosts"),
        )
        write_page(save, saved(runs))
        echo(f"The page is in {save}.")
        return
    if not runs.is_dir():
        if runs.exists():
            raise ConfigurationError(f"{runs} is no directory: name the one where runs lie, or a run.")
        echo(f"There is no {runs} yet; its runs are shown once there are some.", err=True)
    tls = Certificate.of(certificate, private_key)
    check_exposure("the page", host, tokens=tokens is not None, secret=tls is not None or behind_proxy)
    access = Access() if tokens is None else Access.read(tokens)
    serve(
        Page(runs, access, (host, *hosts), secure=tls is not None or behind_proxy),
        host,
        port,
        lambda url: echo(f"The page is at {url}; Ctrl-C stops.", err=True),
        tls,
    )
