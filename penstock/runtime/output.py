"""Output of a stage: rows for sinks, kept where a committed batch finds them. One port, to files or to memory.

Files are complete but invisible until their batch is committed.
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
from penstock.runtime.lineage import Ints
from penstock.schemas.frame import Frame
from penstock.storage import durable
from penstock.storage.place import path_of

STAGING = ".staging"
DEAD_LETTERS = "dead-letters"
"""The directory of a run in which they are kept."""
BORN = "#born"
"""The column in which a file between two groups keeps each event's birth: no field can be called so."""

FileKind = Literal["jsonl", "parquet"]
Role = Literal["sink", "hop", "letters"]
"""A sink that the application declares; a stream on its way to another group; the dead letters."""

Texts = list[str | None]


class SinkFiles(msgspec.Struct, frozen=True):
    """Where and in which form the events for a sink are staged.

    Parameters
    ----------
    name: of the sink, or of the stream that makes the hop.
    beside: fields whose texts stand before each line of JSON, as a JSON array and a tab; see `divided`.
    rule: ``module:function`` of what refuses record batches (``ValueError``) that the sink cannot keep.
    key: fields that tell the rows of a table apart which has no word for NaN in them.
    wide: whether columns are those of `Codec.staged`, which hold more values.
    largest: the bytes that a line may have, 0 for any number.
    frame: makes messages of events, which then stand in lines as Base64, in place of JSON.
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
        """What tells it from all other outputs of a run; no sink of the application can be called so by chance."""
        return label(self.name, self.role)

    def refuse_large(self, lines: Iterable[bytes]) -> None:
        """Refuse what is too large for one message.

        Raises
        ------
        ValueError: says how large it is, and how that is mended.
        """
        for line in lines:
            size = len(line) if self.frame is None else len(line) * 3 // 4  # which is Base64
            if 0 < self.largest < size:
                raise ValueError(
                    f"A message of {size:,} bytes is larger than the topic takes ({self.largest:,}): raise max.message.bytes "
                    "of the topic and kafka.message.max.bytes in the sink's URI, or send less"
                )

    def refuse(self, columns: pa.RecordBatch) -> None:
        """Apply the sink's own rule, and that of keys.

        Raises
        ------
        ValueError: it cannot keep some of the rows.
        """
        for name in self.key:
            column = columns.column(name)
            if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
                raise ValueError(f"Field {name} is NaN, and no row of a table can be found by that")
        if self.rule:
            module, _, function = self.rule.partition(":")
            getattr(import_module(module), function)(columns)


def label(name: str, role: Role) -> str:
    """The label of an output; names of sinks and streams hold no slash."""
    return name if role == "sink" else f"{role}/{name}"


LETTERS = label(DEAD_LETTERS, "letters")


class StagedFile(msgspec.Struct, frozen=True):
    """A file of a sink that a task has written and no batch has committed."""

    sink: str
    """The label of the output that it is part of."""
    staged: str
    """Where it lies; another place at each try."""
    final: str
    """Its name within the batch, the same at each try: what a delivery that must not be repeated is known by."""
    rows: int
    size: int


class Output(Protocol):
    """Where a stage puts the rows of its sinks."""

    def keeps(self, sink: str) -> bool:
        """Whether `close` says of all rows of a sink where they are."""

    def files(self, sink: str) -> SinkFiles:
        """The form in which a sink takes its events, by its label."""

    def write_lines(self, sink: str, lines: list[bytes]) -> None:
        """Append lines to a sink of kind ``jsonl``."""

    def write_columns(self, sink: str, batch: pa.RecordBatch, born: Ints) -> None:
        """Append rows to a sink of kind ``parquet``."""

    def close(self) -> list[StagedFile]:
        """Make all of it durable and say where it is."""


class FileOutput:
    """Staged files, one for each sink of one stage in one partition.

    Parameters
    ----------
    name: begins the files' names; tells the stages of a batch apart.
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

    def write_columns(self, sink: str, batch: pa.RecordBatch, born: Ints) -> None:
        if batch.num_rows:
            if self._sinks[sink].role == "hop":
                batch = batch.append_column(BORN, pa.array(born))
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
    """The dead letters alone, in files; rows for sinks are encoded and counted, and go nowhere."""

    def keeps(self, sink: str) -> bool:
        return sink == LETTERS

    def files(self, sink: str) -> SinkFiles:
        return self._sinks.get(sink) or _nowhere(sink)

    def write_columns(self, sink: str, batch: pa.RecordBatch, born: Ints) -> None:
        pass


class ColumnsOutput:
    """Rows for sinks, as columns, for who takes them from here; dead letters are another's."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []

    def keeps(self, sink: str) -> bool:
        return False

    def files(self, sink: str) -> SinkFiles:
        return _nowhere(sink)

    def write_lines(self, sink: str, lines: list[bytes]) -> None:
        pass

    def write_columns(self, sink: str, batch: pa.RecordBatch, born: Ints) -> None:
        self._batches.append(batch)

    def close(self) -> list[StagedFile]:
        return []

    def take(self) -> list[pa.RecordBatch]:
        """What has come since this was called last."""
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
    """Lines of JSON in lists, by sink: for the in-memory driver, in which every sink takes lines."""

    def __init__(self) -> None:
        self.lines: dict[str, list[bytes]] = {}

    def keeps(self, sink: str) -> bool:
        return False

    def files(self, sink: str) -> SinkFiles:
        return SinkFiles(sink, "jsonl", "")

    def write_lines(self, sink: str, lines: list[bytes]) -> None:
        self.lines.setdefault(sink, []).extend(lines)

    def write_columns(self, sink: str, batch: pa.RecordBatch, born: Ints) -> None:
        raise NotImplementedError("a sink in memory takes lines")

    def close(self) -> list[StagedFile]:
        return []


def texts_beside(events: Iterable[Any], files: SinkFiles) -> Iterator[Texts]:
    """The texts that stand before each event's line."""
    for event in events:
        yield texts_of(getattr(event, name) for name in files.beside)


def texts_of(values: Iterable[Any]) -> Texts:
    """Values as texts."""
    return [None if value is None else text_of(value) for value in values]


def framed(events: Iterable[Any], texts: Iterable[Texts], files: SinkFiles) -> list[bytes]:
    """The lines of events that a schema registry makes messages of, with the texts that stand beside them.

    Parameters
    ----------
    events: or what encodes as they do.
    """
    assert files.frame is not None
    lines = [b64encode(files.frame.message(event)) for event in events]
    return prefixed(texts, lines) if files.beside else lines


def prefixed(texts: Iterable[Texts], lines: Iterable[bytes]) -> list[bytes]:
    """Lines with the texts that stand beside them."""
    encode = msgspec.json.Encoder().encode
    return [b"%b\t%b" % (encode(each), line) for each, line in zip(texts, lines, strict=True)]


_texts = msgspec.json.Decoder(Texts).decode


def divided(lines: Sequence[bytes]) -> tuple[list[Texts], list[bytes]]:
    """What `prefixed` has put together: a JSON array holds no tab as it stands."""
    pairs = [line.split(b"\t", 1) for line in lines]
    return [_texts(texts) for texts, _ in pairs], [line for _, line in pairs]
