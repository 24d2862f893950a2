"""Test a topology in memory: no Spark, no JVM, and the test owns the clock."""

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
from penstock.app.window.windowing import FOREVER, SECOND
from penstock.errors import PenstockError, TopologyError
from penstock.kinds.coding import json_decoder
from penstock.kinds.event import Event
from penstock.runtime.arrivals import Arrivals
from penstock.runtime.entrance import Entrance
from penstock.runtime.hop import Hop
from penstock.runtime.lineage import NONE, SOURCE_SHIFT, LineageColumns
from penstock.runtime.modes import refuse_in_memory
from penstock.runtime.output import LETTERS, MemoryOutput
from penstock.runtime.pages import MemoryStore
from penstock.runtime.stage import Stage
from penstock.runtime.tally import ElementTally, Tally
from penstock.runtime.wire import TALLY
from penstock.runtime.wiring import Wiring


class Crash(PenstockError):
    """The crash that a test asked for."""


@dataclass
class _Committed:
    """What survives a crash: the state, the watermark and the output of committed batches."""

    stores: dict[tuple[int, int], MemoryStore]
    watermark: float | None = None
    ended: bool = False
    greatest_times: dict[str, float] = field(default_factory=dict)
    """By source, in seconds since the epoch."""
    last_heard: dict[str, datetime] = field(default_factory=dict)
    """By source, the processing time of its last event."""
    outputs: dict[str, list[bytes]] = field(default_factory=dict)
    """JSON, by the labels of outputs."""
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

    Parameters
    ----------
    app: the application; its query-dialect elements need Spark and are refused here.
    partitions: in how many partitions each hop is divided.
    start: the processing time of the first batch.
    dead_letters: keep what cannot be decoded or handled, as a run does, instead of raising.
    """

    def __init__(
        self, app: App, *, partitions: int = 2, start: datetime = datetime(2026, 1, 1, tzinfo=UTC), dead_letters: bool = False
    ) -> None:
        self._topology = app.topology()
        refuse_in_memory(self._topology)
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
        self._hop: type[Hop] = Hop
        self._stage: type[Stage] = Stage

    @cached_property
    def _wiring(self) -> Wiring:
        earlier = {name: forms for name, schema in self._state.items() if (forms := forms_of(schema))}
        return Wiring(self._topology, self._partitions, (), self._on_error, earlier)

    def upgraded(self, app: App) -> "TopologyDriver":
        """The driver of another version of the application, which goes on where this one is, as the start of a run would.

        Raises
        ------
        IncompatibleStateError: the state does not fit, and is not migrated.
        """
        other = TopologyDriver(app, partitions=self._partitions, start=self._start, dead_letters=self._on_error != "stop")
        other._state = describe_state(other._topology, self._state)
        check_state_fits(self._state, other._state)
        other.now, committed = self.now, deepcopy(self._committed)
        other._committed = replace(committed, stores={**other._committed.stores, **committed.stores})
        return other

    def advance(self, seconds: float) -> None:
        """Move the processing-time clock on."""
        self.now = datetime.fromtimestamp(self.now.timestamp() + seconds, UTC)

    def crash_at(self, event: int) -> None:
        """Crash in the next batch in which a source has so many events, before its n-th (from 0) goes in; then `Crash` is
        raised.

        The batch is not committed: run it again, as Spark would, and go on.
        """
        self._crash_at = event

    def batch(self, events: Mapping[str, Sequence[Event | bytes | str]] | None = None) -> None:
        """Run one micro-batch. An event given as bytes or text is JSON yet to be decoded.

        Raises
        ------
        RunFailedError: an event cannot be decoded or handled, unless the driver keeps dead letters. Names the element
            and its line; nothing of the batch is kept.
        TopologyError: there is no such source, or an event is of another type than the source's.
        """
        _check_names("source", events or {}, [source.name for source in self._topology.sources])
        if events and self._committed.ended:
            raise TopologyError("The input has ended (finish() was called), so no events can come: make another driver.")
        self._try(Attempt(self, events or {}))

    def finish(self) -> None:
        """End the input: a last micro-batch, in which the watermark passes everything, closes all windows and fires all timers
        on event time, those behind several hops included.
        """
        before, self._committed.watermark = self._committed.watermark, FOREVER / SECOND
        self._committed.ended = True
        try:
            self.batch()
        except Exception:
            self._committed.watermark, self._committed.ended = before, False
            raise

    def output(self, sink: Sink | str) -> list[Any]:
        """All events that have left at a sink, in the order of their batches."""
        name = sink if isinstance(sink, str) else sink.name
        types = {known.name: known.stream.event_type for known in self._topology.sinks}
        _check_names("sink", [name], list(types))
        return list(map(json_decoder(types[name]).decode, self._committed.outputs.get(name, [])))

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        """What could not be decoded or handled: ``element``, ``stream``, ``error``, and ``event`` or ``raw``."""
        return list(map(msgspec.json.decode, self._committed.outputs.get(LETTERS, [])))

    @property
    def elements(self) -> dict[str, ElementTally]:
        """Counts and service times by element."""
        totals: dict[str, ElementTally] = {}
        for tally in self._committed.tallies:
            for name, one in tally.elements.items():
                totals.setdefault(name, ElementTally()).merge(one)
        return totals

    def _try(self, attempt: "Attempt") -> None:
        attempt.run()
        self._commit(attempt)

    def _commit(self, attempt: "Attempt") -> None:
        committed = self._committed
        committed.stores = attempt.stores
        committed.greatest_times = attempt.greatest_times
        committed.tallies.extend(attempt.tallies)
        committed.last_heard |= {name: self.now for name, given in attempt.events.items() if given}
        for name, lines in attempt.outputs.items():
            committed.outputs.setdefault(name, []).extend(lines)
        self._advance_watermark()

    def _is_idle(self, source: Source[Any]) -> bool:
        assert source.event_time is not None
        silent = (self.now - self._committed.last_heard.get(source.name, self._start)).total_seconds()
        return source.event_time.idle is not None and silent >= source.event_time.idle

    def _advance_watermark(self) -> None:
        """As Spark does: the least over the sources, in whole milliseconds, and never back; without those that are idle."""
        timed = [source for source in self._topology.sources if source.event_time is not None]
        speaking = [source for source in timed if not self._is_idle(source)] or timed
        marks = [
            round(self._committed.greatest_times.get(source.name, 0.0) * SECOND) // 1000
            - round(source.event_time.lateness * 1000)
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
    """One try at a micro-batch, on copies of what it changes."""

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
        """Run all of it; commits nothing."""
        pending = [self.enter()]
        for hop in range(1, self.wiring.hops + 1):
            pending = list(self._run_hop(hop, pending))
        for batch in pending:
            for hop, block in zip(batch["hop"].to_pylist(), batch["block"].to_pylist(), strict=True):
                assert hop == TALLY
                self.tallies.append(Tally.read(block))

    def enter(self) -> pa.RecordBatch:
        """Let the events in, and through what lies before the first hop; what goes on from there."""
        stage = self._stage(0, 0)
        for name, events in self.events.items():
            self._accept(stage, name, events)
        return stage.finish()

    @property
    def outputs(self) -> dict[str, list[bytes]]:
        """JSON lines, by the labels of outputs."""
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
        given = [event.encode() if isinstance(event, str) else event for event in events]
        entrance = Entrance(stage, source)
        crash_at = self._driver._crash_at
        if crash_at is not None and crash_at < len(given):
            self._driver._crash_at = None
            entrance.given(given[:crash_at], self._lineages(source, crash_at))
            raise Crash(f"The driver crashed at event {crash_at} of {name}, as the test asked.")
        entrance.given(given, self._lineages(source, len(given)))
        if source.event_time is not None and entrance.greatest_time != NONE:
            time = entrance.greatest_time / 1e6
            self.greatest_times[name] = max(time, self.greatest_times.get(name, time))

    def _lineages(self, source: Any, rows: int) -> LineageColumns:
        now = np.full(rows, round(self._driver.now.timestamp() * 1e6), np.int64)
        number = self.wiring.topology.sources.index(source)
        order = np.arange(rows, dtype=np.int64) + (number << SOURCE_SHIFT)
        return LineageColumns(now, np.full(rows, NONE, np.int64), np.zeros(rows, np.int64), order)

    def _run_hop(self, hop: int, pending: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        rows = pa.Table.from_batches(list(pending))
        here = pc.equal(rows["hop"], hop)
        yield from rows.filter(pc.invert(here)).to_batches()
        arrived = rows.filter(here)
        for partition in range(self.wiring.partitions):
            arrivals = Arrivals(self.wiring)
            for block in arrived.filter(pc.equal(arrived["bucket"], partition))["block"].to_pylist():
                arrivals.add(block)
            stage = self._stage(hop, partition)
            store = self.stores[hop, partition]
            yield from self._driver._hop(stage, arrivals, store, self._driver.now.timestamp(), self.watermark).run()
