"""``penstock prove``."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

import click
import msgspec

from penstock.app.topology import Topology
from penstock.cli.arguments import AppCommand, loaded, pairs
from penstock.cli.bar import Bar
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError
from penstock.extras import needs


@click.command(cls=AppCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("app", metavar="APP.py")
@click.option(
    "--sample",
    "samples",
    multiple=True,
    metavar="[SOURCE=]FILE",
    help="Events, as JSON Lines; drawn from their types unless given.",
)
@click.option("--seed", default=0, show_default=True, help="Of what is drawn.")
@click.option(
    "--tries", default=240, show_default=True, type=click.IntRange(1), metavar="N", help="Stop after so many runs."
)
@click.option(
    "--seconds", default=20.0, show_default=True, type=click.FloatRange(1), metavar="S", help="Stop after so long."
)
@click.option("--on-spark", is_flag=True, help="Then repeat some of it on Spark, and kill the driver.")
@click.option("--json", "as_json", is_flag=True, help="Print what was tried and found as JSON.")
@click.pass_context
def prove(
    context: click.Context, /, app: str, samples: tuple[str, ...], seed: int, tries: int, seconds: float, on_spark: bool, as_json: bool
) -> None:  # fmt: skip
    """Run an application in memory in many ways that must all come to the same, and say what does not, where, and why.

    It is killed and replayed, restarted, cut into other micro-batches, given its events in other orders, partitions, hash seeds and
    clocks. Exit code 0: nothing was found; 1: something was.

    \b
    Example:
      penstock prove app.py --sample Words=words.jsonl
    """
    with redirect_stdout(sys.stderr):  # what the file prints as it is loaded is no part of the answer
        application, reference = loaded(context, app)
    with needs():
        from penstock.testing.proof.prover import Prover
        from penstock.testing.proof.sample import drawn_sample, sample_in

    topology = application.topology()
    sample = sample_in(_files(samples, topology), topology) if samples else drawn_sample(topology, seed)
    with Bar("Proving") as advance:
        prover = Prover(
            application, reference, sample, seed=seed, runs=tries, seconds=seconds, drawn=not samples, advance=advance
        )
        proof = prover.prove()
    if on_spark:
        from penstock.testing.proof.on_spark import repeat_on_spark

        with Bar("On Spark") as advance:
            repeat_on_spark(app, context.args, topology, sample, proof, advance)
    echo(msgspec.json.format(msgspec.json.encode(proof), indent=2).decode() if as_json else proof.to_text())
    if not proof.sound:
        sys.exit(1)


def _files(samples: tuple[str, ...], topology: Topology) -> dict[str, Path]:
    """The file of each source's sample; where there is one source, its name may be left out."""
    names = [source.name for source in topology.sources]
    if len(samples) == 1 and len(names) == 1 and not samples[0].startswith(f"{names[0]}="):
        if "=" in samples[0] and not Path(samples[0]).exists():
            raise ConfigurationError(
                f"There is no source {samples[0].partition('=')[0]}; the application has {names[0]}."
            )
        return {names[0]: Path(samples[0])}
    return {name: Path(file) for name, file in pairs("--sample", samples).items()}
