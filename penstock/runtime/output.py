"""Where a stage writes the rows of its sinks: the interface `Output`, with implementations for files and for memory.

Staged files are complete, but stay invisible until their micro-batch is committed.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Literal, Protocol
from uuid import uuid4

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.kinds.text import text_of
from penstock.runtime.lineage import LineageColumns
from penstock.schemas.frame import Frame
from penstock.storage import durable
from penstock.storage.place import path_of

STAGING = ".staging"
DEAD_LETTERS = "dead-letters"
"""The directory of dead letters within that of a run."""
BORN, ROOT = "#born", "#root"
"""The columns with each event's birth, and its root (see `Lineage`), in a file between two groups; no field can have such a
name.
"""

FileKind = Literal["jsonl", "parquet"]
Role = Literal["sink", "hop", "letters"]
"""Whether files hold a sink of the application, a stream on its way to another group, or the dead letters."""

Texts = list[str | None]


class SinkFiles(msgspec.Struct, frozen=True):
    """Where, and in which format, the events of a sink are staged.

    Args:
        name: of the sink, or of the stream that makes the hop.
        beside: fields whose values precede each line of JSON, as a JSON array of texts and a tab; see `divided`.
        rule: ``module:function`` that raises ``ValueError`` for a record batch that the sink cannot store.
        key: fields that identify the rows of a table; they must not be NaN.
        wide: whether columns have the types of `Codec.staged`, which hold more values.
        largest: the most bytes that a line may have; 0 for no limit.
        frame: encodes events as messages of a schema registry; lines then hold these messages in Base64 instead of JSON.
    """

    name: str
    kind: FileKind
    directory: str
    role: Role = "sink"
    beside: tuple[str, ...] = ()
    rule: str = ""
    key: tuple[str, ...] = ()
    wide: bool = False
    largest: int = 0
    frame: Frame | None = None

    @property
    def label(self) -> str:
        """The unique name of this output within a run; labels of hops and letters cannot be names of sinks."""
        return label(self.name, self.role)

    def refuse_large(self, lines: Iterable[bytes]) -> None:
        """Refuse lines that are too large for one message.

        Raises:
            ValueError: states the size and the remedy.
        """
        for line in lines:
            size = len(line) if self.frame is None else len(line) * 3 // 4  # of the decoded Base64
            if 0 < self.largest < size:
                raise ValueError(
                    f"A message of {size:,} bytes is larger than the topic takes ({self.largest:,}): raise max.message.bytes "
                    "of the topic and kafka.message.max.bytes in the sink's URI, or send less"
                )

    def refuse(self, columns: pa.RecordBatch) -> None:
        """Refuse rows whose key is NaN, or that the sink's own rule rejects.

        Raises:
            ValueError: the sink cannot store some of the rows.
        """
        for name in self.key:
            column = columns.column(name)
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                raise ValueError(f"Field {name} is part of the table's key and is NaN, by which no row can be found")
        if self.rule:
            module, _, function = self.rule.partition(":")
            getattr(import_module(module), function)(columns)


def label(name: str, role: Role) -> str:
    """Return the label of an output; it is unique because names of sinks and streams hold no slash."""
    return name if role == "sink" else f"{role}/{name}"


LETTERS = label(DEAD_LETTERS, "letters")


class StagedFile(msgspec.Struct, frozen=True):
    """A file of a sink that a task has written, and no micro-batch has committed yet."""

    sink: str
    """The label of the output that the file is part of."""
    staged: str
    """The file's path; each attempt at the micro-batch has another."""
    final: str
    """The file's name within the micro-batch. All attempts share it, so that a repeated delivery is recognised."""
    rows: int
    size: int


class Output(Protocol):
    """Where a stage writes the rows of its sinks."""

    def keeps(self, sink: str) -> bool:
        """Whether `close` returns files with all rows of a sink, by its label."""

    def files(self, sink: str) -> SinkFiles:
        """Return the format in which a sink takes its events, by its label."""

    def write_lines(self, sink: str, lines: list[bytes]) -> None:
        """Append lines to a sink of kind ``jsonl``."""

    def write_columns(self, sink: str, batch: pa.RecordBatch, lineage: LineageColumns) -> None:
        """Append rows to a sink of kind ``parquet``."""

    def close(self) -> list[StagedFile]:
        """Make all rows durable; returns the files that hold them."""


