"""A run: an application on Spark, from its options to its report."""

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
from penstock.runs.report import Report
from penstock.secret import conf_of
from penstock.storage.place import is_local
from penstock.storage.reach import is_of_store, refusal


@dataclass(frozen=True)
class RunResult:
    """What a run leaves: its report, and its sinks' events."""

    report: dict[str, Any]
    directory: Path
    interrupted: bool
    _sinks: Mapping[str, BoundSink]
    _letters: BoundSink

    def output(self, sink: str) -> list[Any]:
        """All events that have left at a sink, in the order of their batches."""
        return self._sinks[sink].read()

    def _repr_html_(self) -> str:
        """In a notebook: what the report counts."""
        counts, latency = self.report["counts"], self.report.get("latency_ms", {})
        rows = [(name.replace("_", "-"), f"{counts[name]:,}") for name in ("accepted", "processed", "dead_lettered", "queued")]
        rows += [(f"latency {name}", f"{value / 1e3:.2f} s") for name, value in latency.items() if value is not None]
        return table(f"{self.report['application']} in {self.directory.name}", rows, "Measured.")

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        """What could not be decoded or handled."""
        return self._letters.read()


class Way(Protocol):
    """A way to run a bound application: in micro-batches, or in Spark's real-time mode."""

    @property
    def names(self) -> Collection[str]:
        """What its queries are called."""

    def stream(self, spark: SparkSession, watch: Watch) -> Report:
        """Run until the watch says that it is over; returns the report."""

    def delivered(self, query: str, batch: int) -> dict[str, float]:
        """Seconds that each sink has taken for a micro-batch; empty where that is not known."""


def run(
    app: App, options: RunOptions | None = None, *, application: AppReference | None = None, steering: Steering | None = None
) -> RunResult:
    """Run an application on Spark until it is idle, its time is up, or it is interrupted.

    Parameters
    ----------
    application: how workers reach the application; found among the imported modules unless given.
    steering: what may change its settings on the way.

    Raises
    ------
    PenstockError: one of its kinds, with a sentence that says what was wrong and how to mend it.
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
    """Move a run that is stopped to other partitions or groups, and read no more than was begun.

    Raises
    ------
    ConfigurationError: it is as it is wanted already, or has not been started. PenstockError: it cannot be moved.
    """
    binding = Binding(app, options, application or reference(app))
    live = Live(quiet=options.quiet)
    try:
        if binding.wanted == binding.layout:
            raise ConfigurationError(
                f"{binding.recording.directory.name} has {binding.layout.partitions or 'no'} partitions, and the groups that "
                "are asked for: there is nothing to move."
            )
        way = _Mover(MicroBatches(binding, live))
    except BaseException:
        binding.recording.release()
        raise
    return execute(binding, way, live)


@dataclass(frozen=True)
class _Mover:
    """The way of a run that is only moved."""

    run: MicroBatches

    @property
    def names(self) -> Collection[str]:
        """What its queries are called."""
        return self.run.names

    def stream(self, spark: SparkSession, watch: Watch) -> Report:
        """Move; returns the report."""
        return self.run.move(spark, watch)

    def delivered(self, query: str, batch: int) -> dict[str, float]:
        """As the run does."""
        return self.run.delivered(query, batch)


def execute(binding: Binding, way: Way, live: Live, steering: Steering | None = None) -> RunResult:
    """Run a bound application in one way or the other, and write its report.

    Raises
    ------
    PenstockError: what has stopped it.
    """
    options, recording = binding.options, binding.recording
    watch = Watch(duration=options.duration, until_idle=bool(options.until_idle), log=str(recording.log.name))
    try:
        _refuse_unfit(binding)
        resumed = binding.claim()
        live.say(f"{'Resuming' if resumed else 'Starting'} {recording.directory.name} on Spark ({options.master}) ...")
        with interruptible(), _session(binding, way, live, steering) as spark:
            report = way.stream(spark, watch)
        recording.write_report(report, options.report)
        if watch.failure is not None:
            raise watch.failure
    except Exception as error:
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
    """Refuse a session, a Spark or a Java on which this run cannot go, before anything of an earlier one is touched.

    Raises
    ------
    ConfigurationError, JavaNotFoundError: it is one.
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
    """A session that has the application, and keeps the queries' progress: the one given, or one of the run's own."""
    options, recording = binding.options, binding.recording
    with beside(options.spark) if options.spark is not None else _own(binding) as spark:
        binding.settle_partitions(settle(spark, binding.layout.partitions))
        ship(spark, binding.application.module, recording.here, keep=options.spark is not None)

        def keep(progress: dict[str, Any]) -> None:
            if progress.get("name") in way.names:  # a session that is given may have other queries
                order = recording.manifest.orders.get(progress["name"], [])
                if not installed().admits:
                    progress = with_ends(progress, order, binding.sources)
                delivered = way.delivered(progress["name"], progress.get("batchId", -1))
                recording.note_progress({**progress, "delivered": delivered} if delivered else progress)
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
    spark = start_session(name, options.master, recording.log, own, options.archives, jars)
    if is_local(recording.directory):
        write_on_disk(spark)
    try:
        yield spark
    finally:
        spark.stop()
