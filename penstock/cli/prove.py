"""``penstock prove``: try whether an application's results are always the same."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from penstock.app.topology import Topology
from penstock.cli.arguments import AppCommand, FiniteRange, loaded, pairs, refuse_given
from penstock.cli.bar import Bar
from penstock.cli.echo import echo
from penstock.cli.proving import prove_query
from penstock.errors import ConfigurationError
from penstock.extras import needs


@click.command(cls=AppCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("app", metavar="APP.py", required=False)
@click.option(
    "--sample",
    "samples",
    multiple=True,
    metavar="[SOURCE=]FILE",
    help="Events, as JSON Lines; drawn from their types unless given.",
)
@click.option("--seed", default=0, show_default=True, help="Of what is drawn.")
@click.option("--tries", default=240, show_default=True, type=click.IntRange(1), metavar="N", help="Stop after so many runs.")
@click.option("--seconds", type=FiniteRange(1), metavar="S", help="Stop after so long; 20, or 60 with --query, unless given.")
@click.option("--query", metavar="FILE.py:build", help="Prove a Structured Streaming query of your own, on Spark.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With --query: write a page with the schedules.",
)
@click.option("--packages", metavar="MAVEN", help="With --query: jars that Spark needs, as GROUP:NAME:VERSION,...")
@click.option("--conf", "settings", multiple=True, metavar="KEY=VALUE", help="With --query: a setting for Spark.")
@click.option("--on-spark", is_flag=True, help="Then repeat some of it on Spark, and kill the driver.")
@click.option("--json", "as_json", is_flag=True, help="Print what was tried and found as JSON.")
@click.pass_context
def prove(context: click.Context, /, app: str | None, **given: Any) -> None:
    """Run an application in memory in many ways that must all come to the same, and say what does not, where, and why.

    It is killed and replayed, restarted, cut into other micro-batches, given its events in other orders, partitions, hash seeds
    and clocks. With --query, a query of your own is run on Spark and its driver ended at each step of a micro-batch: is it
    exactly once?
    Exit code 0: nothing was found; 1: something was.

    \b
    Example:
      penstock prove app.py --sample Words=words.jsonl
      penstock prove --query jobs.py:build --sample input.jsonl --html jobs.html
    """
    if (app is None) == (given["query"] is None):
        raise ConfigurationError("Name what is to be proved: an application, as app.py, or a query, as --query jobs.py:build.")
    if app is None:
        refuse_given("is for applications: leave it out with --query", "tries", "seed", "on_spark")
        prove_query(given["query"], given)
    else:
        refuse_given("belongs to --query: leave it out", "html", "packages", "settings")
        _prove(context, app, given)


def _prove(context: click.Context, app: str, given: Mapping[str, Any]) -> None:
    """Prove an application; exits with 1 if something was found."""
    samples, as_json = given["samples"], given["as_json"]
    application, reference = loaded(context, app)
    with needs():
        from penstock.testing.proof.prover import SECONDS, Prover
        from penstock.testing.proof.sample import drawn_sample, sample_in

    topology = application.topology()
    sample = sample_in(_files(samples, topology), topology) if samples else drawn_sample(topology, given["seed"])
    with Bar("Proving") as advance:
        prover = Prover(
            application,
            reference,
            sample,
            seed=given["seed"],
            runs=given["tries"],
            seconds=given["seconds"] or SECONDS,
            drawn=not samples,
            advance=advance,
        )
        proof = prover.prove()
    if given["on_spark"]:
        from penstock.testing.proof.on_spark import repeat_on_spark

        with Bar("On Spark") as advance:
            repeat_on_spark(app, context.args, topology, sample, proof, advance)
    echo(msgspec.json.format(msgspec.json.encode(proof), indent=2).decode() if as_json else proof.to_text())
    if not proof.sound:
        sys.exit(1)


def _files(samples: tuple[str, ...], topology: Topology) -> dict[str, Path]:
    """The sample file of each source; with one source and one file, the source's name may be left out."""
    names = [source.name for source in topology.sources]
    if len(samples) == 1 and len(names) == 1 and not samples[0].startswith(f"{names[0]}="):
        if "=" in samples[0] and not Path(samples[0]).exists():
            raise ConfigurationError(f"There is no source {samples[0].partition('=')[0]}; the application has {names[0]}.")
        return {names[0]: Path(samples[0])}
    return {name: Path(file) for name, file in pairs("--sample", samples).items()}
