"""``penstock graph``: draw an application's topology without running it."""

import json
from pathlib import Path

import click

from penstock.app.drawing import mermaid
from penstock.app.picture import svg
from penstock.app.topology import Topology
from penstock.cli.arguments import WRITTEN, load
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError, PenstockError, SinkError


@command()
@click.argument("app", metavar="APP.py")
@click.option("--output", "-o", type=WRITTEN, help="A .svg, .mmd or .json file; Mermaid to the screen unless given.")
@click.option("--explain", is_flag=True, help="Say by what each element is executed, and why, in place of a drawing.")
def graph(app: str, output: Path | None, explain: bool) -> None:
    """Check an application's topology and draw it, as Mermaid, SVG or JSON.

    \b
    Example:
      penstock graph examples/divisibility/app.py -o topology.svg
    """
    topology = load(app)[0].topology()
    if explain:
        if output is not None:
            raise ConfigurationError("--explain writes to the screen, and --output is for a drawing: give one of them.")
        _explain(topology)
        return
    if output is None:
        echo(mermaid(topology), nl=False)
        return
    forms = {
        ".svg": lambda: svg(topology),
        ".mmd": lambda: mermaid(topology),
        ".json": lambda: json.dumps(topology.to_json(), indent=2) + "\n",
    }
    if output.suffix not in forms:
        raise ConfigurationError(f"{output}: choose a name that ends in {', '.join(forms)}.")
    try:
        output.write_text(forms[output.suffix]())
    except OSError as error:
        raise SinkError(f"{output} cannot be written ({error.strerror}); choose another place.") from error
    echo(f"Wrote {output}.")


def _explain(topology: Topology) -> None:
    """Print how each element is executed, and in which modes the application can run."""
    from penstock.runtime.modes import refuse_in_memory, refuse_in_real_time
    from penstock.runtime.together.explanation import executions

    for each in executions(topology):
        echo(f"{each.element} ({each.dialect} dialect): {each.by}, for {each.why}.")
    for mode, refuse in (("In memory, for tests", refuse_in_memory), ("In Spark's real-time mode", refuse_in_real_time)):
        try:
            refuse(topology)
            echo(f"{mode}: yes, as far as the application says.")
        except PenstockError as error:
            echo(f"{mode}: no. {error}")
