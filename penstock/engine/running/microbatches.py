"""Running in micro-batches, one of the two ways to run: each group is a query whose micro-batches a ledger commits."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.connectors.checkpoint import Position, offsets_checksum
from penstock.connectors.files.sink import refused_in
from penstock.connectors.source import BoundSource, Reckoning
from penstock.engine.moving.move import Move
from penstock.engine.query.clock import tell_now
from penstock.engine.query.compile import compile_group
from penstock.engine.query.inputs import Inputs
from penstock.engine.query.native import NativeWriter, compile_native
from penstock.engine.query.queries import settings_for
from penstock.engine.running.agreement import agree
from penstock.engine.running.binding import Binding, BoundGroup
from penstock.engine.running.element_log import ElementLog
from penstock.engine.running.ending import (
    Ending,
    first_end,
    has_done_what_is_planned,
    is_between,
    plan_last,
    raise_watermark,
    unplan,
    waits,
)
from penstock.engine.running.ledger import clear_staging
from penstock.engine.running.live import Live, Snapshot
from penstock.engine.running.quiet import Quiet
from penstock.engine.running.report import report_of, watermarks_of
from penstock.engine.running.steering import Steering, retime
from penstock.engine.running.watch import POLL_S, Watch, lost_a_part
from penstock.engine.running.watermarks import Watermarks
from penstock.engine.session.spark import having, settle
from penstock.engine.session.warmup import warm_up
from penstock.errors import PenstockError
from penstock.runs.batches import BatchRecord, records_in
from penstock.runs.failures import Failures
from penstock.runs.handed import between, handed_on, read_on
from penstock.runs.progress import Noted
from penstock.runs.report import Report
from penstock.runs.totals import Totals
from penstock.runtime.output import label
from penstock.runtime.places import Place, Seen, read_from
from penstock.runtime.tally import Counts, Tally
from penstock.runtime.wire import TALLY

REPEATS = 3
"""How often a micro-batch that failed by lost executors is repeated before the run gives up."""
ENDLESS_S = 86_400.0
CHECKED_S = 2.0
"""Seconds between the checks, where the settings may change, that no other driver has taken the run over."""
PATIENCE_S, LAST_PATIENCE_S = 10.0, 60.0
"""Seconds that a query may take to end its micro-batch before it is stopped; one that is cut off is repeated later."""

TalliesOf = Callable[[DataFrame, int], list[Tally]]
"""Runs a micro-batch, given its DataFrame and its number, and returns the tallies of its stages."""


class MicroBatches:
    """Runs every group of an application in micro-batches. A steering, if given, may change the settings meanwhile."""

    def __init__(self, binding: Binding, live: Live, steering: Steering | None = None) -> None:
        self._binding, self._live, self._steering = binding, live, steering
        self._totals, self._failures, self._lock = Totals(), Failures(1), threading.Lock()
        self._read_by: dict[str, Counts] = {}
        self._repeated: dict[tuple[str, int | None], int] = {}
        self._watermarks: dict[str, Watermarks] = {}
        self._noted: dict[tuple[str, int], Noted] = {}
        self._quiet, self._checked = Quiet(), 0.0
        self._element_log = ElementLog(binding.recording.here)
        self._move = Move(binding) if binding.wanted != binding.layout else None

    @property
    def names(self) -> frozenset[str]:
        """The names of the queries, which are those of their groups."""
        return frozenset(group.name for group in self._binding.groups)

    def noted(self, query: str, batch: int) -> Noted:
        """Return what was noted of a micro-batch when it was committed, and forget it."""
        return self._noted.pop((query, batch), Noted())

    def stream(self, spark: SparkSession, watch: Watch) -> Report:
        """Run until the watch ends the run, and return the report.

        If the input ended in an earlier start, which was killed before its report, only the report is made.
        """
        if self._binding.recording.ended:
            return self.move(spark, watch)
        if self._binding.options.spark is None:
            warm_up(spark)
        started_us = time.time_ns() // 1000
        every = self._where_wanted(spark, watch)
        groups = every[self._closed(every) :]
        if len(groups) < len(every):
            self._live.say(
                "An earlier start has ended the input of this run: what has come since is not read, and stays queued."
            )
        if not groups:
            self._has_ended(every, Ending(groups, lambda place: None))
            _close(every)
            return self._report(every)
        queries: list[StreamingQuery] = []
        with watch.signals():
            try:
                for place in range(len(groups)):
                    queries.append(self._start(spark, groups, place, started_us))
                ending = Ending(groups, lambda place: self._end(spark, groups, queries, place, started_us))
                watch.until_over(
                    queries,
                    lambda: self._is_idle(groups, queries),
                    lambda: self._has_ended(every, ending),
                    lambda: self._look(spark, groups, queries, started_us),
                    lambda: self._note_progress([*every[: len(every) - len(groups)], *groups]),
                    lambda failed: self._again(spark, groups, queries, queries.index(failed), started_us),
                )
            except PySparkException as error:
                watch.fail(error)
            finally:
                for query in queries:
                    query.stop()
                try:
                    with self._lock:  # so a commit that Spark no longer waits for is done, or finds its ledger closed
                        _close(every)
                        self._element_log.close()
                except Exception as error:  # a failure that has stopped the run is told first
                    raise watch.failure or error from error
                every[len(every) - len(groups) :] = groups  # these have the sources in Spark's order
        try:
            self._note_progress(every)
            return self._report(every)
        except PenstockError as error:  # a failed query is reported first, not that its source cannot be counted
            raise watch.failure or error from None

    def move(self, spark: SparkSession, watch: Watch) -> Report:
        """Move the run to the wanted layout without beginning new micro-batches, and return the report."""
        groups = self._where_wanted(spark, watch)
        _close(groups)
        self._note_progress(groups)
        return self._report(groups)

    def _where_wanted(self, spark: SparkSession, watch: Watch) -> list[BoundGroup]:
        """Move the run if its layout is not the wanted one, and return all groups, opened.

        Raises:
            PenstockError: the move failed; the run keeps its layout.
        """
        if self._move is not None:
            try:
                self._move.carry_out(spark, lambda: self._settle(spark, watch), self._live.say)
            except (PySparkException, Py4JError) as error:
                watch.fail(error)
                assert watch.failure is not None
                raise watch.failure from error
            settle(spark, self._binding.layout.partitions)
        groups = self._open()
        self._count(groups)
        self._began_after = {group.group.name: group.ledger.last for group in groups}
        return groups

    def _open(self) -> list[BoundGroup]:
        """Open all groups, check that ledgers, checkpoints and sinks agree, and deliver committed files that are left."""
        Move.tidy(self._binding)
        leftovers = self._binding.staged()
        groups = [self._binding.open(group) for group in self._binding.groups]
        for group in groups:
            self._agree(group)
            with self._binding.recording.held():  # another driver may have planned and committed a micro-batch of that number
                end = first_end(group.checkpoint)
                if end is not None and (group.ledger.last is None or end > group.ledger.last):
                    unplan(group.checkpoint, end)
        self._binding.check_hops(groups)
        self._binding.check_sinks(groups)
        for group in groups:
            group.ledger.deliver_last()
        clear_staging(leftovers)
        self._watermarks = {
            group.group.name: Watermarks(source for source in group.topology.sources if source.name in group.external)
            for group in groups
        }
        return groups

    def _agree(self, group: BoundGroup) -> None:
        keyed, held = any(element.keyed for element in group.topology.elements), self._binding.recording.held
        agree(group.ledger, group.checkpoint, group.sinks, held, sources=len(group.sources), stateful=keyed)

    def _count(self, groups: list[BoundGroup]) -> None:
        """Add up the totals of all batches that earlier starts have committed."""
        self._totals, self._failures, self._read_by = Totals(), Failures(len(groups)), {}
        for former in self._binding.layout.former:
            for record in records_in(self._binding.recording.ledger(former.name)):
                self._totals.add(record, frozenset(former.external), frozenset(former.handed_on))
        for group in groups:
            for record in group.ledger.records():
                self._failures.note(record.origins)
                self._add(group, record)

    def _add(self, group: BoundGroup, record: BatchRecord) -> None:
        """Add a committed micro-batch to the run's counts."""
        self._totals.add(record, group.external, group.handed_on)
        if group.handed_on:
            read = Counts(sources=record.sources, taken=record.taken)
            self._read_by.setdefault(group.group.name, Counts()).merge(read)

    def _settle(self, spark: SparkSession, watch: Watch) -> None:
        """Finish the planned micro-batches, and read all events that groups have handed on to each other.

        Raises:
            PenstockError: a query failed.
        """
        groups = self._open()
        self._count(groups)
        query: StreamingQuery | None = None
        try:
            for place in range(len(groups)):
                repeated = 0
                while not _is_settled(groups[place]):
                    query = self._start(spark, groups, place, time.time_ns() // 1000)
                    retime(query, 0.0)  # the rest need not wait for the run's trigger interval
                    while query.isActive and not _has_read_all(groups[place]):
                        time.sleep(POLL_S)
                    _stop_between(query)
                    failed, repeated = query.exception(), repeated + 1
                    if failed is not None and not (lost_a_part(str(failed)) and repeated <= REPEATS):
                        watch.fail(failed)
                        assert watch.failure is not None
                        raise watch.failure
                    self._agree(groups[place])
        finally:
            if query is not None:
                query.stop()
            _close(groups)

    def _look(self, spark: SparkSession, groups: list[BoundGroup], queries: list[StreamingQuery], started_us: int) -> None:
        """Show the state of the run, slow idle queries, and make a change that the steering wants. Called every `POLL_S`."""
        self._show(queries)
        if self._may_be_slow():
            self._quiet.look(queries)
        if self._steering is None:
            return
        if time.monotonic() > self._checked + CHECKED_S:  # one that has slept decides nothing for who has followed it
            self._binding.recording.refuse_taken_over()
            self._checked = time.monotonic()
        change = self._steering.wanted()
        if change is None:
            return
        self._live.say(f"{change.why} The trigger is {change.trigger:g} s from now on.")
        retimed = not change.sources and {retime(query, change.trigger) for query in queries} == {True}
        if not retimed:
            for query in queries:
                _stop_to_go_on(query)
        self._binding.change(change)
        if not retimed:
            for place, group in enumerate(groups):
                self._agree(group)
                groups[place] = group.reading(self._binding.open_sources(group.group))
                queries[place] = self._start(spark, groups, place, started_us)
        self._steering.changed(change, restarted=not retimed)

    def _may_be_slow(self) -> bool:
        """Whether idle queries may be slowed: they have no trigger interval, and the run does not wait for them to be idle."""
        return self._binding.trigger == 0 and not self._binding.options.until_idle

    def _again(
        self, spark: SparkSession, groups: list[BoundGroup], queries: list[StreamingQuery], place: int, started_us: int
    ) -> bool:
        """Restart a failed query, which repeats its micro-batch. Returns False after `REPEATS` repetitions."""
        group = groups[place]
        number = (group.group.name, group.ledger.last)
        self._repeated[number] = self._repeated.get(number, 0) + 1
        if self._repeated[number] > REPEATS:
            return False
        self._live.say("A part of Spark was lost, or did not come up, in the middle of a micro-batch, which is repeated.")
        queries[place].stop()
        self._agree(group)
        queries[place] = self._start(spark, groups, place, started_us)
        return True

    def _end(
        self, spark: SparkSession, groups: list[BoundGroup], queries: list[StreamingQuery], place: int, started_us: int
    ) -> None:
        """Run the last micro-batch of a group, which closes all windows and fires all timers that wait for the watermark.

        A micro-batch that is under way, as where timers on processing time keep the query busy, is waited for. If that is in
        vain, the query goes on, and this is called again when it is idle.
        """
        checkpoint = groups[place].checkpoint
        _stop_to_go_on(queries[place], LAST_PATIENCE_S)
        with self._binding.recording.held():
            if is_between(checkpoint):
                plan_last(checkpoint)
        queries[place] = self._start(spark, groups, place, started_us)

    def _closed(self, groups: list[BoundGroup]) -> int:
        """Return how many of the first groups may read no more: those up to the last one that an earlier start has ended."""
        if self._waits_for_the_clock():
            return 0
        ended = [place for place, group in enumerate(groups) if first_end(group.checkpoint) is not None]
        return ended[-1] + 1 if ended else 0

    def _has_ended(self, groups: list[BoundGroup], ending: Ending) -> bool:
        """Whether the run may stop when idle: the last micro-batches have run, or the input only pauses."""
        over = self._binding.options.until_idle == "pause" or ending.over()
        ends = [first_end(group.checkpoint) for group in groups if waits(group)]
        if over and any(end is not None for end in ends) and None not in ends and not self._waits_for_the_clock():
            self._binding.recording.note_end()
        return over

    def _waits_for_the_clock(self) -> bool:
        """Whether there may be timers on processing time, which fire when the same command is run again later."""
        elements = self._binding.topology.elements
        return any(element.has_timers and element.timers == "processing" and element.window is None for element in elements)

    def _start(self, spark: SparkSession, groups: list[BoundGroup], place: int, started_us: int) -> StreamingQuery:
        group = groups[place]
        for bound in group.sources:
            bound.begin_at(self._binding.recording.beginning(bound, started_us))
        frame, tallies, group = (_native if group.group.native else _compiled)(spark, group, started_us)
        self._binding.recording.fix_order(group.group.name, list(group.order))
        groups[place] = group
        writer = frame.writeStream.queryName(group.group.name).option("checkpointLocation", str(group.checkpoint))
        writer = writer.trigger(processingTime=f"{round(self._binding.trigger * 1000)} milliseconds")
        writer = writer.foreachBatch(self._committer(spark, group, tallies))
        try:
            with having(spark, settings_for(group.topology)):  # Spark copies them when the query starts
                return writer.start()
        except AnalysisException as error:
            if not (error.getCondition() or "").startswith("STREAMING_OUTPUT_MODE"):
                raise
            # An aggregation without a watermark cannot append; its rows are what a batch has changed.
            return writer.outputMode("update").start()

    def _committer(self, spark: SparkSession, group: BoundGroup, tallies: TalliesOf) -> Callable[[DataFrame, int], None]:
        def commit(batch: DataFrame, number: int) -> None:
            begun = time.monotonic()
            if self._may_be_slow():
                self._quiet.begin(lambda: _query_of(spark, group))
            for bound, place in zip(group.sources, group.places, strict=True):
                bound.vouch(Position(group.checkpoint, place, number))
            offsets = offsets_checksum(group.checkpoint, number)
            counted = tallies(batch, number)  # this runs the batch, so the time of the commit comes after it
            record = BatchRecord.of(number, time.time_ns() // 1000, counted, offsets)
            listed = [bound.source.name for bound in group.sources if bound.files is not None]
            rows = {name: record.sources[name].rows if name in record.sources else 0 for name in listed}
            self._noted[group.group.name, number] = Noted(rows)
            with self._lock:
                self._binding.recording.fix_state()
                failed = self._failures.judge(record)
                if not group.ledger.commit(record):
                    group.ledger.deliver_owed()
                    return
                self._failures.note(failed)
                self._add(group, record)  # before the delivery, which may fail without undoing the commit
                group.ledger.deliver(record)
            self._element_log.write(group.group.name, number, counted)
            self._noted[group.group.name, number] = Noted(rows, group.ledger.delivered)
            if self._steering is not None:
                self._steering.committed(group.group.name, record)
            self._go_on_without_idle(spark, group, record)
            taken = sum(source.accepted for source in record.sources.values())
            self._live.batch(taken, time.monotonic() - begun, record)

        return commit

    def _go_on_without_idle(self, spark: SparkSession, group: BoundGroup, record: BatchRecord) -> None:
        """Raise the watermark if some sources are idle, so that it does not wait for them."""
        watermarks = self._watermarks[group.group.name]
        watermarks.note(record.sources)
        mark = watermarks.without_idle_ms()
        if mark is not None:
            raise_watermark(_query_of(spark, group), mark)

    def _is_idle(self, groups: list[BoundGroup], queries: list[StreamingQuery]) -> bool:
        if any(query.status["isDataAvailable"] for query in queries):
            return False
        done = all(
            is_between(group.checkpoint)
            or (group.ledger.last != self._began_after.get(group.group.name) and has_done_what_is_planned(group.checkpoint))
            for group in groups
        )
        return done and all(bound.drained(position) for group in groups for bound, position in group.positions())

    def _note_progress(self, groups: list[BoundGroup]) -> None:
        self._binding.recording.refuse_taken_over()  # a driver that was paused and has nothing to commit learns it only here
        readers: dict[str, list[tuple[BoundSource, Position]]] = {}
        for group in groups:
            # Without the last batch, which Spark may read again if its completion was not written.
            for bound, position in group.positions(back=1):
                readers.setdefault(bound.source.name, []).append((bound, position))
        for name, read in readers.items():
            between_groups = name not in self._binding.sources
            # Held, as a driver that wakes in the middle would remove files of the same names that a new run has written since.
            with self._binding.recording.held() if between_groups else nullcontext():
                read[0][0].note_progress(f"run in {self._binding.recording.directory}", [position for _, position in read])

    def _show(self, queries: list[StreamingQuery]) -> None:
        if not self._live.waits:
            self._live.show(self._snapshot())
        elif any(query.status["isTriggerActive"] and query.status["isDataAvailable"] for query in queries):
            self._live.phase("Spark is up; the first micro-batch is running, which takes longer than those to come")
        else:
            read = ", ".join(f"{name} in {bound.uri.partition('?')[0]}" for name, bound in self._binding.sources.items())
            self._live.phase(f"Spark is up; waiting for events of {read}")

    def _snapshot(self) -> Snapshot:
        with self._lock:
            taken = sum(source.accepted for source in self._totals.sources.values())
            written = sum(self._totals.outputs.get(name, 0) for name in self._binding.sinks)
            dead = self._totals.dead_lettered
            watermarks = watermarks_of(self._binding.topology, self._totals)
        return Snapshot(taken, written, dead, watermarks)

    def _report(self, groups: list[BoundGroup]) -> Report:
        positions = [(group, bound, position) for group in groups for bound, position in group.positions()]
        reckonings: dict[str, Reckoning] = {
            bound.source.name: self._reckoned(bound, position)
            for group, bound, position in positions
            if bound.source.name in group.external
        }
        handed_on = {
            read_from(bound.source.name, group.group.name): place
            for group, bound, position in positions
            if bound.source.name in group.handed_on and (place := self._handed(groups, group, bound, position)) is not None
        }
        return report_of(
            self._binding.topology,
            self._totals,
            reckonings,
            self._binding.recording.progress(),
            engine=f"spark {pyspark.__version__}",
            master=self._binding.options.master,
            refused=refused_in(self._binding.letters),
            handed_on=handed_on,
        )

    def _handed(self, groups: list[BoundGroup], reader: BoundGroup, bound: BoundSource, position: Position) -> Place | None:
        """Compare what groups have handed on of a stream with what one has read.

        Returns None where the run does not know the first: it was moved by an older version, or a delivery has failed, of which
        a part may have arrived.
        """
        layout, stream = self._binding.layout, bound.source.name
        before = layout.handed_before.get(reader.group.name, {} if reader.group.name not in layout.first else None)
        if before is None or any(group.ledger.owes(label(stream, "hop")) for group in groups):
            return None
        handed, read = handed_on(self._totals, stream), read_on(self._read_by.get(reader.group.name, Counts()), stream)
        return between(handed, before.get(stream, Seen()), bound.reckon(position).queued, read)

    def _reckoned(self, bound: BoundSource, position: Position) -> Reckoning:
        """Return a source's own count of its events that were read. If its offsets have gaps, they are counted one by one."""
        reckoning, accepted = bound.reckon(position), self._totals.source(bound.source.name).accepted
        if reckoning.committed is None or reckoning.committed <= accepted:
            return reckoning
        recount = bound.recount(position)
        if recount is None:
            return reckoning
        return reckoning._replace(committed=None if recount < accepted else recount)  # unknown if some were deleted meanwhile


def _close(groups: list[BoundGroup]) -> None:
    """Close the ledgers of groups, all of them, also where one cannot be."""
    with ExitStack() as stack:
        for group in groups:
            stack.callback(group.ledger.close)


def _is_settled(group: BoundGroup) -> bool:
    """Whether a group has completed its planned micro-batches, and has read all events from other groups."""
    return is_between(group.checkpoint) and _has_read_all(group)


def _has_read_all(group: BoundGroup) -> bool:
    """Whether a group has read all events from other groups. A micro-batch that only time has caused may be under way."""
    return has_done_what_is_planned(group.checkpoint) and all(
        bound.drained(position) for bound, position in group.positions() if bound.source.name in group.handed_on
    )


def _stop_between(query: StreamingQuery, patience_s: float = PATIENCE_S) -> None:
    """Stop a query between two micro-batches, or when patience is at its end; then the micro-batch is repeated.

    It must be stopped: its executor of triggers may sleep until the end of the endless interval, whatever that is later.
    """
    retime(query, ENDLESS_S)  # otherwise the next micro-batch might begin at once
    patient_until = time.monotonic() + patience_s
    while query.status["isTriggerActive"] and time.monotonic() < patient_until:
        time.sleep(0.01)
    query.stop()


def _stop_to_go_on(query: StreamingQuery, patience_s: float = PATIENCE_S) -> None:
    """Stop a query as `_stop_between` does, to start it again.

    Raises:
        StreamingQueryException: it failed meanwhile, and repeating its micro-batch does not help.
    """
    _stop_between(query, patience_s)
    failed = query.exception()
    if failed is not None and not lost_a_part(str(failed)):
        raise failed


def _compiled(spark: SparkSession, group: BoundGroup, started_us: int) -> tuple[DataFrame, TalliesOf, BoundGroup]:
    """Compile a group with Python elements: the rows of its query are tallies."""
    frame = compile_group(spark, group.wiring, group.sources, started_us)

    def tallies(batch: DataFrame, number: int) -> list[Tally]:
        tell_now(batch.sparkSession.sparkContext, group.checkpoint, number)
        rows = batch.where(batch["hop"] == TALLY).select("block").toArrow()
        return [Tally.read(block) for block in rows["block"].to_pylist()]

    return frame, tallies, group.read_in([bound.source.name for bound in group.sources])


def _native(spark: SparkSession, group: BoundGroup, started_us: int) -> tuple[DataFrame, TalliesOf, BoundGroup]:
    """Compile a native group, which Spark plans whole: the rows of its query are events, which the writer counts."""
    inputs = Inputs(group.wiring, group.sources)
    frame, order = compile_native(spark, group.topology, group.sources, inputs, started_us)
    group = group.read_in(order)
    writer = NativeWriter(group.topology, group.wiring, tuple(sink.files for sink in group.sinks))

    def tallies(batch: DataFrame, number: int) -> list[Tally]:
        tell_now(batch.sparkSession.sparkContext, group.checkpoint, number)
        return writer.write(batch, inputs.count(_query_of(spark, group), batch))

    return frame, tallies, group


def _query_of(spark: SparkSession, group: BoundGroup) -> StreamingQuery:
    """Return the running query of a group."""
    return next(query for query in spark.streams.active if query.name == group.group.name)
