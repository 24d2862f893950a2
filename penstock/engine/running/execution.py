"""Running an application on Spark, from its options to its report."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from penstock.app.application import App
from penstock.app.display import table
from penstock.app.loader import AppReference, reference
from penstock.connectors.lag import waiting_in
from penstock.connectors.sequence import with_ends
from penstock.connectors.sink import BoundSink
from penstock.engine.running.binding import Binding
from penstock.engine.running.live import Live
from penstock.engine.running.microbatches import MicroBatches
from penstock.engine.running.options import RunOptions
from penstock.engine.running.steering import Steering
from penstock.engine.running.watch import Watch, interruptible
from penstock.engine.session.checkpoint import DISK
from penstock.engine.session.java import java_home
from penstock.engine.session.listener import listen
from penstock.engine.session.maven import jars_of, refuse_lacking
from penstock.engine.session.spark import beside, death_of_spark, refuse_session, settle, ship, start_session, write_on_disk
from penstock.engine.session.stores import settings_for
from penstock.engine.session.versions import installed, refuse_other_home
from penstock.errors import ConfigurationError, PenstockError, RunFailedError
from penstock.runs.progress import Noted
from penstock.runs.report import Report
from penstock.secret import conf_of
from penstock.storage import durable
from penstock.storage.place import is_local
from penstock.storage.reach import is_of_store, refusal


@dataclass(frozen=True)
class RunResult:
    """The result of a run: its report, and the events in its sinks."""

    report: dict[str, Any]
    directory: Path
    interrupted: bool
    _sinks: Mapping[str, BoundSink]
    _letters: BoundSink

    def output(self, sink: str) -> list[Any]:
        """Return all events that were written to a sink, in the order of their batches."""
        return self._sinks[sink].read()

    def _repr_html_(self) -> str:
        """Show the report's counts and latency in a notebook."""
        counts, latency = self.report["counts"], self.report.get("latency_ms", {})
        rows = [(name.replace("_", "-"), f"{counts[name]:,}") for name in ("accepted", "processed", "dead_lettered", "queued")]
        rows += [(f"latency {name}", f"{value / 1e3:.2f} s") for name, value in latency.items() if value is not None]
        return table(f"{self.report['application']} in {self.directory.name}", rows, "Measured.")

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        """The dead letters: events that could not be decoded or handled, each with its error."""
        return self._letters.read()


class Way(Protocol):
    """A way to run a bound application: in micro-batches, or in Spark's real-time mode."""

    @property
    def names(self) -> Collection[str]:
        """The names of its queries."""

    def stream(self, spark: SparkSession, watch: Watch) -> Report:
        """Run until the watch ends the run, and return the report."""

    def noted(self, query: str, batch: int) -> Noted:
        """Return what is known of a micro-batch, and Spark does not report."""


def run(
    app: App, options: RunOptions | None = None, *, application: AppReference | None = None, steering: Steering | None = None
) -> RunResult:
    """Run an application on Spark until it is idle, its time is up, or it is interrupted.

    Args:
        application: how workers reach the application; found among the imported modules unless given.
        steering: watches the run, and may change its settings while it runs.

    Raises:
        PenstockError: one of its subclasses; the text says what was wrong and how to mend it.
    """
    options = options or RunOptions(until_idle=True)
    binding = Binding(app, options, application or reference(app))
    live = Live(quiet=options.quiet)
    try:
        way = MicroBatches(binding, live, steering)
    except BaseException:
        binding.recording.release()
        raise
    return execute(binding, way, live, steering)


def rescale(app: App, options: RunOptions, *, application: AppReference | None = None) -> RunResult:
    """Move a stopped run to other partitions or groups. Only micro-batches that were begun are finished; no more input is read.

    Raises:
        ConfigurationError: the run has that layout already, or was never started.
        PenstockError: it cannot be moved.
    """
    binding = Binding(app, options, application or reference(app))
    live = Live(quiet=options.quiet)
    try:
        if binding.wanted == binding.layout:
            raise ConfigurationError(
                f"{binding.recording.directory.name} has {binding.layout.partitions or 'no'} partitions and the "
                "requested groups already: there is nothing to move."
            )
        way = _Mover(binding, live)
    except BaseException:
        binding.recording.release()
        raise
    return execute(binding, way, live)


