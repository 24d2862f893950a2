"""``penstock bench``: evaluations that anyone can repeat."""

import shlex
import sys
from pathlib import Path

import click

from penstock.bench.s4.cells import Scale, cells_of
from penstock.cli.arguments import FiniteRange, refuse_given
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError


@click.group()
def bench() -> None:
    """Evaluations that anyone can repeat."""


@bench.command()
@click.option("--quick", "scale", flag_value="quick", default="quick", help="Each kind of cell once: some 15 minutes.")
@click.option("--standard", "scale", flag_value="standard", help="The paper's grid with fewer words: an hour or two.")
@click.option("--full", "scale", flag_value="full", help="The paper's grid, five repetitions: days.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("s4"),
    show_default=True,
    metavar="DIRECTORY",
    help="For cells/, cells.parquet, report.md and report.html; cells that are there are kept.",
)
@click.option("--cpu", type=FiniteRange(0.1, 64), default=0.5, show_default=True, help="Cores' worth of each node.")
@click.option("--memory", type=click.IntRange(min=512), default=1536, show_default=True, help="Megabytes of each node.")
@click.option("--isolated/--loopback", default=None, help="Insist on network namespaces, or do without.")
@click.option("--master", metavar="URL", help="Measure a cluster that exists, whose nodes are not killed.")
def s4(scale: Scale, output: Path, cpu: float, memory: int, isolated: bool | None, master: str | None) -> None:
    """Repeat the evaluation of Yahoo! S4 (2012): scalability, lost events, resources, and killed nodes.

    Starts a Spark cluster, a Kafka broker and a client on this machine; as root, each node in a network namespace with an
    address, counters and limits of its own. Interrupted, the same command goes on where it was.

    \b
    Example:
      penstock bench s4 --quick --output s4
    """
    if master is not None:
        refuse_given("limits nodes of this command's own, and --master names others: leave one of them out", "cpu", "isolated")
    from penstock.bench.s4.campaign import campaign
    from penstock.bench.s4.search import searches_of
    from penstock.engine.running.watch import interruptible

    command = f"penstock {shlex.join(sys.argv[1:])}"
    with interruptible():  # however it ends, no node, namespace or process is left behind
        failed = campaign(
            cells_of(scale),
            searches_of(scale),
            output,
            cpu=cpu,
            memory=memory,
            isolated=isolated,
            master=master,
            command=command,
            say=lambda text: echo(text, err=True),
        )
    echo(f"Wrote {output}/report.html, report.md, cells.parquet and cells/.")
    if failed:
        raise ConfigurationError(f"{failed} cells failed; the report names them, and the same command measures them again.")
