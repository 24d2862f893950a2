"""The embedded log as a sink: results that the adapter hands to consumers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.adapter.log import Entry, EventLog
from penstock.adapter.streams import result_key
from penstock.app.stream import Sink
from penstock.engine.sinks.base import other_run
from penstock.errors import SinkError
from penstock.runtime.staging import SinkFiles
from penstock.runtime.tally import StagedFile


class LogSink:
    """A stream of an embedded log; how many batches it has of each group is noted with their events."""

    def __init__(self, sink: Sink, directory: Path, files: SinkFiles) -> None:
        self.files, self.uri = files, f"log:{directory}"
        self._sink, self._directory = sink, directory
        self._log = EventLog(directory).stream(sink.stream.name)

    def claim(self, run: str, previous: str | None) -> None:
        """See `BoundSink`. What a discarded run has left is trimmed; offsets go on."""
        owner = self._log.owner()
        _, end = self._log.bounds()
        if owner not in (run, previous) and (owner is not None or end):
            raise SinkError(other_run(self.files, f"stream {self._sink.stream.name} of {self._directory}", "log:PATH"))
        self._log.own(run, clear=owner != run)

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        """See `BoundSink`."""
        staged = [Path(file.staged) for file in files if Path(file.staged).exists()]
        payloads = [line for path in staged for line in path.read_bytes().splitlines()]
        keys = [result_key(msgspec.json.decode(line), self._sink.key) for line in payloads] if self._sink.key else None
        if self._log.positions().get(group, 0) <= batch:
            self._log.append([Entry(payloads, result_keys=keys)], {group: batch + 1})
        for path in staged:
            path.unlink()

    def read(self) -> list[Any]:
        """See `BoundSink`."""
        decode = msgspec.json.Decoder(self._sink.stream.event_type).decode
        return [decode(record.payload) for record in self._log.read(*self._log.bounds())]