class _Mover(MicroBatches):
    """The `Way` of a run that is moved and reads no new input."""

    stream = MicroBatches.move


def execute(binding: Binding, way: Way, live: Live, steering: Steering | None = None) -> RunResult:
    """Run a bound application in the given way, and write its report.

    Raises:
        PenstockError: the failure that has stopped the run.
    """
    options, recording = binding.options, binding.recording
    watch = Watch(duration=options.duration, until_idle=bool(options.until_idle), log=str(recording.log.name))
    try:
        _refuse_unfit(binding)
        resumed = binding.claim()
        live.say(f"{'Resuming' if resumed else 'Starting'} {recording.directory.name} on Spark ({options.master}) ...")
        with durable.naming(recording.directory), interruptible(), _session(binding, way, live, steering) as spark:
            report = way.stream(spark, watch)
        try:
            recording.write_report(report, options.report)
        except Exception as error:  # a failure that has stopped the run is told first
            raise watch.failure or error from error
        if watch.failure is not None:
            raise watch.failure
    except Exception as error:
        # A dead JVM shows as some lost connection, and a lost store as some library's error: name the cause in both cases.
        lost = isinstance(error, ConnectionError | Py4JError) and not isinstance(error, PenstockError | Py4JJavaError)
        death = death_of_spark() if lost and options.spark is None else None
        if death is not None:
            raise RunFailedError(
                f"The run stopped: Spark's Java process has died ({death}), so there is no report. What was not committed is "
                f"still queued, and running again resumes ({recording.log.name} has the details)."
            ) from error
        if is_local(recording.directory) or isinstance(error, PenstockError) or not is_of_store(error):
            raise
        raise RunFailedError(
            f"The run stopped: {str(refusal(recording.directory, error)).removesuffix('.')}. Nothing is lost: what was not "
            f"committed is still queued, and running again resumes ({recording.log.name} has the details)."
        ) from error
    finally:
        live.close()
        recording.release()
    return RunResult(msgspec.to_builtins(report), recording.directory, watch.interrupted, binding.sinks, binding.letters)


def _refuse_unfit(binding: Binding) -> None:
    """Check that the session, Spark and Java fit this run, before any file of an earlier run is changed.

    Raises:
        ConfigurationError, JavaNotFoundError: one does not.
    """
    options = binding.options
    if options.spark is None:
        java_home()
        refuse_other_home()
        return
    refuse_session(options.spark)
    refuse_lacking(options.spark, binding.jars())
    if options.conf or options.archives:
        raise ConfigurationError("conf and archives belong to a session that the run starts; give them to spark= instead.")


@contextmanager
def _session(binding: Binding, way: Way, live: Live, steering: Steering | None) -> Iterator[SparkSession]:
    """Provide a session that has the application (a clone of the given one, or a new one), and record its queries' progress."""
    options, recording = binding.options, binding.recording
    with beside(options.spark) if options.spark is not None else _own(binding) as spark:
        binding.settle_partitions(settle(spark, binding.layout.partitions))
        ship(spark, binding.application.module, recording.here, keep=options.spark is not None)

        def keep(progress: dict[str, Any]) -> None:
            if progress.get("name") in way.names:  # a given session may have other queries
                order = recording.manifest.orders.get(progress["name"], [])
                if not installed().admits:
                    progress = with_ends(progress, order, binding.sources)
                progress = way.noted(progress["name"], progress.get("batchId", -1)).added_to(progress, order)
                recording.note_progress(progress)
                live.waiting(waiting_in(progress, order))
                if steering is not None:
                    steering.progressed(progress)

        silence = listen(spark, keep)
        try:
            yield spark
        finally:
            silence()


@contextmanager
def _own(binding: Binding) -> Iterator[SparkSession]:
    options, recording = binding.options, binding.recording
    name = f"penstock-{recording.directory.name}"
    jars = jars_of(binding.jars())
    own = {**settings_for(binding.stores), **DISK, **conf_of(options.conf)}
    spark = start_session(name, options.master, recording.log, own, tuple(options.archives), jars)
    if is_local(recording.directory):
        write_on_disk(spark)
    try:
        yield spark
    finally:
        spark.stop()