class FileOutput:
    """Writes to staged files, one per sink, for one stage in one partition.

    Args:
        name: prefix of the files' names; differs between the stages of a micro-batch.
    """

    def __init__(self, sinks: Iterable[SinkFiles], name: str) -> None:
        self._sinks = {sink.label: sink for sink in sinks}
        self._name = name
        self._open: dict[str, _OpenFile] = {}

    def keeps(self, sink: str) -> bool:
        return sink in self._sinks

    def files(self, sink: str) -> SinkFiles:
        return self._sinks[sink]

    def write_lines(self, sink: str, lines: list[bytes]) -> None:
        if lines:
            file = self._file(sink)
            file.rows += len(lines)
            file.handle.write(b"\n".join(lines))
            file.handle.write(b"\n")

    def write_columns(self, sink: str, batch: pa.RecordBatch, lineage: LineageColumns) -> None:
        if batch.num_rows:
            if self._sinks[sink].role == "hop":
                batch = batch.append_column(BORN, pa.array(lineage.born)).append_column(ROOT, pa.array(lineage.root))
            file = self._file(sink)
            file.rows += batch.num_rows
            if file.parquet is None:
                file.parquet = pq.ParquetWriter(file.handle, batch.schema)
            file.parquet.write_batch(batch)

    def close(self) -> list[StagedFile]:
        return [file.close() for file in self._open.values()]

    def _file(self, sink: str) -> "_OpenFile":
        if sink not in self._open:
            self._open[sink] = _OpenFile(self._sinks[sink], self._name)
        return self._open[sink]


class LettersOutput(FileOutput):
    """Writes dead letters to files; rows for sinks are encoded and counted, but not written."""

    def keeps(self, sink: str) -> bool:
        return sink == LETTERS

    def files(self, sink: str) -> SinkFiles:
        return self._sinks.get(sink) or _nowhere(sink)

    def write_columns(self, sink: str, batch: pa.RecordBatch, lineage: LineageColumns) -> None:
        pass


class ColumnsOutput:
    """Holds the rows of sinks as record batches until `take`; ignores dead letters."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []

    def keeps(self, sink: str) -> bool:
        return False

    def files(self, sink: str) -> SinkFiles:
        return _nowhere(sink)

    def write_lines(self, sink: str, lines: list[bytes]) -> None:
        pass

    def write_columns(self, sink: str, batch: pa.RecordBatch, lineage: LineageColumns) -> None:
        self._batches.append(batch)

    def close(self) -> list[StagedFile]:
        return []

    def take(self) -> list[pa.RecordBatch]:
        """Return, and forget, the record batches written since the last call."""
        taken, self._batches = self._batches, []
        return taken


def _nowhere(sink: str) -> SinkFiles:
    return SinkFiles(sink.rpartition("/")[2], "jsonl" if sink == LETTERS else "parquet", "")


class _OpenFile:
    def __init__(self, sink: SinkFiles, name: str) -> None:
        staging = path_of(sink.directory) / STAGING
        durable.make(staging)
        self.sink = sink.label
        self.path = staging / f"{name}-{uuid4().hex}.{sink.kind}"
        self.final = f"{name}.{sink.kind}"
        self.handle = durable.opened(self.path)
        self.parquet: Any = None
        self.rows = 0

    def close(self) -> StagedFile:
        if self.parquet is not None:
            self.parquet.close()
        durable.sync(self.handle)
        size = self.handle.tell()
        self.handle.close()
        return StagedFile(self.sink, str(self.path), self.final, self.rows, size)


class MemoryOutput:
    """Holds lines of JSON in lists, by sink: for the in-memory driver, whose sinks all take lines."""

    def __init__(self) -> None:
        self.lines: dict[str, list[bytes]] = {}

    def keeps(self, sink: str) -> bool:
        return False

    def files(self, sink: str) -> SinkFiles:
        return SinkFiles(sink, "jsonl", "")

    def write_lines(self, sink: str, lines: list[bytes]) -> None:
        self.lines.setdefault(sink, []).extend(lines)

    def write_columns(self, sink: str, batch: pa.RecordBatch, lineage: LineageColumns) -> None:
        raise NotImplementedError("a sink in memory takes lines")

    def close(self) -> list[StagedFile]:
        return []


def texts_beside(events: Iterable[Any], files: SinkFiles) -> Iterator[Texts]:
    """Yield the texts of the fields `SinkFiles.beside`, for each event."""
    for event in events:
        yield texts_of(getattr(event, name) for name in files.beside)


def texts_of(values: Iterable[Any]) -> Texts:
    """Return values as texts; None stays None."""
    return [None if value is None else text_of(value) for value in values]


def framed(events: Iterable[Any], texts: Iterable[Texts], files: SinkFiles) -> list[bytes]:
    """Return events as lines of messages framed for a schema registry, in Base64, preceded by their texts if any.

    Args:
        events: events, or other values that encode alike.
    """
    assert files.frame is not None
    lines = [b64encode(files.frame.message(event)) for event in events]
    return prefixed(texts, lines) if files.beside else lines


def prefixed(texts: Iterable[Texts], lines: Iterable[bytes]) -> list[bytes]:
    """Return lines, each preceded by its texts as a JSON array and a tab."""
    encode = msgspec.json.Encoder().encode
    return [b"%b\t%b" % (encode(each), line) for each, line in zip(texts, lines, strict=True)]


_texts = msgspec.json.Decoder(Texts).decode


def divided(lines: Sequence[bytes]) -> tuple[list[Texts], list[bytes]]:
    """Undo `prefixed`: split lines into their texts and the rest, at the first tab (encoded JSON holds none)."""
    pairs = [line.split(b"\t", 1) for line in lines]
    return [_texts(texts) for texts, _ in pairs], [line for _, line in pairs]
