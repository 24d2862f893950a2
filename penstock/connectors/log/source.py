"""A stream of the embedded log as a source."""

from pathlib import Path
from typing import Any

from penstock.app.stream import Source
from penstock.connectors.admission import ADMISSION
from penstock.connectors.declaration import Options, SourceConnector, SourceContext
from penstock.connectors.log.log import EventLog
from penstock.connectors.sequence import Sequence, SequenceSource, Slice
from penstock.connectors.uri import Uri
from penstock.storage.place import absolute


class LogSequence(Sequence):
    """A stream of the embedded log."""

    def __init__(self, directory: Path, stream: str) -> None:
        self._log = EventLog(directory, create=False).stream(stream)
        self.note_reader = self._log.note_reader  # type: ignore[method-assign]

    def identity(self) -> str:
        return self._log.identity()

    def start(self) -> int:
        return self._log.bounds()[0]

    def end(self, started: float) -> int:
        return self._log.bounds()[1]

    def read(self, start: int, end: int, started: float) -> Slice:
        records = self._log.read(start, end)
        return Slice([record.payload for record in records], [record.born for record in records])


def _bind(source: Source[Any], uri: Uri, options: Options, context: SourceContext) -> SequenceSource:
    directory = absolute(uri.place)
    whole = Uri(uri.scheme, str(directory), uri.options)
    return SequenceSource(source, LogSequence(directory, source.name), whole, options, context, name=str(uri))


LOG = SourceConnector(
    "log",
    "DIR",
    "the stream of the source's name in an embedded log, as the adapter writes it",
    ADMISSION,
    reach="one machine",
    bind=_bind,
)
