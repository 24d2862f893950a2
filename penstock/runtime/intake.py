"""The stage before a query: what has been decoded goes on as typed columns, and its tally beside them."""

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
import pyarrow as pa

from penstock.runtime.events import EventBatch
from penstock.runtime.output import Output
from penstock.runtime.stage import Stage
from penstock.runtime.tally import Births, Tally
from penstock.runtime.wiring import Wiring

DRAFT = ".draft"


class Intake(Stage):
    """Decodes one partition of a source for a query, which Spark plans: no element is called here, and no sink is written.

    The rows of a query are events, so that the tally cannot go with them: it is left in a file.
    """

    def __init__(self, wiring: Wiring, partition: int, output: Output) -> None:
        super().__init__(wiring, 0, partition, output)
        self._leaves = any(wiring.sinks_of(stream) for stream in wiring.topology.streams)
        self._taken: list[pa.RecordBatch] = []

    def route(self, batch: EventBatch) -> None:
        """Keep a stream's events as columns; what does not fit into them is a dead letter."""
        if not len(batch):
            return
        self.tally.count("streams", batch.stream.name, len(batch))
        readers = self.wiring.topology.consumers(batch.stream)
        columns, batch = self.encoded(readers[0].name, batch, lambda part: part.columns(self.wiring))
        for element in readers:
            self.tally.element(element.name).events += len(batch)
        if self._leaves:
            self.tally.births.append(Births.of(batch.lineage.born))
        self._taken.append(columns)

    def take(self) -> Iterator[pa.RecordBatch]:
        """What has been kept since the last time."""
        taken, self._taken = self._taken, []
        yield from taken

    def leave_tally(self, path: Path) -> None:
        """Make dead letters durable, and leave the tally in a file, in place of that of an earlier try."""
        self.tally.files = self._output.close()
        for file in self.tally.files:
            self.tally.count("outputs", file.sink, file.rows)
        draft = path.with_name(f"{path.name}-{uuid4().hex}{DRAFT}")
        draft.write_bytes(msgspec.msgpack.encode(self.tally))
        os.replace(draft, path)


def tallies_in(directory: Path) -> list[Tally]:
    """The tallies that the partitions of a micro-batch have left."""
    return [Tally.read(path.read_bytes()) for path in sorted(directory.iterdir()) if path.suffix != DRAFT]
