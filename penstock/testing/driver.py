"""A driver for tests: runs a topology in memory, without Spark or a JVM, and lets the test set the clock."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.app.application import App
from penstock.app.earlier import forms_of
from penstock.app.state import check_state_fits, describe_state
from penstock.app.stream import Sink, Source
from penstock.app.window.windowing import FOREVER
from penstock.errors import ConfigurationError, PenstockError, TopologyError
from penstock.kinds.coding import json_decoder
from penstock.kinds.event import Event
from penstock.kinds.moments import SECOND
from penstock.runtime.arrivals import ArrivedBlocks
from penstock.runtime.entrance import Entrance
from penstock.runtime.hop import Hop
from penstock.runtime.lineage import NONE, SOURCE_SHIFT, LineageColumns
from penstock.runtime.modes import refuse_in_memory
from penstock.runtime.output import LETTERS, MemoryOutput
from penstock.runtime.pages import MemoryStore
from penstock.runtime.partitioner import PRESENT, Partitioner
from penstock.runtime.stage import Stage
from penstock.runtime.tally import ElementTally, Tally
from penstock.runtime.wire import TALLY
from penstock.runtime.wiring import Wiring


class Crash(PenstockError):
    """Raised for the crash that a test requested by `TopologyDriver.crash_at`."""


@dataclass
class _Committed:
    """Everything that survives a crash: state, watermark and output of the committed micro-batches."""

    stores: dict[tuple[int, int], MemoryStore]
    watermark: float | None = None
    ended: bool = False
    greatest_times: dict[str, int] = field(default_factory=dict)
    """The greatest event time of each source, in microseconds since the epoch."""
    last_heard: dict[str, datetime] = field(default_factory=dict)
    """The processing time of each source's last event."""
    outputs: dict[str, list[bytes]] = field(default_factory=dict)
    """Lines of JSON, by the label of the output."""
    tallies: list[Tally] = field(default_factory=list)


