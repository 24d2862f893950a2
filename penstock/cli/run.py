"""``penstock run``: run an application on Spark."""

import json
from functools import partial
from logging import NullHandler, getLogger
from pathlib import Path
from typing import Any

import click

from penstock.cli.arguments import PAUSES, PLACE, SPOOL, WRITTEN, AppCommand, bounds, loaded, pairs, refuse_given
from penstock.cli.echo import echo
from penstock.runtime.log import ELEMENT_LOG, LOG_LEVELS
from penstock.storage.place import here_of
from penstock.visible import line


@click.command(cls=AppCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("app", metavar="APP.py")
@click.option("--source", "sources", multiple=True, metavar="NAME=URI", help="Where a source reads from.")
@click.option("--sink", "sinks", multiple=True, metavar="NAME=URI", help="Where a sink writes to.")
@click.option("--master", default="local[*]", show_default=True, help="The Spark master.")
@click.option("--duration", metavar="T", help="Stop after a time, as '90 s' or '10 m'.")
@click.option("--trigger", metavar="T", help="Time between the starts of micro-batches; none unless given.")
@click.option(
    "--until-idle",
    is_flag=True,
    help="Stop when every source has been drained: the input has ended, and windows close. With =pause more is to come.",
)
@click.option(PAUSES, "pauses", is_flag=True, hidden=True)
@click.option("--report", type=WRITTEN, metavar="FILE", help="Write a copy of the report.")
@click.option("--take-over", is_flag=True, help="Fence off another process that is running this run, instead of giving up.")
@click.option("--fresh", is_flag=True, help="Discard what an earlier run of this name left, instead of resuming it.")
@click.option("--name", help="The run's name; the application's unless given.")
@click.option(
    "--runs",
    type=PLACE,
    default="runs",
    show_default=True,
    metavar="PLACE",
    help="Where runs lie: a directory, s3a://BUCKET/PATH or hdfs://HOST:PORT/PATH.",
)
@click.option("--partitions", type=int, help="Partitions of each keyed hop; a run that has others is moved.")
@click.option("--group", "groups", multiple=True, metavar="ELEMENT=GROUP", help="Run an element in a query of its own group.")
@click.option("--hops", metavar="kafka:BROKERS", help="Join groups by topics instead of files.")
@click.option("--adapter", is_flag=True, help="Run an adapter besides, for sources and sinks without a URI.")
@click.option("--port", default=8470, show_default=True, type=click.IntRange(1, 65535), help="The adapter's port.")
@click.option("--spool", type=SPOOL, default=Path("spool"), show_default=True, help="The adapter's event log.")
@click.option(
    "--ui",
    is_flag=False,
    flag_value=8471,
    type=click.IntRange(0, 65535),
    metavar="[PORT]",
    help="Show the run on a page at 127.0.0.1 while it is on.",
)
@click.option(
    "--otlp",
    is_flag=False,
    flag_value="",
    metavar="[URL]",
    help="Send a span for each micro-batch, and metrics, to an OpenTelemetry collector.",
)
@click.option("--real-time", is_flag=True, help="Run in Spark's real-time mode: Kafka to Kafka, query dialect only.")
@click.option("--checkpoint-every", metavar="T", default="5 m", show_default=True, help="Length of a real-time mode's batches.")
@click.option(
    "--retain",
    type=click.IntRange(100),
    default=50_000,
    show_default=True,
    metavar="N",
    help="Micro-batches that the recording keeps one by one; of older ones it keeps the sums.",
)
@click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    show_default=True,
    help="The least that is kept of what elements log, in elements.log of the run's directory.",
)
@click.option("--plan", type=click.Path(path_type=Path), metavar="FILE", help="Run as a plan says.")
@click.option(
    "--adapt", is_flag=True, help="Keep to a bound on the latency as rates change; needs --p95, --p99, --p50 or --mean."
)
@bounds
@click.option("--dry-run", is_flag=True, help="With --adapt: decide and write it down, and touch nothing.")
@click.option(
    "--door",
    metavar="URL",
    help="With --adapt: the adapter that feeds the run, whose gates are chosen too (with --adapter it is that one).",
)
@click.option("--archive", "archives", multiple=True, metavar="FILE", help="A packed environment for the executors.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting for Spark.")
@click.option("--json", "as_json", is_flag=True, help="Print the report instead of the summary.")
@click.pass_context
def run(context: click.Context, /, app: str, *, pauses: bool, as_json: bool, **words: Any) -> None:
    """Run an application until it is stopped, idle (--until-idle), or its time is up (--duration).

    A parameter of the application is set by its name. Ctrl-C stops; the same command resumes.

    \b
    Example:
      penstock run examples/divisibility/app.py --keys 4 --until-idle \\
          --source RawWords=text:data/divisibility/words
    """
    application, reference = loaded(context, app)
    if not words["adapter"]:
        refuse_given("belongs to --adapter: add that, or leave it out", "port", "spool")
    if not words["real_time"]:
        refuse_given("belongs to --real-time: add that, or leave it out", "checkpoint_every")
    from penstock.launch.starting import launch
    from penstock.launch.words import divided

    for name in ("sources", "sinks", "groups", "conf"):
        words[name] = pairs(f"--{name.removesuffix('s')}", words[name])
    if pauses:
        words["until_idle"] = "pause"
    if not getLogger().handlers:
        getLogger().addHandler(NullHandler())  # what libraries log of a Spark that has died is said in a sentence
    result = launch(application, reference, *divided(words), say=partial(echo, err=True))
    if as_json:
        echo(json.dumps(result.report, indent=2))
        return
    echo(summary(result.report, result.directory))
    if result.report["counts"].get("dead_letters"):
        letter = result.dead_letters[-1]
        where = letter.get("line") or letter["stream"]
        echo("  the last of them    " + line(f"{letter['element'] or 'decoding'}: {letter['error']} ({where})"))
    if result.interrupted:
        echo("Interrupted; the same command (without --fresh) resumes where this stopped.")


