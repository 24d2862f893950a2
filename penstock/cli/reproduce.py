"""``penstock reproduce``: the figures of the papers, with what they state beside what we get."""

from pathlib import Path

import click

from penstock.cli.command import command

FIGURES = ("fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "matrix-analytic", "allocation", "allocation-transfers")


@command()
@click.argument("what", type=click.Choice([*FIGURES, "all"]))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("reproduced"),
    show_default=True,
    help="A directory for the data (JSON) and the plots (PNG, SVG).",
)
def reproduce(what: str, output: Path) -> None:
    """Reproduce a figure of the papers: its data, its plot, and the values that the paper states beside ours.

    fig2 to fig7 and matrix-analytic are of the paper on stream-server queues; allocation and allocation-transfers
    compare all algorithms for the task allocation problem, over families of graphs, without and with transfer costs.
    With "all", figures that were written before are left as they are; delete one to draw it again.

    \b
    Example:
      penstock reproduce fig2 -o reproduced
    """
    from rich.console import Console
    from rich.table import Table

    from penstock.bench.figures import queues as figures

    console = Console(width=110)
    wanted = FIGURES if what == "all" else (what,)
    for name in wanted:
        if what == "all" and (output / f"{name}.json").exists():
            console.print(f"{name} is in {output} already.")
            continue
        with Console(stderr=True).status(f"Computing {name}"):
            figure = figures.FIGURES[name]()
            output.mkdir(parents=True, exist_ok=True)
            figure.write(output)
        table = Table(title=figure.plot.title, title_justify="left", box=None, pad_edge=False)
        for heading in ("", "paper", "predicted here", ""):
            table.add_column(heading, overflow="fold")
        for line in figure.comparisons:
            table.add_row(line.what, line.stated, line.ours, line.why)
        console.print(table)
        console.print(f"Wrote {output}/{name}.json, .svg and .png.\n")
