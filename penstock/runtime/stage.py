"""A stage: what one partition does with events between two shuffles.

Events enter from a source or from a hop's containers, pass through the keyless elements that
listen to them, and end in sinks, in dead letters, or in the outbox to a later hop.
"""

import traceback
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.app.element import Element, overrides
from penstock.app.stream import Emission, Source, Stream
from penstock.errors import EmissionError, RunFailedError
from penstock.runtime.lineage import LAST, NONE, Lineage, LineageColumns
from penstock.runtime.plan import Plan
from penstock.runtime.staging import DEAD_LETTERS, Staging
from penstock.runtime.tally import Births, Tally
from penstock.runtime.wire import TALLY, Outbox

Encoded = TypeVar("Encoded")


def _microseconds(moment: datetime) -> int:
    """Since the epoch; a time without a zone is in UTC."""
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e6)


def refuse_nul(columns: pa.RecordBatch) -> pa.RecordBatch:
    """The same columns, where no text in them holds the character NUL.

    Raises
    ------
    ValueError: one does; names its column.
    """
    for name, column in zip(columns.schema.names, columns.columns, strict=True):
        if pa.types.is_string(column.type):
            found = pc.any(pc.match_substring(column, "\0")).as_py()
        else:
            found = pa.types.is_nested(column.type) and b"\\u0000" in msgspec.json.encode(
                column.to_pylist(), enc_hook=str
            )
        if found:
            raise ValueError(f"Field {name} holds the character NUL, which PostgreSQL does not keep")
    return columns


class EventBatch:
    """Events of one stream with their lineages, as objects or as columns, whichever is asked for."""

    def __init__(
        self,
        stream: Stream[Any],
        lineage: LineageColumns,
        *,
        events: list[Any] | None = None,
        columns: pa.RecordBatch | None = None,
    ) -> None:
        self.stream = stream
        self.lineage = lineage
        self._events, self._columns = events, columns

    def __len__(self) -> int:
        return len(self.lineage.born)

    def events(self, plan: Plan) -> list[Any]:
        """The events as objects."""
        if self._events is None:
            self._events = plan.codec(self.stream.event_type).from_columns(self._columns)
        return self._events

    def columns(self, plan: Plan) -> pa.RecordBatch:
        """The events as a record batch."""
        if self._columns is None:
            self._columns = plan.codec(self.stream.event_type).to_columns(self._events or [])
        return self._columns


class Emitter:
    """Collects what one element emits while it is handed many events.

    Parameters
    ----------
    causes: the lineages of those events.
    partition: the one in which this happens.
    """

    def __init__(self, element: Element, plan: Plan, causes: LineageColumns, partition: int) -> None:
        self._element = element
        self._causes = causes
        self._uncaused_born: list[int] = []
        self._partition = partition
        self._checked = {stream: plan.codec(stream.event_type).checked for stream in element.emits}
        self._emitted: dict[Stream[Any], tuple[list[Any], list[int]]] = {stream: ([], []) for stream in element.emits}

    def collect(self, result: Any) -> Sequence[Emission]:
        """What a hook yielded or returned, run to its end and checked, before any of it counts.

        Raises
        ------
        EmissionError: it holds something other than events of declared streams.
        msgspec.ValidationError: a value is not of its field's type.
        """
        if result is None:
            return ()
        emissions = [result] if isinstance(result, Emission) else list(result)
        for index, emission in enumerate(emissions):
            checked = self._checked.get(emission.stream) if type(emission) is Emission else None
            if checked is None:
                self._refuse(emission)
            else:
                event = checked(emission.event)
                if event is not emission.event:
                    emissions[index] = Emission(emission.stream, event)
        return emissions

    def add(self, emissions: Sequence[Emission], cause: int) -> None:
        """Keep emissions that an event caused, given its place among the causes."""
        for emission in emissions:
            events, rows = self._emitted[emission.stream]
            events.append(emission.event)
            rows.append(cause)

    def add_uncaused(self, emissions: Sequence[Emission], born: int) -> None:
        """Keep emissions that no single event caused; they come after all that one did."""
        self.add(emissions, len(self._causes.born) + len(self._uncaused_born))
        self._uncaused_born.append(born)

    def batches(self) -> Iterable[EventBatch]:
        """All that was emitted, by stream."""
        lineage = self._causes.followed_by(LineageColumns.uncaused(self._uncaused_born, self._partition))
        for stream, (events, rows) in self._emitted.items():
            if events:
                yield EventBatch(stream, lineage.take(rows), events=events)

    def _refuse(self, thing: Any) -> None:
        declared = ", ".join(stream.name for stream in self._emitted) or "no stream"
        what = f"into {thing.stream.name}" if isinstance(thing, Emission) else f"{thing!r}"
        raise EmissionError(
            f"{self._element.name} emitted {what}, but declares that it emits into {declared}: call a declared stream "
            "with the event's fields, and name it in emits=."
        )


