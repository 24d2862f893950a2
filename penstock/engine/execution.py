"""A run: an application, bound to sources and sinks, on Spark, from start to report."""

import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

import pyspark
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from penstock.app.application import App
from penstock.app.loader import AppReference, reference
from penstock.app.state import describe_state
from penstock.app.stream import Sink
from penstock.app.topology import Topology
from penstock.app.uri import KafkaPlace, parse_uri
from penstock.engine.compile import compile_group
from penstock.engine.group import Group, group_elements
from penstock.engine.kafka import connector_jars
from penstock.engine.ledger import BatchRecord, Ledger, clear_staging
from penstock.engine.live import Live, Snapshot
from penstock.engine.native import NativeWriter, births_of_files, compile_native
from penstock.engine.options import RunOptions
from penstock.engine.recording import Recording
from penstock.engine.report import Totals, report_of
from penstock.engine.session import ship, start_session
from penstock.engine.sinks import BoundSink, Directory, KafkaSink, bind_sinks
from penstock.engine.sources import BoundSource, bind, bind_hop
from penstock.engine.sources.base import Reckoning
from penstock.engine.sources.files import FileSource
from penstock.engine.sources.follow import FollowedSource
from penstock.errors import ConfigurationError, RunFailedError
from penstock.runtime.plan import PlanReference
from penstock.runtime.staging import DEAD_LETTERS, SinkFiles
from penstock.runtime.tally import Tally
from penstock.runtime.wire import TALLY

POLL_S = 0.2
NOTED_EVERY_S = 10.0
"""How often the embedded log is told how far the run is."""
IDLE_S = 1.0
"""How long everything must have been drained before a run is taken to be idle."""


@dataclass(frozen=True)
class RunResult:
    """What a run leaves: its report, and its sinks' events."""

    report: dict[str, Any]
    directory: Path
    interrupted: bool
    _sinks: Mapping[str, BoundSink]

    def output(self, sink: str) -> list[Any]:
        """All events that have left at a sink, in the order of their batches."""
        return self._sinks[sink].read()

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        """What could not be decoded or handled."""
        return self._sinks[DEAD_LETTERS].read()


def run(app: App, options: RunOptions | None = None, *, application: AppReference | None = None) -> RunResult:
    """Run an application on Spark until it is idle, its time is up, or it is interrupted.

    Parameters
    ----------
    application: how workers reach the application; found among the imported modules unless given.

    Raises
    ------
    PenstockError: one of its kinds, with a sentence that says what was wrong and how to mend it.
    """
    options = options or RunOptions(until_idle=True)
    topology = app.topology()
    _check_names("--source", options.sources, [source.name for source in topology.sources])
    _check_names("--sink", options.sinks, [sink.name for sink in topology.sinks])
    return Run(app, topology, options, application or reference(app)).execute()