def summary(report: dict[str, Any], directory: Path) -> str:
    """What a person wants to know of a run that has ended. All figures are measured."""
    from penstock.connectors.lag import waiting_of

    counts = report["counts"]
    balance = (
        f"{report['application']}: {counts['accepted']:,} events accepted = {counts['processed']:,} processed + "
        f"{counts['dead_lettered']:,} dead-lettered + {counts['queued']:,} queued"
    )
    if "delivery" in report:
        balance += f" (as of the last checkpoint; results are delivered {report['delivery']})"
        topics = ", ".join(report["dead_letter_topics"])
        return f"{balance}\n  dead letters        in the topic {topics}" if counts["dead_lettered"] else balance
    latency = report["latency_ms"]
    lines = [
        f"{balance} (lost {counts['lost']:,}, duplicated {counts['duplicated']:,})",
        "  events per stream   " + ", ".join(f"{name} {count:,}" for name, count in report["streams"].items()),
    ]
    if report["throughput_events_per_s"]:
        rate, batches = report["throughput_events_per_s"], report["batches"]
        shown = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        lines.append(
            f"  throughput          {shown} source events/s in {batches} micro-batch{'' if batches == 1 else 'es'}, warm-up "
            "included (measured)"
        )
    if latency["p50"] is not None:
        shown = ", ".join(f"{name} {value / 1000:.2f} s" for name, value in latency.items())
        timed, written = report["timed_results"], sum(report["sinks"].values())
        others = f" of {written:,}; the others are of timers or windows" if timed < written else ""
        lines.append(
            f"  latency             {shown} (measured, intended send time to committed result, of {timed:,} results{others})"
        )
    for name, partitions in report["lag"].items():
        waiting = waiting_of(partitions)
        if waiting.rows:
            lines.append(f"  lag                 {name}: {waiting} (measured)")
    if counts["late"] or counts["late_in_part"]:
        part = f"; {counts['late_in_part']:,} more missed some of their windows" if counts["late_in_part"] else ""
        lines.append(f"  late events         {counts['late']:,}{part}")
    if counts["dead_letters"]:
        lines.append(f"  dead letters        {counts['dead_letters']:,} in {_relative(directory / 'dead-letters')}/")
    if (here_of(directory) / ELEMENT_LOG).exists():
        lines.append(f"  said by elements    {_relative(here_of(directory) / ELEMENT_LOG)}")
    lines.append(f"  report              {_relative(directory / 'report.json')}")
    return "\n".join(lines)


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
