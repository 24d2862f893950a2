"""Calls the bodies of keyless elements, on each event or on record batches."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.app.element import Element, overrides
from penstock.app.stream import Stream
from penstock.errors import EmissionError
from penstock.kinds.defaults import maker
from penstock.runtime.awaiting import CallOutcome, outcome, run, side_by_side
from penstock.runtime.codec import Codec
from penstock.runtime.compiling.function import CompiledFunction
from penstock.runtime.emitter import Emitter
from penstock.runtime.events import EventBatch
from penstock.runtime.letters import FAULTS, DeadLetters
from penstock.runtime.lineage import Lineage, LineageColumns
from penstock.runtime.log import AtWork, Lines, working
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
    emitter = Emitter(element, wiring, batch.lineage, tally.partition)
    if (compiled := wiring.compiled(element)) is not None and (call := compiled.bound(emitter.puts())) is not None:
        return _run_compiled(element, compiled, call, emitter, batch, handed, wiring, tally, letters)
    instance = maker(element.prototype)() if element.prototype else None
    handle = instance.on_event if instance else element.body
    events, counted = batch.events(wiring), tally.element(element.name)
    rows: Iterable[int] = range(len(events))
    with working(AtWork(tally.log, element.name)):
        element.prepare()
        if element.asynchronous:
            with counted.timed_together(len(events)):  # make all calls first; the loop below takes their outcomes
                handle, handed = CallOutcome.get, _outcomes(element, handle, handed, tally.log, emitter)
        else:
            rows = counted.timed(range(len(events)))
        for row in rows:
            try:
                emissions = emitter.collect(handle(handed[row]))
            except FAULTS as error:
                letters.write(element.name, batch.stream, events[row], error, batch.lineage.row(row))
            else:
                if emissions:
                    emitter.add(emissions, row)
        if instance is not None and element.prototype and overrides(element.prototype, "on_batch"):
            # What on_batch emits has no single cause, and counts as born with the latest event.
            born = int(batch.lineage.born.max())
            try:
                emitter.add_uncaused(emitter.collect(instance.on_batch()), born)
            except FAULTS as error:
                letters.write(element.name, batch.stream, None, error, Lineage.uncaused(born, tally.partition))
    return list(emitter.batches())


def _run_compiled(
    element: Element,
    compiled: CompiledFunction,
    call: Callable[[Any], Any],
    emitter: Emitter,
    batch: EventBatch,
    handed: list[Any],
    wiring: Wiring,
    tally: Tally,
    letters: DeadLetters,
) -> list[EventBatch]:
    """Call a compiled function on each event; returns the events that it has put into its streams."""
    ends: dict[Stream[Any], list[int]] = {stream: [] for stream in element.emits}
    emitted = [(events, ends[stream]) for stream, events in emitter.emitted.items()]
    with working(AtWork(tally.log, element.name)):
        element.prepare()
        for row in tally.element(element.name).timed(range(len(handed))):
            try:
                call(handed[row])
            except FAULTS as error:
                for events, so_far in emitted:
                    del events[so_far[-1] if so_far else 0 :]
                event, lineage = batch.events(wiring)[row], batch.lineage.row(row)
                letters.write(element.name, batch.stream, event, compiled.failure(error), lineage)
            for events, so_far in emitted:
                so_far.append(len(events))
    emitter.caused(ends)
    return list(emitter.batches())


def _outcomes(
    element: Element, call: Callable[[Any], Any], events: list[Any], log: Lines, emitter: Emitter
) -> list[CallOutcome]:
    """Make an asynchronous call for each event, as many concurrently as the element allows; returns their outcomes."""
    assert element.timeout is not None
    outcomes: list[Any] = [None] * len(events)

    async def handle(row: int, timeout: float = element.timeout) -> None:
        with working(AtWork(log, element.name)):
            outcomes[row] = await outcome(call, events[row], timeout, emitter.checked)

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