def _check_names(flag: str, given: Any, known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise ConfigurationError(
                f"{flag} {name}=...: there is no {name}; the application has {', '.join(known) or 'none'}."
            )


@dataclass
class _RunningGroup:
    """A group, its part of the topology, and its query once that has started."""

    group: Group
    topology: Topology
    sources: list[BoundSource]
    external: frozenset[str]
    sinks: tuple[BoundSink, ...]
    ledger: Ledger
    checkpoint: Path
    query: StreamingQuery | None = None


class Run:
    """One start of an application, from its options to its report."""

    def __init__(self, app: App, topology: Topology, options: RunOptions, application: AppReference) -> None:
        self._app, self._topology = app, topology
        self._options, self._application = options, application
        self._bound = {
            source.name: bind(source, options.sources.get(source.name), application) for source in topology.sources
        }
        typed = frozenset(name for name, bound in self._bound.items() if bound.rows == "columns")
        self._groups = group_elements(topology, options.groups, typed)
        self._recording = Recording(options.runs / (options.name or app.name))
        dead = SinkFiles(DEAD_LETTERS, "jsonl", str(self._recording.dead_letters))
        self._sinks = {
            **bind_sinks(topology.sinks, options.sinks, self._recording.output),
            DEAD_LETTERS: Directory(dead),
        }
        self._totals, self._lock = Totals(), threading.Lock()
        self._interrupted = threading.Event()
        self._failure: BaseException | None = None
        self._live = Live(quiet=options.quiet)

    def execute(self) -> RunResult:
        try:
            report = self._execute()
        finally:
            self._live.close()
            self._recording.release()
        return RunResult(report, self._recording.directory, self._interrupted.is_set(), self._sinks)

    def _execute(self) -> dict[str, Any]:
        options, recording = self._options, self._recording
        resumed = recording.prepare(self._manifest(), fresh=options.fresh)
        for sink in self._sinks.values():
            sink.claim(recording.manifest["run"], recording.manifest.get("previous"))
        recording.note_configuration({"master": options.master, "resumed": resumed, **_plain(options)})
        self._live.say(
            f"{'Resuming' if resumed else 'Starting'} {recording.directory.name} on Spark ({options.master}) ..."
        )
        spark = start_session(
            f"penstock-{recording.directory.name}", options.master, recording.log, options.conf,
            recording.manifest.get("partitions") or options.partitions, options.archives, self._jars(),
        )  # fmt: skip
        try:
            partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
            recording.fix_partitions(partitions)
            ship(spark, self._application.module, recording.directory)
            return self._stream(spark)
        finally:
            spark.stop()

    def _jars(self) -> list[Path]:
        """What Spark needs besides its own jars."""
        uris = [*(bound.uri for bound in self._bound.values()), *(bound.uri for bound in self._sinks.values())]
        return connector_jars() if self._options.hops or any(uri.startswith("kafka:") for uri in uris) else []

    def _manifest(self) -> dict[str, Any]:
        return {
            "application": self._app.name,
            "topology": self._topology.to_json(),
            "state": describe_state(self._topology),
            "sources": {name: bound.uri.partition("?")[0] for name, bound in self._bound.items()},
            "parameters": {name: str(value) for name, value in self._app.values.items()},
            "groups": {name: group.name for group in self._groups for name in group.elements},
            "hops": {group.name: self._hops(group) for group in self._groups},
            "partitions": self._options.partitions,
        }

    def _hops(self, group: Group) -> int:
        part = self._topology.subset(group.elements, group.hops, group.sources)
        return max((part.stages[element.name] for element in part.elements if element.keyed), default=0)

    # --- the queries ----------------------------------------------------------------------------

    def _stream(self, spark: SparkSession) -> dict[str, Any]:
        self._listen(spark)
        started_us = time.time_ns() // 1000
        groups = [self._open(group) for group in self._groups]
        clear_staging({sink.files for running in groups for sink in running.sinks})
        for running in groups:
            handed_on = frozenset(bound.source.name for bound in running.sources) - running.external
            for record in running.ledger.records():
                self._totals.add(record, running.external, handed_on)
        with self._signals():
            try:
                for running in groups:
                    running.query = self._start(spark, running, started_us)
                queries = [running.query for running in groups if running.query is not None]
                self._watch(queries, lambda: self._is_idle(groups), lambda: self._note_readers(groups))
            except PySparkException as error:
                self._fail(error)
            finally:
                for running in groups:
                    if running.query is not None:
                        running.query.stop()
                    running.ledger.close()
        return self._conclude(self._report(groups))

    def _listen(self, spark: SparkSession) -> None:
        spark.streams.addListener(_Listener(self._recording))

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or _explained(error, self._recording)

    def _conclude(self, report: dict[str, Any]) -> dict[str, Any]:
        """Write the report, and raise what has stopped the run, if something has."""
        self._recording.write_report(report, self._options.report)
        if self._failure is not None:
            raise self._failure
        return report

    def _open(self, group: Group) -> _RunningGroup:
        topology = self._topology.subset(group.elements, group.hops, group.sources)
        sources = [
            self._bound[source.name]
            if source.name in group.sources
            else bind_hop(source, self._recording.directory / "hops" / source.name, self._hop_topic(source.name))
            for source in topology.sources
        ]
        own = [self._sinks[sink.name] for sink in topology.sinks if sink.name in self._sinks]
        hops = [self._hop(stream, group.name) for stream in group.hops]
        sinks = (*own, *hops, self._sinks[DEAD_LETTERS])
        ledger = Ledger(self._recording.ledger(group.name), group.name, sinks)
        return _RunningGroup(
            group, topology, sources, frozenset(group.sources), sinks, ledger, self._recording.checkpoint(group.name)
        )

    def _hop(self, stream: str, group: str) -> BoundSink:
        """Where a group leaves a stream for other groups."""
        files = SinkFiles(f"hop-{stream}", "parquet", str(self._recording.hop(stream, group)), hop=True)
        topic = self._hop_topic(stream)
        if topic is None:
            return Directory(files)
        sink = KafkaSink(
            Sink(files.name, self._topology.stream(stream), None), topic.uri(), self._recording.directory, files
        )
        sink.claim(self._recording.manifest["run"], None)
        return sink

    def _hop_topic(self, stream: str) -> KafkaPlace | None:
        if self._options.hops is None:
            return None
        place = KafkaPlace.of(parse_uri(f"{self._options.hops}/hop", ("kafka",), {"kafka": ("kafka.NAME",)}))
        return replace(
            place, topic=f"penstock-{self._recording.manifest['run']}-{quote(stream, safe='').replace('%', '_')}"
        )

    def _start(self, spark: SparkSession, running: _RunningGroup, started_us: int) -> StreamingQuery:
        if running.group.native:
            frame = compile_native(spark, running.topology, running.sources, started_us)
            writer = NativeWriter(running.topology, tuple(sink.files for sink in running.sinks))

            def tallies(batch: DataFrame, number: int) -> list[Tally]:
                read = {
                    bound.source.name: births_of_files(bound.files_of(running.checkpoint, index, number), started_us)
                    for index, bound in enumerate(running.sources)
                    if isinstance(bound, FileSource)
                }
                return [writer.write(batch, read)]
        else:
            frame = compile_group(spark, self._plan(running), running.sources, started_us)

            def tallies(batch: DataFrame, number: int) -> list[Tally]:
                rows = batch.where(batch["hop"] == TALLY).select("block").toArrow()
                return [Tally.read(block) for block in rows["block"].to_pylist()]

        writer_ = frame.writeStream.queryName(running.group.name).option("checkpointLocation", str(running.checkpoint))
        writer_ = writer_.foreachBatch(self._committer(running, tallies))
        try:
            return writer_.start()
        except AnalysisException as error:
            if not (error.getCondition() or "").startswith("STREAMING_OUTPUT_MODE"):
                raise
            # An aggregation without a watermark cannot append; its rows are what a batch has changed.
            return writer_.outputMode("update").start()

    def _plan(self, running: _RunningGroup) -> PlanReference:
        return PlanReference(
            self._application, running.group.elements, running.group.hops, running.group.sources, int(self._recording.manifest["partitions"]),
            tuple(sink.files for sink in running.sinks), self._app.on_error,
        )  # fmt: skip

    def _committer(
        self, running: _RunningGroup, tallies: Callable[[DataFrame, int], list[Tally]]
    ) -> Callable[[DataFrame, int], None]:
        handed_on = frozenset(bound.source.name for bound in running.sources) - running.external

        def commit(batch: DataFrame, number: int) -> None:
            begun = time.monotonic()
            done = tallies(batch, number)
            record = BatchRecord.of(number, time.time_ns() // 1000, done)
            with self._lock:
                if not running.ledger.commit(record):
                    return
                self._totals.add(record, running.external, handed_on)
            self._live.batch(
                sum(source.accepted for source in record.sources.values()), time.monotonic() - begun, record
            )

        return commit

    # --- watching -------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Within the block, Ctrl-C and a request to terminate stop the run after what is committed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(number: int, frame: FrameType | None) -> None:
            self._interrupted.set()

        previous = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _watch(
        self, queries: list[StreamingQuery], is_idle: Callable[[], bool], note: Callable[[], None] = lambda: None
    ) -> None:
        began = noted = time.monotonic()
        note()
        idle_since: float | None = None
        while not self._interrupted.wait(POLL_S):
            for query in queries:
                failed = query.exception()
                if failed is not None:
                    self._fail(failed)
                    return
            now = time.monotonic()
            self._live.show(self._snapshot())
            if now - noted >= NOTED_EVERY_S:
                note()
                noted = now
            if self._options.duration is not None and now - began >= self._options.duration:
                return
            if self._options.until_idle:
                idle_since = (idle_since or now) if is_idle() else None
                if idle_since is not None and now - idle_since >= IDLE_S:
                    return

    def _is_idle(self, groups: list[_RunningGroup]) -> bool:
        for running in groups:
            assert running.query is not None
            for number, bound in enumerate(running.sources):
                if bound.waiting(running.checkpoint, number, running.ledger.last):
                    return False
                if bound.uri.startswith(("generator:", "replay:")) and not bound.finished():
                    return False
        busy = [r for r in groups if r.query is not None and r.query.status["isDataAvailable"]]
        return not busy

    def _note_readers(self, groups: list[_RunningGroup]) -> None:
        for running in groups:
            for number, bound in enumerate(running.sources):
                if isinstance(bound, FollowedSource):
                    # But for the last batch, which Spark may read again if it has not noted that it is done.
                    passed = running.ledger.last - 1 if running.ledger.last else None
                    bound.note_reader(f"run in {self._recording.directory}", running.checkpoint, number, passed)

    def _snapshot(self) -> Snapshot:
        with self._lock:
            taken = sum(source.accepted for source in self._totals.sources.values())
            left = sum(count for name, count in self._totals.outputs.items() if not name.startswith("hop-"))
            dead = self._totals.dead_lettered
        return Snapshot(taken, left, dead)

    def _report(self, groups: list[_RunningGroup]) -> dict[str, Any]:
        reckonings: dict[str, Reckoning] = {}
        for running in groups:
            for number, bound in enumerate(running.sources):
                if bound.source.name in running.external:
                    reckonings[bound.source.name] = bound.reckon(running.checkpoint, number, running.ledger.last)
        return report_of(
            self._topology, self._totals, reckonings, self._recording.progress(),
            engine=f"spark {pyspark.__version__}", master=self._options.master,
        )  # fmt: skip


class _Listener(StreamingQueryListener):
    """Keeps every progress, for `recentProgress` forgets all but the last hundred."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def onQueryStarted(self, event: Any) -> None:
        """Nothing to keep."""

    def onQueryProgress(self, event: Any) -> None:
        """Keep it."""
        self._recording.note_progress(json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:
        """Nothing to keep."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing to keep."""


def _explained(error: BaseException, recording: Recording) -> RunFailedError:
    """A failure of Spark's in one sentence: our own words if they caused it, else Spark's first line."""
    text = str(error)
    ours = re.findall(r"penstock\.errors\.\w+: (.*)", text)
    python = re.findall(r"^((?!py4j)\w+(?:\.\w+)*(?:Error|Exception): .*)", text, re.MULTILINE)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    reason = (ours or python or [first])[-1].strip().removesuffix(".")
    return RunFailedError(
        f"The run stopped: {reason}. Nothing is lost: what was not committed is still queued, and running again resumes "
        f"({recording.log.name} has the details)."
    )


def _plain(options: RunOptions) -> dict[str, Any]:
    text = {name: str(value) if isinstance(value, Path) else value for name, value in vars(replace(options)).items()}
    text["sources"] = {name: _masked(uri) for name, uri in options.sources.items()}
    text["sinks"] = {name: _masked(uri) for name, uri in options.sinks.items()}
    text["hops"] = options.hops and _masked(options.hops)
    return text


def _masked(uri: str) -> str:
    """A URI without the secrets that it may hold."""
    return re.sub(r"(kafka\.[^=&]*)=[^&]*", r"\1=***", re.sub(r"(//[^:/@]*):[^@]*@", r"\1:***@", uri))
