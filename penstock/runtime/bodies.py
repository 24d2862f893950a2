"""Calls the bodies of keyless elements, on each event or on record batches."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.app.element import Element, ProcessingElement, overrides
from penstock.app.stream import Stream
from penstock.errors import EmissionError
from penstock.kinds.defaults import maker
from penstock.runtime.awaiting import CallOutcome, outcome, run, side_by_side
from penstock.runtime.codec import Codec
from penstock.runtime.compiling.function import CompiledFunction
from penstock.runtime.emitter import Emitter
from penstock.runtime.events import EventBatch
from penstock.runtime.letters import FAULTS, DeadLetters, Failure
from penstock.runtime.lineage import Lineage, LineageColumns
from penstock.runtime.log import AtWork, working
from penstock.runtime.places import handed_to
from penstock.runtime.tally import Tally
from penstock.runtime.wiring import Wiring


def run_event_body(
    element: Element, batch: EventBatch, handed: list[Any], wiring: Wiring, tally: Tally, letters: DeadLetters
) -> list[EventBatch]:
    """Call a keyless element of the event dialect on each event; returns its emissions.

    Args:
        handed: copies of the events, which the element may change.
    """
    tally.come(handed_to(element.name), batch.lineage)
    return _EventBody(element, batch, handed, wiring, tally, letters).call()


class _EventBody:
    """The calls of a keyless element of the event dialect on a batch; see `run_event_body`."""

    def __init__(
        self, element: Element, batch: EventBatch, handed: list[Any], wiring: Wiring, tally: Tally, letters: DeadLetters
    ) -> None:
        self._element, self._batch, self._handed, self._wiring = element, batch, handed, wiring
        self._tally, self._counted, self._letters = tally, tally.element(element.name), letters
        self._emitter = Emitter(element, wiring, batch.lineage, tally.partition)

    def call(self) -> list[EventBatch]:
        """Call the element on each event, and write a dead letter where that fails; returns its emissions."""
        compiled = self._wiring.compiled(self._element)
        call = None if compiled is None else compiled.bound(self._emitter.puts())
        with working(AtWork(self._tally.log, self._element.name)):
            self._element.prepare()
            if compiled is not None and call is not None:
                self._call_compiled(compiled, call)
            else:
                self._call_each()
        return list(self._emitter.batches())

    def _call_compiled(self, compiled: CompiledFunction, call: Callable[[Any], Any]) -> None:
        """Call a compiled function, which puts its events into its streams, on each event."""
        ends: dict[Stream[Any], list[int]] = {stream: [] for stream in self._element.emits}
        emitted = [(events, ends[stream]) for stream, events in self._emitter.emitted.items()]
        handed = self._handed
        for row in self._counted.timed(range(len(handed))):
            try:
                call(handed[row])
            except FAULTS as error:
                for events, so_far in emitted:
                    del events[so_far[-1] if so_far else 0 :]
                self._fail(row, compiled.failure(error))
            for events, so_far in emitted:
                so_far.append(len(events))
        self._emitter.caused(ends)

    def _call_each(self) -> None:
        element, emitter, handed = self._element, self._emitter, self._handed
        instance = maker(element.prototype)() if element.prototype else None
        handle = instance.on_event if instance else element.body
        rows: Iterable[int] = range(len(handed))
        if element.asynchronous:
            with self._counted.timed_together(len(handed)):  # make all calls first; the loop below takes their outcomes
                handle, handed = CallOutcome.get, self._outcomes(handle)
        else:
            rows = self._counted.timed(range(len(handed)))
        for row in rows:
            try:
                emissions = emitter.collect(handle(handed[row]))
            except FAULTS as error:
                self._fail(row, error)
            else:
                if emissions:
                    emitter.add(emissions, row)
        if instance is not None and element.prototype and overrides(element.prototype, "on_batch"):
            self._end_batch(instance)

    def _end_batch(self, instance: ProcessingElement) -> None:
        """Call ``on_batch``. What it emits has no single cause, and counts as born with the latest event."""
        born = int(self._batch.lineage.born.max())
        try:
            self._emitter.add_uncaused(self._emitter.collect(instance.on_batch()), born)
        except FAULTS as error:
            origin = Lineage.uncaused(born, self._tally.partition)
            self._letters.write(self._element.name, self._batch.stream, None, error, origin)

    def _fail(self, row: int, error: Failure | BaseException) -> None:
        event = self._batch.events(self._wiring)[row]
        self._letters.write(self._element.name, self._batch.stream, event, error, self._batch.lineage.row(row))

    def _outcomes(self, call: Callable[[Any], Any]) -> list[CallOutcome]:
        """Make an asynchronous call for each event, as many concurrently as the element allows; returns their outcomes."""
        element, events, log = self._element, self._handed, self._tally.log
        assert element.timeout is not None
        outcomes: list[Any] = [None] * len(events)

        async def handle(row: int, timeout: float = element.timeout) -> None:
            with working(AtWork(log, element.name)):
                outcomes[row] = await outcome(call, events[row], timeout, self._emitter.checked)

        run(side_by_side((partial(handle, row) for row in range(len(events))), element.concurrency))
        return outcomes


def run_batch_body(
    element: Element, batch: EventBatch, columns: pa.RecordBatch, wiring: Wiring, tally: Tally, letters: DeadLetters
) -> list[EventBatch]:
    """Call an element of the batch dialect on a record batch; returns its output."""
    tally.come(handed_to(element.name), batch.lineage)
    body = _BatchBody(element, batch, wiring, letters)
    with tally.element(element.name).timed_together(len(batch)), working(AtWork(tally.log, element.name)):
        outputs = body.call(columns, batch.lineage)
    return [EventBatch(element.emits[0], lineage, columns=output) for output, lineage in outputs]


class _BatchBody:
    def __init__(self, element: Element, batch: EventBatch, wiring: Wiring, letters: DeadLetters) -> None:
        self._element, self._letters = element, letters
        self._stream, self._codec = batch.stream, wiring.codec(batch.stream.event_type)
        self._emitted = wiring.codec(element.emits[0].event_type)

    def call(self, columns: pa.RecordBatch, lineage: LineageColumns) -> list[tuple[pa.RecordBatch, LineageColumns]]:
        """Call the body; if it raises, halve the batch until each faulty row is alone, and becomes a dead letter."""
        try:
            output = conformed(self._element, self._element.body(columns), self._emitted)
        except FAULTS as error:
            if columns.num_rows == 1:
                event = self._codec.shown(columns, 0)
                self._letters.write(self._element.name, self._stream, event, error, lineage.row(0))
                return []
            half = columns.num_rows // 2
            parts = (slice(0, half), slice(half, columns.num_rows))
            return [
                result
                for part in parts
                for result in self.call(columns.slice(part.start, part.stop - part.start), lineage.take(part))
            ]
        return [(output, lineage.spread(output.num_rows))]


def conformed(element: Element, output: Any, emitted: Codec) -> pa.RecordBatch:
    """Convert the output of a batch-dialect body to a record batch with the columns of the stream that it is emitted into;
    None is no rows.

    Raises:
        EmissionError: a column is missing, or holds a null that the stream does not allow.
    """
    name, stream, schema = element.name, element.emits[0], emitted.schema
    if output is None:
        return pa.RecordBatch.from_pylist([], schema=schema)
    if isinstance(output, Mapping):
        output = pa.RecordBatch.from_pydict(output)
    if not isinstance(output, pa.RecordBatch):
        raise EmissionError(
            f"{name} returned {type(output).__name__}; the batch dialect returns a RecordBatch, a dict of columns, or None."
        )
    missing = [column for column in schema.names if column not in output.schema.names]
    if missing:
        raise EmissionError(
            f"{name} returned columns {', '.join(output.schema.names)}, without {', '.join(missing)} of stream {stream.name}."
        )
    output = output.select(schema.names)
    for field in schema:
        if not field.nullable and output.column(field.name).null_count:
            raise EmissionError(f"{name} returned a null in column {field.name}, which stream {stream.name} needs.")
    if output.schema.types != schema.types:
        columns = [column.cast(field.type) for column, field in zip(output.columns, schema, strict=True)]
        output = pa.RecordBatch.from_arrays(columns, schema=schema)
    if not emitted.flat:
        emitted.from_columns(output)  # raises where a row is no valid event
    return output