class TopologyDriver:
    """Runs an application's topology batch by batch.

    >>> from penstock import App, Event, ProcessingElement
    >>> class Word(Event):
    ...     text: str
    >>> class Count(Event):
    ...     text: str
    ...     seen: int
    >>> app = App("count")
    >>> words, counts = app.source("Words", Word), app.stream("Counts", Count)
    >>> @app.element(words, key="text", emits=counts)
    ... class Counter(ProcessingElement):
    ...     seen: int = 0
    ...     def on_event(self, event):
    ...         self.seen += 1
    ...     def on_batch(self):
    ...         yield counts(self.key, self.seen)
    >>> out = app.sink("Out", counts)
    >>> driver = TopologyDriver(app)
    >>> driver.batch({"Words": [Word("a"), Word("b"), Word("a")]})
    >>> sorted(driver.output(out), key=lambda count: count.text)
    [Count(text='a', seen=2), Count(text='b', seen=1)]
    >>> driver.crash_at(0)
    >>> driver.batch({"Words": ['{"text": "b"}']})
    Traceback (most recent call last):
    penstock.testing.driver.Crash: ...
    >>> driver.advance(60)
    >>> driver.batch({"Words": ['{"text": "b"}']})  # once more, as Spark would
    >>> driver.output("Out")[-1]
    Count(text='b', seen=2)
    >>> driver = driver.upgraded(app)  # another version of the code, as the next start of a run
    >>> driver.finish()

    Args:
        app: the application; its query-dialect elements need Spark and are refused here.
        partitions: the number of partitions of each hop.
        start: the processing time of the first batch; without a zone it is UTC.
        dead_letters: whether events that cannot be decoded or handled become dead letters, as in a run; otherwise `batch`
            raises.
    """

    def __init__(
        self, app: App, *, partitions: int = 2, start: datetime = datetime(2026, 1, 1, tzinfo=UTC), dead_letters: bool = False
    ) -> None:
        self._topology = app.topology()
        refuse_in_memory(self._topology)
        if partitions < 1:
            raise ConfigurationError(f"partitions is {partitions}; give 1 or more.")
        start = start if start.tzinfo else start.replace(tzinfo=UTC)
        for element in self._topology.elements:
            element.prepare()
        self._app = app
        self._state = describe_state(self._topology)
        self._partitions = partitions
        self._on_error: Literal["dead-letter", "stop"] = app.on_error if dead_letters else "stop"
        self.now = start
        stores = {
            (hop, partition): MemoryStore() for hop in range(1, self._topology.hops + 1) for partition in range(partitions)
        }
        self._committed = _Committed(stores)
        self._start = start
        self._crash_at: int | None = None
        self._partitioner: Partitioner = PRESENT
        self._hop: type[Hop] = Hop
        self._stage: type[Stage] = Stage

    @cached_property
    def _wiring(self) -> Wiring:
        earlier = {name: forms for name, schema in self._state.items() if (forms := forms_of(schema))}
        return Wiring(self._topology, self._partitions, (), self._on_error, earlier, self._partitioner)

    def upgraded(self, app: App) -> "TopologyDriver":
        """Return a driver for another version of the application, which continues from this driver's state as a restart does.

        State is compared. What the start of a run refuses besides is not: another source or number of keyed hops, and a first
        timer or event time.

        Raises:
            IncompatibleStateError: the stored state does not fit the new version, and is not migrated.
        """
        other = TopologyDriver(app, partitions=self._partitions, start=self._start, dead_letters=self._on_error != "stop")
        other._state = describe_state(other._topology, self._state)
        check_state_fits(self._state, other._state)
        other.now, committed = self.now, deepcopy(self._committed)
        other._committed = replace(committed, stores={**other._committed.stores, **committed.stores})
        return other

    def advance(self, seconds: float) -> None:
        """Advance the processing-time clock."""
        self.now = datetime.fromtimestamp(self.now.timestamp() + seconds, UTC)

    def crash_at(self, event: int) -> None:
        """Raise `Crash` in the next micro-batch with more than ``event`` events of one source, before that event (from 0).

        The micro-batch is not committed: run it again, as Spark would.
        """
        if event < 0:
            raise ConfigurationError(f"crash_at({event}): events are counted from 0.")
        self._crash_at = event

    def batch(self, events: Mapping[str, Sequence[Event | bytes | str]] | None = None) -> None:
        """Run one micro-batch. Events are objects, or JSON as bytes or text.

        Raises:
            RunFailedError: an event cannot be decoded or handled, and the driver does not keep dead letters. Names the element
                and the line of its code; the micro-batch is not committed.
            TopologyError: there is no such source, or an event is of another type than the source's.
        """
        _check_names("source", events or {}, [source.name for source in self._topology.sources])
        if events and self._committed.ended:
            raise TopologyError("The input has ended (finish() was called), so no events can come: make another driver.")
        self._try(Attempt(self, events or {}))

    def finish(self) -> None:
        """End the input by a last micro-batch, whose watermark closes all windows and fires all event-time timers, also behind
        several hops.
        """
        before, self._committed.watermark = self._committed.watermark, FOREVER / SECOND
        self._committed.ended = True
        try:
            self.batch()
        except Exception:
            self._committed.watermark, self._committed.ended = before, False
            raise

    def output(self, sink: Sink | str) -> list[Any]:
        """Return all committed events of a sink, in the order of their micro-batches."""
        name = sink if isinstance(sink, str) else sink.name
        types = {known.name: known.stream.event_type for known in self._topology.sinks}
        _check_names("sink", [name], list(types))
        return list(map(json_decoder(types[name]).decode, self._committed.outputs.get(name, [])))

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        """The dead letters: dicts with ``element``, ``stream``, ``error``, and ``event`` or ``raw``."""
        return list(map(msgspec.json.decode, self._committed.outputs.get(LETTERS, [])))

    @property
    def elements(self) -> dict[str, ElementTally]:
        """Counts and service times, by element."""
        totals: dict[str, ElementTally] = {}
        for tally in self._committed.tallies:
            for name, figures in tally.elements.items():
                totals.setdefault(name, ElementTally()).merge(figures)
        return totals

    def _try(self, attempt: "Attempt") -> None:
        attempt.run()
        self._commit(attempt)

    def _commit(self, attempt: "Attempt") -> None:
        committed = self._committed
        committed.stores = attempt.stores
        committed.greatest_times = attempt.greatest_times
        committed.tallies.extend(attempt.tallies)
        committed.last_heard |= {name: self.now for name, events in attempt.events.items() if events}
        for name, lines in attempt.outputs.items():
            committed.outputs.setdefault(name, []).extend(lines)
        self._advance_watermark()

    def _is_idle(self, source: Source[Any]) -> bool:
        assert source.event_time is not None
        silent = (self.now - self._committed.last_heard.get(source.name, self._start)).total_seconds()
        return source.event_time.idle is not None and silent >= source.event_time.idle

    def _advance_watermark(self) -> None:
        """Advance the watermark as Spark does: to the least over sources that are not idle, in milliseconds, never back."""
        timed = [source for source in self._topology.sources if source.event_time is not None]
        speaking = [source for source in timed if not self._is_idle(source)] or timed
        marks = [
            self._committed.greatest_times.get(source.name, 0) // 1000 - round(source.event_time.lateness * 1000)
            for source in speaking
            if source.event_time is not None
        ]
        mark = min(marks, default=0) / 1000
        if mark > 0 and not self._committed.ended:
            self._committed.watermark = max(mark, self._committed.watermark or mark)


