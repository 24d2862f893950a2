"""A stage: the work of one partition between two shuffles.

Events come from a source's entrance or from a hop's containers. They pass through the keyless elements that consume them, and
end in sinks, in dead letters, or in the outbox to a later hop.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from penstock.app.element import Element
from penstock.kinds.coding import msgpack_encoder
from penstock.runtime.bodies import run_batch_body, run_event_body
from penstock.runtime.events import EventBatch
from penstock.runtime.letters import DeadLetters
from penstock.runtime.lineage import NONE, Ints
from penstock.runtime.output import Output, SinkFiles, framed, prefixed, texts_beside
from penstock.runtime.places import Seen, handed_to, sent_to, staged_in, written_to
from penstock.runtime.tally import Births, Tally
from penstock.runtime.wire import TALLY, Outbox, PackedBlock
from penstock.runtime.wiring import Wiring

Encoded = TypeVar("Encoded")

_encode = msgpack_encoder().encode


class Stage:
    """One stage in one partition, for one micro-batch.

    Args:
        number: the number of the hop that feeds the stage; 0 for the stage behind the sources.
        output: takes the rows of sinks.
    """

    def __init__(self, wiring: Wiring, number: int, partition: int, output: Output) -> None:
        self.wiring = wiring
        self.tally = Tally(stage=number, partition=partition)
        self.outbox = Outbox(wiring.grouped)
        self.letters = DeadLetters(output, self.tally, wiring.on_error)
        self.greatest_time = NONE
        """The greatest event time of the source events that have entered here; microseconds since the epoch."""
        self._output = output

    def route(self, batch: EventBatch) -> None:
        """Write a stream's events to its sinks, send them to its keyed consumers, and run its keyless consumers on them."""
        if not len(batch):
            return
        self.tally.count("streams", batch.stream.name, len(batch))
        for sink in self.wiring.sinks_of[batch.stream]:
            self.tally.leave(written_to(sink), batch.lineage)
            self._write(sink, batch)
        for element in self.wiring.keyed_by[batch.stream]:
            self.tally.leave(sent_to(element.name), batch.lineage)
            self._send(element, batch)
        for element in self.wiring.keyless[batch.stream]:
            self.tally.leave(handed_to(element.name), batch.lineage)
            for emitted in self._run(element, batch):
                self.route(emitted)

    def finish(self) -> pa.RecordBatch:
        """Make the output durable; returns all rows for later stages, and the tally, as a record batch of `WIRE`."""
        self.tally.files = self._output.close()
        for file in self.tally.files:
            self.tally.count("outputs", file.sink, file.rows)
            self.tally.came.setdefault(staged_in(file.sink), Seen()).events += file.rows
        bucket = self.tally.partition % self.wiring.partitions
        self.outbox.add(TALLY, bucket, msgspec.msgpack.encode(self.tally), self.greatest_time)
        return self.outbox.take()

    def encoded(
        self,
        element: str,
        place: str,
        batch: EventBatch,
        encode: Callable[[EventBatch], Encoded],
        alone: Callable[[EventBatch], Any] | None = None,
    ) -> tuple[Encoded, EventBatch]:
        """Encode a batch, and return it with the events that are in it; those that cannot be encoded become dead letters.

        Args:
            element: the name of the consumer, for dead letters.
            place: where the events are on their way to, for the tally.
            alone: fails for a single event that cannot be encoded; by default ``encode`` tells.
        """
        try:
            return encode(batch), batch
        except Exception:
            good = []
            for row, event in enumerate(batch.events(self.wiring)):
                try:
                    (alone or encode)(EventBatch(batch.stream, batch.lineage.take([row]), events=[event]))
                    good.append(row)
                except Exception as error:
                    self.letters.write(element, batch.stream, event, error, batch.lineage.row(row))
                    self.tally.come(place, batch.lineage.take([row]))
            events = [batch.events(self.wiring)[row] for row in good]
            batch = EventBatch(batch.stream, batch.lineage.take(good), events=events)
            return encode(batch), batch

    def _run(self, element: Element, batch: EventBatch) -> list[EventBatch]:
        place = handed_to(element.name)
        if element.dialect == "event":
            handed, batch = self.encoded(element.name, place, batch, lambda part: part.own_copy(self.wiring))
            return run_event_body(element, batch, handed, self.wiring, self.tally, self.letters)
        columns, batch = self.encoded(element.name, place, batch, lambda part: part.columns(self.wiring))
        return run_batch_body(element, batch, columns, self.wiring, self.tally, self.letters)

    def _write(self, sink: str, batch: EventBatch) -> None:
        files, place = self._output.files(sink), written_to(sink)
        if files.kind == "parquet":

            def keepable(part: EventBatch) -> pa.RecordBatch:
                columns = part.columns(self.wiring, staged=files.wide)
                files.refuse(columns)
                return columns

            columns, batch = self.encoded(files.name, place, batch, keepable)
            lineage = batch.lineage.distinct() if files.role == "hop" else batch.lineage
            self._output.write_columns(sink, columns, lineage)
            if files.role == "hop":
                self.tally.handed.setdefault(batch.stream.name, Seen()).add_handed(lineage)
        else:
            lines, batch = self.encoded(files.name, place, batch, lambda part: self._checked_lines(part, files))
            self._output.write_lines(sink, lines)
        self.tally.come(place, batch.lineage)
        if self._output.keeps(sink):
            self.tally.left.setdefault(staged_in(sink), Seen()).events += len(batch)
        if files.role != "hop":  # a hop is no result yet
            self.tally.births.append(Births.of(batch.lineage.born))

    def _checked_lines(self, batch: EventBatch, files: SinkFiles) -> list[bytes]:
        lines = self._lines(batch, files)
        if files.largest:
            files.refuse_large(lines)
        return lines

    def _lines(self, batch: EventBatch, files: SinkFiles) -> list[bytes]:
        if files.frame is not None:
            events = batch.events(self.wiring)
            return framed(events, texts_beside(events, files), files)
        lines = batch.lines(self.wiring)
        return prefixed(texts_beside(batch.events(self.wiring), files), lines) if files.beside else lines

    def _send(self, element: Element, batch: EventBatch) -> None:
        pack = self._packed_columns if element.dialect == "batch" else self._packed_events
        tried = partial(self._packed_events, element, beside=False) if element.dialect == "event" else None
        blocks, _ = self.encoded(element.name, sent_to(element.name), batch, partial(pack, element), tried)
        self.outbox.send(self.wiring.topology.depths[element.name], blocks)

    def _packed_events(self, element: Element, batch: EventBatch, beside: bool = True) -> list[PackedBlock]:
        """Encode events by partition.

        Args:
            beside: whether what the element reads is sent in columns, too.
        """
        events, target = batch.events(self.wiring), self.wiring.targets[element, batch.stream]
        reads, columns = self.wiring.reads(element) if beside else None, None
        if reads is not None:
            with suppress(Exception):  # then the element takes the events
                columns = reads.columns(events)
        keys = self.wiring.keys[element.name]
        buckets = keys.buckets(events) if reads is None or columns is None else reads.buckets(columns)

        def encode(rows: Ints) -> bytes:
            return _encode([events[row] for row in rows.tolist()])

        return self.outbox.pack(target, buckets, batch.lineage, encode, columns)

    def _packed_columns(self, element: Element, batch: EventBatch) -> list[PackedBlock]:
        columns, target = batch.columns(self.wiring), self.wiring.targets[element, batch.stream]
        buckets = self.wiring.key_columns[element.name].buckets(columns)
        return self.outbox.pack(
            target, buckets, batch.lineage, lambda rows: columns.take(pa.array(rows)).serialize().to_pybytes()
        )
