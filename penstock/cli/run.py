"""``penstock run``: run an application on Spark."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from logging import NullHandler, getLogger
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from penstock.app.application import App
from penstock.app.duration import seconds
from penstock.app.loader import AppReference
from penstock.app.topology import Topology
from penstock.cli.arguments import PAUSES, PLACE, AppCommand, bounds, loaded, pairs
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError
from penstock.extras import needs
from penstock.runtime.log import ELEMENT_LOG, LOG_LEVELS
from penstock.storage import durable
from penstock.storage.place import here_of, path_of
from penstock.visible import line

if TYPE_CHECKING:
    from penstock.engine import RunOptions, RunResult
    from penstock.planner.adapting import Adapting
    from penstock.planner.doors import Doors


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
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE", help="Write a copy of the report.")
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
@click.option(
    "--spool", type=click.Path(path_type=Path), default=Path("spool"), show_default=True, help="The adapter's event log."
)
@click.option(
    "--ui",
    "ui_port",
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
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), metavar="FILE", help="Run as a plan says.")
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
def run(context: click.Context, /, app: str, **given: Any) -> None:
    """Run an application until it is stopped, idle (--until-idle), or its time is up (--duration).

    A parameter of the application is set by its name. Ctrl-C stops; the same command resumes.

    \b
    Example:
      penstock run examples/divisibility/app.py --keys 4 --until-idle \\
          --source RawWords=text:data/divisibility/words
    """
    application, reference = loaded(context, app)
    from penstock.engine import RunOptions

    if given["partitions"] is not None and not 1 <= given["partitions"] <= 10_000:
        raise ConfigurationError(f"--partitions {given['partitions']}: choose a number from 1 to 10000.")
    options = RunOptions(
        name=given["name"],
        runs=given["runs"],
        sources=pairs("--source", given["sources"]),
        sinks=pairs("--sink", given["sinks"]),
        master=given["master"],
        partitions=given["partitions"],
        duration=None if given["duration"] is None else seconds(given["duration"]),
        until_idle="pause" if given["pauses"] else given["until_idle"],
        trigger=None if given["trigger"] is None else seconds(given["trigger"]),
        fresh=given["fresh"],
        take_over=given["take_over"],
        report=given["report"],
        groups=pairs("--group", given["groups"]),
        hops=given["hops"],
        checkpoint_every=seconds(given["checkpoint_every"]),
        archives=given["archives"],
        conf=pairs("--conf", given["conf"]),
        retain=given["retain"],
        log_level=given["log_level"],
    )
    if given["plan_file"] is not None:
        from penstock.planner.plan import read_plan

        options = read_plan(given["plan_file"]).applied(application.topology(), options)
    options, steering = adapting(application, options, given)
    if given["real_time"] and given["adapter"]:
        raise ConfigurationError("--real-time reads and writes Kafka only; start `penstock adapter` besides, with --stream.")
    if given["real_time"] and (steering is not None or given["plan_file"] is not None):
        raise ConfigurationError("--plan and --adapt choose a trigger for micro-batches; --real-time has none.")
    if given["real_time"] and given["trigger"] is not None:
        raise ConfigurationError("--trigger is of micro-batches; --real-time has --checkpoint-every.")
    with shown(options, given["ui_port"]), told(options.directory(application.name), given["otlp"]):
        result = _run(context, app, application, reference, options, steering, given)
    if given["as_json"]:
        echo(json.dumps(result.report, indent=2))
        return
    echo(summary(result.report, result.directory))
    if result.report["counts"].get("dead_letters"):
        letter = result.dead_letters[-1]
        where = letter.get("line") or letter["stream"]
        echo("  the last of them    " + line(f"{letter['element'] or 'decoding'}: {letter['error']} ({where})"))
    if result.interrupted:
        echo("Interrupted; the same command (without --fresh) resumes where this stopped.")


@contextmanager
def shown(options: "RunOptions", port: int | None) -> Iterator[None]:
    """Within the block the run is on a page, where that is asked for."""
    if port is None:
        yield
        return
    with needs():
        from penstock.ui.server import Page, beside
        from penstock.web.access import Access
    with beside(Page(path_of(options.runs), Access()), "127.0.0.1", port) as url:
        echo(f"The runs are shown at {url}.", err=True)
        yield


@contextmanager
def told(run: Path, endpoint: str | None) -> Iterator[None]:
    """Within the block a collector is told of each micro-batch, where that is asked for."""
    if endpoint is None:
        yield
        return
    with needs():
        from penstock.ui.spans import exporting
    url = (endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "http://127.0.0.1:4318").rstrip("/")
    if urlsplit(url).scheme not in ("http", "https"):
        raise ConfigurationError(f"--otlp {url}: give the address of a collector's HTTP port, as http://127.0.0.1:4318.")
    with exporting(run, url):
        yield


def _run(
    context: click.Context,
    app: str,
    application: App,
    reference: AppReference,
    options: "RunOptions",
    steering: "Adapting | None",
    given: Mapping[str, Any],
) -> "RunResult":
    """Run in the way that is asked for."""
    from penstock.adapter.process import AdapterProcess

    if not getLogger().handlers:
        getLogger().addHandler(NullHandler())  # what libraries log of a Spark that has died is said in a sentence
    from penstock.engine import run as run_application

    if given["real_time"]:
        from penstock.engine.running.realtime import run_real_time  # needs the extra for Kafka

        return run_real_time(application, options, application=reference)
    if not given["adapter"]:
        return run_application(application, options, application=reference, steering=steering)
    topology = application.topology()
    options = with_spool(topology, options, given["spool"])
    command = [
        app,
        *context.args,
        "--spool",
        str(given["spool"]),
        "--port",
        str(given["port"]),
        *kafka_streams(topology, options),
    ]
    durable.make(given["spool"], 0o700)
    with AdapterProcess(command, "127.0.0.1", given["port"], given["spool"] / "adapter.log"):
        echo(f"The adapter listens on http://127.0.0.1:{given['port']}.", err=True)
        return run_application(application, options, application=reference, steering=steering)


def adapting(app: App, options: "RunOptions", given: Mapping[str, Any]) -> tuple["RunOptions", "Adapting | None"]:
    """What steers the run, where that is asked for; it starts with the trigger that was decided last."""
    asked_for = {name: given[name] for name in ("p95", "p99", "p50", "mean")}
    if not given["adapt"]:
        asked = [f"--{name}" for name, bound in asked_for.items() if bound is not None]
        asked += [option for option, value in (("--dry-run", given["dry_run"]), ("--door", given["door"])) if value]
        if asked:
            raise ConfigurationError(f"{asked[0]} belongs to --adapt: add that, or leave it out.")
        return options, None
    from penstock.cli.setting import target_of
    from penstock.planner.adapting import Adapting
    from penstock.runs.decisions import in_force

    target = target_of(asked_for)
    if options.trigger is not None and given["plan_file"] is None:
        raise ConfigurationError("--trigger fixes what --adapt is to choose: leave out the one or the other.")
    directory = options.directory(app.name)
    decided = None if options.fresh else in_force(directory)
    if decided is not None:
        options = replace(options, trigger=decided.trigger_s)
    trigger = app.trigger if options.trigger is None else options.trigger
    return options, Adapting(
        directory,
        target,
        trigger,
        dry_run=given["dry_run"],
        doors=_doors(app, given),
        gates=None if decided is None else decided.doors,
    )


def _doors(app: App, given: Mapping[str, Any]) -> "Doors | None":
    """The doors of the adapter that feeds the run, whose gates are to be adapted as well."""
    url = given["door"] or (f"http://127.0.0.1:{given['port']}" if given["adapter"] else None)
    if url is None:
        return None
    from penstock.planner.doors import Doors

    doors = Doors(url, [source.name for source in app.topology().sources], os.environ.get("PENSTOCK_TOKEN"))
    if given["door"]:
        doors.check()
    return doors


def with_spool(topology: Topology, options: "RunOptions", spool: Path) -> "RunOptions":
    """The options with the adapter's log for all sources and sinks that have no URI."""
    log = f"log:{spool.absolute()}"
    free = [source.name for source in topology.sources if source.uri is None and source.name not in options.sources]
    held: dict[str, str] = {}  # by stream, of which one copy is enough
    for sink in topology.sinks:
        if sink.uri is None and sink.name not in options.sinks:
            held.setdefault(sink.stream.name, sink.name)
    return replace(
        options,
        sources={**options.sources, **dict.fromkeys(free, log)},
        sinks={**options.sinks, **dict.fromkeys(held.values(), log)},
    )


def kafka_streams(topology: Topology, options: "RunOptions") -> list[str]:
    """What tells the adapter which streams are topics."""
    from penstock.connectors.kafka.place import KAFKA

    uris = {source.name: options.sources.get(source.name) or source.uri for source in topology.sources}
    uris |= {sink.stream.name: options.sinks.get(sink.name) or sink.uri for sink in topology.sinks}
    topics = {}
    for name, uri in uris.items():
        if isinstance(uri, str) and uri.startswith("kafka:"):
            place, _, query = uri.partition("?")
            own = "&".join(option for option in query.split("&") if option.startswith(KAFKA))
            topics[name] = f"{place}?{own}" if own else place
    return [part for name, uri in topics.items() for part in ("--stream", f"{name}={uri}")]


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
