"""A stream of the embedded log as a sink, whose results the adapter serves to consumers."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from penstock.app.stream import Sink, Source
from penstock.connectors.declaration import Options, SinkConnector, SinkContext
from penstock.connectors.log.log import EventLog, Parcel
from penstock.connectors.sink import BoundSink, fenced, other_run, present
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError, SinkError
from penstock.kinds.coding import json_decoder
from penstock.kinds.text import joined
from penstock.runtime.output import SinkFiles, StagedFile, divided
from penstock.storage.place import absolute, real


class LogSink(BoundSink):
    """A stream of an embedded log. One transaction appends a batch's events and notes that the group's batch was delivered."""

    def __init__(self, sink: Sink, directory: Path, context: SinkContext) -> None:
        self.files = SinkFiles(sink.name, "jsonl", str(context.output), beside=sink.key)
        self.uri, self.place = f"log:{directory}", f"stream {sink.stream.name} of {directory}"
        self._sink, self._run, self._directory = sink, "", directory
        self._log = EventLog(directory).stream(sink.stream.name)

    @property
    def spot(self) -> str:
        return f"stream {self._sink.stream.name} of {real(self._directory)}"

    def inspect(self, run: str, discarded: Collection[str]) -> None:
        owner = self._log.owner()
        _, end = self._log.bounds()
        if owner != run and owner not in discarded and (owner is not None or end):
            raise SinkError(other_run(self.files, self.place, "log:PATH"))
        if owner in discarded and self._log.mixed():
            raise SinkError(
                f"Sink {self.files.name}: {self.place} holds events that another program has appended, and --fresh would "
                "remove them with those of the run that it discards: nothing was touched. Choose another directory."
            )

    def claim(self, run: str, discarded: Collection[str]) -> None:
        """See `BoundSink.claim`. The events of a discarded run are removed; offsets go on."""
        self.inspect(run, discarded)
        if not self._log.own(run, discarded):
            raise SinkError(other_run(self.files, self.place, "log:PATH"))
        self._run = run

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        staged = present(files)
        if not staged:
            return
        lines = [line for path in staged for line in path.read_bytes().splitlines()]
        keys: list[str] | None = None
        if self._sink.key:
            texts, lines = divided(lines)
            keys = [joined(each) for each in texts]
        if not self._log.deliver(self._run, Parcel(lines, result_keys=keys), group, batch + 1):
            raise fenced(self.files, self.place)
        for path in staged:
            path.unlink(missing_ok=True)

    def reached(self, group: str) -> int | None:
        return self._log.positions().get(group, 0) - 1

    def read(self) -> list[Any]:
        decode = json_decoder(self._sink.stream.event_type).decode
        return [decode(record.payload) for record in self._log.read(*self._log.bounds())]


def _bind(sink: Sink, uri: Uri, options: Options, context: SinkContext) -> LogSink:
    if isinstance(sink.stream, Source):
        raise ConfigurationError(f"Sink {sink.name}: a source's own events cannot leave into the embedded log.")
    return LogSink(sink, absolute(uri.place), context)


LOG = SinkConnector(
    "log", "DIR", "the stream's events in an embedded log, for the adapter's consumers", reach="one machine", bind=_bind
)