class Stage:
    """One stage in one partition, for one micro-batch.

    Parameters
    ----------
    call: tells several stages of one hop, partition and batch apart, in the names of their files.
    """

    def __init__(self, plan: Plan, stage: int, partition: int, call: str = "") -> None:
        self.plan = plan
        self.tally = Tally(stage, partition)
        self.outbox = Outbox()
        self.greatest_time = NONE
        """Of the source events that have entered here; microseconds since the epoch."""
        self._staging = Staging(plan.sinks, f"{stage}-{partition:05d}{call}")
        self._encode = msgspec.json.Encoder().encode

    # --- events that enter from a source -------------------------------------------------------

    def accept_json(
        self, source: Source[Any], payloads: list[bytes], lineage: LineageColumns, *, lines: bool = True
    ) -> None:
        """Decode JSON events; what does not decode becomes a dead letter. Blank lines are no events."""
        decode = self.plan.codec(source.event_type).decode_json
        tally = self.tally.source(source.name)
        tally.rows += len(payloads)
        try:
            events = [decode(payload) for payload in payloads]
        except Exception:
            whole = [row for row, payload in enumerate(payloads) if payload.strip() or not lines]
            tally.blank += len(payloads) - len(whole)
            self._decode_each(source, [payloads[row] for row in whole], lineage.take(whole), decode, bytes)
        else:
            tally.accepted += len(events)
            self._enter(source, EventBatch(source, lineage, events=events))

    def accept_messages(self, source: Source[Any], rows: list[dict[str, Any]], lineage: LineageColumns) -> None:
        """Decode JSON events some of whose fields stand beside them, as a message's key and headers do."""
        self.tally.source(source.name).rows += len(rows)
        decode = self.plan.codec(source.event_type).from_message
        self._decode_each(
            source, rows, lineage, lambda row: decode(row["payload"], row["beside"]), lambda row: bytes(row["payload"])
        )

    def accept_text_fields(self, source: Source[Any], rows: list[dict[str, Any]], lineage: LineageColumns) -> None:
        """Decode events given as text fields (CSV)."""
        self.tally.source(source.name).rows += len(rows)
        self._decode_each(source, rows, lineage, self.plan.codec(source.event_type).from_text, self._encode)

    def _decode_each(
        self,
        source: Source[Any],
        rows: list[Any],
        lineage: LineageColumns,
        decode: Callable[[Any], Any],
        raw: Callable[[Any], bytes],
    ) -> None:
        self.tally.source(source.name).accepted += len(rows)
        events, good = [], []
        for index, row in enumerate(rows):
            try:
                events.append(decode(row))
                good.append(index)
            except Exception as error:  # besides wrong JSON and types, say, JSON nested too deep
                self._reject(source, raw(row), error, lineage.row(index))
        self._enter(source, EventBatch(source, lineage.take(good), events=events))

    def accept_columns(self, source: Source[Any], columns: pa.RecordBatch, lineage: LineageColumns) -> None:
        """Take events that come as typed columns (Parquet); their types were checked at the start."""
        tally = self.tally.source(source.name)
        tally.rows += columns.num_rows
        codec = self.plan.codec(source.event_type)
        schema = codec.schema
        if not codec.flat:  # an Enum, say, of which no column's type knows the members
            rows = [columns.slice(index, 1) for index in range(columns.num_rows)]
            self._decode_each(source, rows, lineage, lambda row: codec.from_columns(row)[0], self._show_row)
            return
        tally.accepted += columns.num_rows
        required = [field.name for field in schema if not field.nullable and columns.column(field.name).null_count]
        if required:
            columns, lineage = self._reject_nulls(source, columns, lineage, required)
        self._enter(source, EventBatch(source, lineage, columns=columns))

    def _show_row(self, row: pa.RecordBatch) -> bytes:
        return msgspec.json.encode(row.to_pylist()[0], enc_hook=str)

    def _reject_nulls(
        self, source: Source[Any], columns: pa.RecordBatch, lineage: LineageColumns, required: list[str]
    ) -> tuple[pa.RecordBatch, LineageColumns]:
        bad = np.zeros(columns.num_rows, dtype=bool)
        for name in required:
            bad |= columns.column(name).is_null().to_numpy(zero_copy_only=False)
        for index in np.flatnonzero(bad).tolist():
            row = columns.slice(index, 1).to_pylist()[0]
            missing = ", ".join(name for name in required if row[name] is None)
            error = ValueError(f"Field {missing} is null, and {source.event_type.__name__} does not make it optional")
            self._reject(source, msgspec.json.encode(row, enc_hook=str), error, lineage.row(index))
        good = np.flatnonzero(~bad)
        return columns.take(pa.array(good)), lineage.take(good)

    def _enter(self, source: Source[Any], batch: EventBatch) -> None:
        if source.event_time is not None and len(batch):
            own_time = attrgetter(source.event_time.field)
            times = [_microseconds(own_time(event)) for event in batch.events(self.plan)]
            batch.lineage = batch.lineage._replace(time=np.array(times, np.int64))
            self.greatest_time = max(self.greatest_time, *times)
        self.route(batch)

    # --- the way of events through the stage ---------------------------------------------------

    def route(self, batch: EventBatch) -> None:
        """Hand a stream's events to its sinks, to the way to its keyed listeners, and to its keyless ones."""
        if not len(batch):
            return
        name = batch.stream.name
        self.tally.streams[name] = self.tally.streams.get(name, 0) + len(batch)
        for sink in self.plan.sinks_of(batch.stream):
            self._write(sink, batch)
        for element in self.plan.keyed_by(batch.stream):
            self._send(element, batch)
        for element in self.plan.keyless(batch.stream):
            if element.dialect == "batch":
                self._run_batch(element, batch)
            else:
                self._run_keyless(element, batch)

    def _write(self, sink: str, batch: EventBatch) -> None:
        files = self._staging.files(sink)
        if files.kind == "parquet":
            check = refuse_nul if files.refuses_nul else lambda columns: columns
            columns, batch = self._encoded(sink, batch, lambda part: check(part.columns(self.plan)))
            self._staging.write_columns(sink, columns, batch.lineage.born)
        else:
            lines, batch = self._encoded(sink, batch, lambda part: list(map(self._encode, part.events(self.plan))))
            self._staging.write_lines(sink, lines)
        self.tally.births.append(Births.of(batch.lineage.born))

    def _send(self, element: Element, batch: EventBatch) -> None:
        key, target = self.plan.keys[element.name], self.plan.targets[element, batch.stream]
        encode = self.plan.codec(batch.stream.event_type).encode_msgpack
        _, batch = self._encoded(element.name, batch, lambda part: encode(part.events(self.plan)))
        events = batch.events(self.plan)
        hop = self.plan.stages[element.name]
        self.outbox.send(hop, target, key.buckets(events), events, batch.lineage)
        self.tally.sent[element.name] = self.tally.sent.get(element.name, 0) + len(events)

    def _encoded(
        self, place: str, batch: EventBatch, encode: Callable[[EventBatch], Encoded]
    ) -> tuple[Encoded, EventBatch]:
        """Encode a batch, without the events that cannot be (an integer of 65 bits, say): those are dead letters."""
        try:
            return encode(batch), batch
        except Exception:
            good = []
            for row, event in enumerate(batch.events(self.plan)):
                try:
                    encode(EventBatch(batch.stream, batch.lineage.take([row]), events=[event]))
                    good.append(row)
                except Exception as error:
                    self.dead_letter(place, batch.stream, event, error, batch.lineage.row(row))
            events = [batch.events(self.plan)[row] for row in good]
            batch = EventBatch(batch.stream, batch.lineage.take(good), events=events)
            return encode(batch), batch

    def _run_keyless(self, element: Element, batch: EventBatch) -> None:
        instance = element.prototype() if element.prototype else None
        handle = instance.on_event if instance else element.body
        emitter = Emitter(element, self.plan, batch.lineage, self.tally.partition)
        events = batch.events(self.plan)
        for row in self.tally.element(element.name).timed(range(len(events))):
            try:
                emissions = emitter.collect(handle(events[row]))
            except Exception as error:
                self.dead_letter(element.name, batch.stream, events[row], error, batch.lineage.row(row))
            else:
                if emissions:
                    emitter.add(emissions, row)
        if instance is not None and element.prototype and overrides(element.prototype, "on_batch"):
            born = int(batch.lineage.born.max())
            try:
                emitter.add_uncaused(emitter.collect(instance.on_batch()), born)
            except Exception as error:
                lineage = Lineage(born, NONE, LAST, self.tally.partition)
                self.dead_letter(element.name, batch.stream, None, error, lineage)
        for emitted in emitter.batches():
            self.route(emitted)

    def _run_batch(self, element: Element, batch: EventBatch) -> None:
        tally = self.tally.element(element.name)
        columns, batch = self._encoded(element.name, batch, lambda part: part.columns(self.plan))
        outputs: list[tuple[pa.RecordBatch, LineageColumns]] = []
        for _ in tally.timed(range(1)):
            outputs = self._call_batch(element, batch, columns, batch.lineage)
        tally.events += len(batch) - 1
        for output, lineage in outputs:
            self.route(EventBatch(element.emits[0], lineage, columns=output))

    def _call_batch(
        self, element: Element, batch: EventBatch, columns: pa.RecordBatch, lineage: LineageColumns
    ) -> list[tuple[pa.RecordBatch, LineageColumns]]:
        """Call a body on a record batch; if it raises, halve the batch until the rows at fault stand alone."""
        try:
            output = self._conform(element, element.body(columns))
        except Exception as error:
            if columns.num_rows == 1:
                event = self.plan.codec(batch.stream.event_type).from_columns(columns)[0]
                self.dead_letter(element.name, batch.stream, event, error, lineage.row(0))
                return []
            half = columns.num_rows // 2
            parts = (slice(0, half), slice(half, columns.num_rows))
            return [
                result
                for part in parts
                for result in self._call_batch(
                    element,
                    batch,
                    columns.slice(part.start, part.stop - part.start),
                    lineage.take(part),
                )
            ]
        return [(output, lineage.spread(output.num_rows))]

    def _conform(self, element: Element, output: Any) -> pa.RecordBatch:
        stream = element.emits[0]
        schema = self.plan.codec(stream.event_type).schema
        if not isinstance(output, pa.RecordBatch):
            raise EmissionError(
                f"{element.name} returned {type(output).__name__}; the batch dialect returns a RecordBatch."
            )
        missing = [name for name in schema.names if name not in output.schema.names]
        if missing:
            raise EmissionError(
                f"{element.name} returned columns {', '.join(output.schema.names)}, without {', '.join(missing)} of "
                f"stream {stream.name}."
            )
        output = output.select(schema.names)
        for field in schema:
            if not field.nullable and output.column(field.name).null_count:
                raise EmissionError(
                    f"{element.name} returned a null in column {field.name}, which stream {stream.name} needs."
                )
        if output.schema.types != schema.types:
            columns = [column.cast(field.type) for column, field in zip(output.columns, schema, strict=True)]
            output = pa.RecordBatch.from_arrays(columns, schema=schema)
        codec = self.plan.codec(stream.event_type)
        if not codec.flat:
            codec.from_columns(output)  # raises where a value does not fit
        return output

    # --- what fails, and the end ----------------------------------------------------------------

    def _reject(self, source: Source[Any], payload: bytes, error: Exception, lineage: Lineage) -> None:
        text = payload.decode("utf-8", "backslashreplace")
        self._bury({"element": None, "stream": source.name, "raw": text}, error, lineage)

    def dead_letter(self, element: str, stream: Stream[Any], event: Any, error: Exception, lineage: Lineage) -> None:
        """Keep an event that an element could not handle, with the error, or stop the run."""
        self.tally.element(element).dead_letters += 1
        self._bury({"element": element, "stream": stream.name, "event": event}, error, lineage)

    def _bury(self, letter: dict[str, Any], error: Exception, lineage: Lineage) -> None:
        message = f"{type(error).__name__}: {error}"
        if self.plan.on_error == "stop":
            place = letter["element"] or f"decoding {letter['stream']}"
            raise RunFailedError(f"{place}: {message}") from error
        if lineage.origin is not None:
            self.tally.failed.append(lineage.origin)
        letter["error"] = message
        if letter["element"] is not None:
            frames = traceback.extract_tb(error.__traceback__)[-1:]
            letter["line"] = next((f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames), None)
        try:
            line = self._encode(letter)
        except Exception:  # the event itself cannot be written as JSON
            line = self._encode({**letter, "event": repr(letter["event"])})
        self._staging.write_lines(DEAD_LETTERS, [line])

    def finish(self) -> pa.RecordBatch:
        """Close the staged files; all rows for later stages and the tally, as one batch of the wire."""
        self.tally.files = self._staging.close()
        self.outbox.add(
            TALLY, self.tally.partition % self.plan.partitions, msgspec.msgpack.encode(self.tally), self.greatest_time
        )
        return self.outbox.take()