def _check_names(kind: str, given: Iterable[str], known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise TopologyError(f"There is no {kind} {name}; the application has {', '.join(known) or 'none'}.")


class Attempt:
    """One attempt at a micro-batch, which works on copies of the stores until it is committed."""

    def __init__(self, driver: TopologyDriver, events: Mapping[str, Sequence[Any]]) -> None:
        self._driver = driver
        self.events = events
        committed = driver._committed
        self.stores = {place: store.copy() for place, store in committed.stores.items()}
        self.watermark = committed.watermark
        self.greatest_times = dict(committed.greatest_times)
        self.wiring = driver._wiring
        self._outputs: list[MemoryOutput] = []
        self.tallies: list[Tally] = []

    def run(self) -> None:
        """Run the whole micro-batch, without a commit."""
        pending = [self.enter()]
        for hop in range(1, self.wiring.hops + 1):
            pending = list(self._run_hop(hop, pending))
        for batch in pending:
            for hop, block in zip(batch["hop"].to_pylist(), batch["block"].to_pylist(), strict=True):
                assert hop == TALLY
                self.tallies.append(Tally.read(block))

    def enter(self) -> pa.RecordBatch:
        """Run the stage before the first hop on the events; returns the rows for later stages."""
        stage = self._stage(0, 0)
        for name, events in self.events.items():
            self._accept(stage, name, events)
        return stage.finish()

    @property
    def outputs(self) -> dict[str, list[bytes]]:
        """Lines of JSON, by the label of the output."""
        outputs: dict[str, list[bytes]] = {}
        for output in self._outputs:
            for label, lines in output.lines.items():
                outputs.setdefault(label, []).extend(lines)
        return outputs

    def _stage(self, number: int, partition: int) -> Stage:
        output = self._output()
        self._outputs.append(output)
        return self._driver._stage(self.wiring, number, partition, output)

    def _output(self) -> MemoryOutput:
        return MemoryOutput()

    def _accept(self, stage: Stage, name: str, events: Sequence[Any]) -> None:
        source = self.wiring.source(name)
        for event in events:
            if not isinstance(event, bytes | str | source.event_type):
                raise TopologyError(
                    f"Source {name} takes {source.event_type.__name__}, or JSON as text or bytes, not {event!r}."
                )
        payloads = [event.encode() if isinstance(event, str) else event for event in events]
        entrance = Entrance(stage, source)
        crash_at = self._driver._crash_at
        if crash_at is not None and crash_at < len(payloads):
            self._driver._crash_at = None
            entrance.given(payloads[:crash_at], self._lineages(source, crash_at))
            raise Crash(f"The driver crashed at event {crash_at} of {name}, as the test asked.")
        entrance.given(payloads, self._lineages(source, len(payloads)))
        if source.event_time is not None and entrance.greatest_time != NONE:
            self.greatest_times[name] = max(entrance.greatest_time, self.greatest_times.get(name, entrance.greatest_time))

    def _lineages(self, source: Any, rows: int) -> LineageColumns:
        now = np.full(rows, round(self._driver.now.timestamp() * 1e6), np.int64)
        number = self.wiring.topology.sources.index(source)
        order = np.arange(rows, dtype=np.int64) + (number << SOURCE_SHIFT)
        return LineageColumns.read(now, np.zeros(rows, np.int64), order)

    def _run_hop(self, hop: int, pending: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        rows = pa.Table.from_batches(list(pending))
        here = pc.equal(rows["hop"], hop)
        yield from rows.filter(pc.invert(here)).to_batches()
        arrived = rows.filter(here)
        for partition in range(self.wiring.partitions):
            arrivals = ArrivedBlocks(self.wiring)
            for block in arrived.filter(pc.equal(arrived["bucket"], partition))["block"].to_pylist():
                arrivals.add(block)
            stage = self._stage(hop, partition)
            store = self.stores[hop, partition]
            yield from self._driver._hop(stage, arrivals, store, self._driver.now.timestamp(), self.watermark).run()
