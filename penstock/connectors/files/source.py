"""Directories of files as sources: JSON Lines, CSV, Parquet, text."""

import codecs
import csv
import glob
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.app.stream import Source
from penstock.connectors.checkpoint import Files, Position
from penstock.connectors.declaration import COUNT, Option, OptionKind, Options, SourceConnector, SourceContext
from penstock.connectors.files.reader import FileReader, lines_of_csv, unreadable
from penstock.connectors.source import BoundSource, Reading, Reckoning, Reread, RowKind, SparkView
from penstock.connectors.uri import Uri
from penstock.errors import SourceError
from penstock.kinds.event import field_types
from penstock.runtime.codec import Codec
from penstock.runtime.output import BORN
from penstock.storage import durable, journal
from penstock.storage.place import absolute, is_local, ours, path_of
from penstock.storage.reach import meet, reaching
from penstock.storage.records import text_in
from penstock.storage.tables import rows_of, schema_of

ROWS: dict[str, RowKind] = {"jsonl": "lines", "text": "texts", "csv": "rows", "parquet": "rows"}

BLANK = " \t\n\r\x0b\x0c"
"""Characters of blank lines, which are no events."""
UNCOUNTABLE = (".zst", ".lz4", ".snappy", ".deflate", ".xz", ".lzma")
"""Suffixes of compressed files whose lines cannot be counted here, though Spark may read them."""

WRITTEN = "unix_millis(_metadata.file_modification_time)"
FILES = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
"""The schema of Spark's format for whole files. Only ``path`` is selected, so that Spark does not read the content."""
LARGE = 16 << 20
"""Files of lines are divided if they have so many bytes in the mean when the run starts. That costs a micro-batch some 40 ms,
and saves as much for each 16 MB that it reads.
"""
OLDEST = {"maxFileAge": "36500d"}
"""Options without which Spark skips old files that are moved in late."""

MISREAD = re.compile(r"[][*?{}\\:]")
"""Matches characters in paths that Spark takes for a pattern or the end of a scheme: it would read other files or none."""


def misread(path: Path) -> str | None:
    """Return the first character of a path that `MISREAD` matches; None if there is none. A store's name is left out."""
    match = MISREAD.search(path.as_posix() if is_local(path) else str(path).partition("://")[2].partition("/")[2])
    return None if match is None else match[0]


def is_read(name: str) -> bool:
    """Whether Spark reads a file that a directory has under a name."""
    return not (name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_"))


class FileSource(BoundSource):
    """A directory (or one file, or a glob) that whole files are moved into. Each file is read once.

    An event is born when its file was last written, or when the run started if that is later.
    """

    def __init__(self, source: Source[Any], uri: Uri, options: Options) -> None:
        self.source = source
        self.rows = ROWS[uri.scheme]
        self._format = uri.scheme
        self._path = str(absolute(uri.place))
        self.uri = str(Uri(uri.scheme, self._path, uri.options))
        self._max_files: int | None = options.get("max_files")
        self._encoding: str | None = options.get("encoding")
        self._schema = Codec(source.event_type).schema
        self._reader = FileReader(source.name, source.event_type.__name__, self._format, self._schema, self._encoding)
        self._are_large = False
        """Whether the files that are there at the start have so many bytes, in the mean, that dividing them pays."""
        self._counted: dict[tuple[str, int], int] = {}
        self._taken: dict[Path, Files] = {}
        self._notes: dict[Path, _Notes] = {}
        self._started_us = 0
        meet(path_of(self._path), by_spark=True)
        with reaching(path_of(self._path)):
            self._check()
        if self.rows == "rows" or self._encoding is not None or self._are_large:
            self.files = self._reader  # Spark itself reads only lines of UTF-8 well, and large files of them slowly

    def reading(self, spark: SparkView, started_us: int) -> Reading:
        self._started_us = started_us
        path, options = self._place()
        if self._max_files is not None:
            options["maxFilesPerTrigger"] = str(self._max_files)
        order = (f"greatest({WRITTEN} * 1000, {started_us}) AS born", f"{WRITTEN} AS major")
        if self.files is None:
            return Reading("text", ("CAST(value AS BINARY) AS payload", *order), options, path)
        if self.rows != "rows" and self._encoding is None:
            return Reading("binaryFile", ("path", "length", *order), options, path, FILES, divided=True)
        return Reading("binaryFile", ("path", *order), options, path, FILES)

    def _place(self) -> tuple[str, dict[str, str]]:
        """Return the path and the options for Spark. A single file is read as its directory, filtered by name."""
        here = path_of(self._path)
        if here.is_file():
            return str(here.parent), {**OLDEST, "pathGlobFilter": here.name}
        return self._path, dict(OLDEST)

    def reckon(self, position: Position) -> Reckoning:
        self._note(position)
        last, noted = _log_offset(position), self._noted(position)
        queued = sum(map(self._count, self._divide(position)[1]))
        committed = 0
        for name, offset in self._taken_in(position).items():
            if offset <= last:
                count = noted.get(name)
                if count is None:  # it was archived before its rows were counted
                    return Reckoning(None, queued)
                committed += count
        return Reckoning(committed, queued)

    def note_progress(self, run: str, positions: list[Position]) -> None:
        for position in positions:
            self._note(position)

    def _note(self, position: Position) -> None:
        """Note the number of rows of newly committed files, which may be archived once they are read."""
        last, noted = _log_offset(position), self._noted(position)
        new = [name for name, offset in self._taken_in(position).items() if offset <= last and name not in noted]
        lines = []
        for name in new:
            with suppress(FileNotFoundError):  # it may have been archived already
                lines.append(json.dumps({"file": name, "rows": self._count(path_of(name))}))
        if lines:
            journal.add(position.notes, "\n".join(lines).encode())

    def _noted(self, position: Position) -> dict[str, int]:
        """Return the numbers of rows that `_note` has noted, by file."""
        seen = self._notes.setdefault(position.notes, _Notes())
        for line in seen.new_lines(position.notes):
            with suppress(json.JSONDecodeError):  # a kill may have torn the line; then the file is counted again
                note = json.loads(line)
                seen.rows[note["file"]] = note["rows"]
        return seen.rows

    def again(self, after: Position, upto: Position) -> Iterator[Reread]:
        before, last = _log_offset(after), _log_offset(upto)
        taken = [path_of(name) for name, offset in self._taken_in(upto, before).items() if offset <= last]
        gone = [path for path in taken if not path.exists()]
        if gone:
            raise SourceError(f"Source {self.source.name}: {gone[0]} is gone, which the run has read; put it back.")
        first = 0
        for path in sorted(taken, key=lambda path: (path.stat().st_mtime_ns // 1_000_000, str(path))):
            written = path.stat().st_mtime_ns // 1_000_000
            for part in self._reader.parts(str(path)):
                rows = len(part)
                born, major = np.full(rows, written * 1000, np.int64), np.full(rows, written, np.int64)
                if isinstance(part, pa.RecordBatch) and BORN in part.schema.names:
                    part = part.select(self._schema.names)
                yield Reread(part, born, major, np.arange(first, first + rows, dtype=np.int64))
                first += rows

    def drained(self, position: Position) -> bool:
        return not self._divide(position)[1]

    def vouch(self, position: Position) -> None:
        last, before = _log_offset(position), _log_offset(position.previous)
        for file, offset in self._taken_in(position, before).items():
            if offset <= last:
                self._refuse_divided(path_of(file), mend="; nothing of its batch was committed: start with --fresh")
                self._refuse_misread(path_of(file), "nothing of its batch was committed: rename it, and start with --fresh")

    def _divide(self, position: Position) -> tuple[list[Path], list[Path]]:
        """Return the files in committed batches, and the other files."""
        last, taken = _log_offset(position), self._taken_in(position)
        committed: list[Path] = []
        queued: list[Path] = []
        for file in self._files():
            (committed if taken.get(str(file), last + 1) <= last else queued).append(file)
        return committed, queued

    def _taken_in(self, position: Position, after: int = -1) -> Files:
        """Return the files that Spark has taken in, but those that only describe others, which it lists and does not read."""
        files = position.files(after, self._taken)
        return {file: offset for file, offset in files.items() if is_read(file.rpartition("/")[2])}

    def _files(self) -> list[Path]:
        return list(self._sizes())

    def _sizes(self) -> dict[Path, int]:
        """Return the source's files that are not empty, with their sizes in bytes."""
        root = path_of(self._path)
        places = [root] if root.exists() else _matching(self._path)
        sizes: dict[Path, int] = {}
        for place in places:  # of a directory that a pattern matches Spark reads the files, as of one that is named
            if place.is_dir():
                sizes |= durable.sizes(place)
            elif place.is_file():
                sizes[place] = place.stat().st_size
        return {path: size for path, size in sizes.items() if is_read(path.name) and size}

    def _check(self) -> None:
        """Check that the path exists, and that its files suit the source. Only the first file's columns are checked.

        Raises:
            SourceError: they do not.
        """
        root = path_of(self._path)
        name = self.source.name
        if not root.exists() and not _matching(self._path):
            raise SourceError(f"Source {name}: {self._path} does not exist; create the directory, or check the path.")
        if root.exists():
            self._refuse_misread(root)
        if root.is_file() and not is_read(root.name):
            raise SourceError(f"Source {name}: Spark does not read a file that is called {root.name}; rename it.")
        fields = field_types(self.source.event_type)
        if self._format == "text" and list(fields.values()) != [str]:
            raise SourceError(
                f"Source {name}: a text source fills one field of type str, but {self.source.event_type.__name__} has "
                f"{', '.join(fields)}; use jsonl or csv."
            )
        try:
            sizes = self._sizes()
            files, self._are_large = list(sizes), sum(sizes.values()) >= LARGE * max(1, len(sizes))
            below = list(root.iterdir()) if root.is_dir() else []
            # Also directories without files yet: Spark would partition the source by them once they have some.
            for path in (*files, *(path for path in below if path.is_dir())):
                self._refuse_divided(path, path.is_dir())
            for file in files:
                self._refuse_misread(file)
                if file.suffix in UNCOUNTABLE and self._format != "parquet":
                    _refuse_uncountable(file)
            if self._format == "csv" and files:
                with self._whole(files[0]):
                    self._refuse_unfit(self._reader.header_misfit(files[0]), files[0])
            if self._format == "parquet" and files:
                with self._whole(files[0]):
                    self._refuse_unfit(self._reader.misfit(schema_of(files[0])), files[0])
        except PermissionError as error:
            raise SourceError(f"Source {name}: {error.filename} cannot be read; check its permissions.") from error

    def _refuse_unfit(self, reason: str | None, file: Path) -> None:
        if reason is not None:
            raise SourceError(f"Source {self.source.name}: {file} does not fit {self.source.event_type.__name__}: {reason}.")

    def _refuse_misread(self, path: Path, mend: str = "rename it, or make a link to it with a plain name") -> None:
        if any("\udc80" <= letter <= "\udcff" for letter in path.name):
            raise SourceError(
                f"Source {self.source.name}: {path!r} has a name that is not in UTF-8, which Spark does not see; {mend}."
            )
        mark = misread(path)
        if mark is not None:
            raise SourceError(
                f"Source {self.source.name}: {path} has the character {mark} in its name, by which Spark would read other "
                f"files or none; {mend}."
            )

    def _refuse_divided(self, path: Path, is_directory: bool = False, mend: str = "") -> None:
        """Refuse files below a directory that is named by a value, such as `city=Paris`, because their rows lack this value.

        Spark partitions a source by such directories. A pattern may match some, unless they are named by a field of the events.

        Args:
            path: a file of the source, or a directory in it.
        """
        fixed, wild, _ = self._path.partition("*")
        root = path_of(fixed.rpartition("/")[0] if wild else fixed)
        if not root.is_dir() or not path.is_relative_to(root):
            return
        parts = path.relative_to(root).parts
        below = [part.partition("=") for part in (parts if is_directory else parts[:-1])]
        named = next(
            (f"{name}={value}" for name, sign, value in below if sign and (not wild or name in self._schema.names)), None
        )
        if named is not None:
            raise SourceError(
                f"Source {self.source.name}: {path} lies in a directory that is named by a value, {named}, which is not read; "
                f"write the rows with all their fields into files of one directory{mend}."
            )

    def _count(self, file: Path) -> int:
        key = (str(file), file.stat().st_size)
        if key not in self._counted:
            with self._whole(file):
                self._counted[key] = self._rows_of(file) if key[1] else 0
        return self._counted[key]

    @contextmanager
    def _whole(self, file: Path) -> Iterator[None]:
        """Within the block, turn errors into a `SourceError` that says that the file is incomplete or not of its format."""
        try:
            yield
        except (EOFError, OSError, ValueError, zlib.error, csv.Error) as error:
            if isinstance(error, OSError) and (isinstance(error, SourceError) or error.errno is not None):
                raise
            raise unreadable(self.source.name, file, self._format, error) from error

    def _rows_of(self, file: Path) -> int:
        if self._format == "parquet":
            return rows_of(file)
        if self._format == "csv":
            return lines_of_csv(file, self._encoding)
        _refuse_uncountable(file)
        # Latin-1 by default: any byte can be decoded, and only ASCII characters count as blank.
        with text_in(file, self._encoding or "latin-1", newline=None) as lines:
            return sum(1 for line in lines if line.strip(BLANK) or self._format == "text")


class _Notes:
    """The notes of files' numbers of rows that have been read so far; a file of notes in a store is read only once."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._reached = -1

    def new_lines(self, path: Path) -> Iterable[bytes]:
        if is_local(path):
            return journal.lines_of(path)
        lines, self._reached, _ = journal.lines_after(path, self._reached)
        return lines


def _matching(pattern: str) -> list[Path]:
    """Return the paths that match a glob pattern, sorted."""
    root = path_of(pattern)
    if is_local(root):
        return [Path(name) for name in sorted(glob.glob(pattern))]
    scheme = pattern.partition("://")[0]
    return sorted(path_of(f"{scheme}://{name}") for name in ours(root).fs.glob(ours(root).path))


def _log_offset(position: Position) -> int:
    return -1 if position.offset is None else int(position.offset["logOffset"])


def _refuse_uncountable(file: Path) -> None:
    """Refuse a file whose lines cannot be counted here, though Spark may read them (see `UNCOUNTABLE`)."""
    if file.suffix in UNCOUNTABLE:
        raise SourceError(
            f"{file} is compressed as {file.suffix}, and its lines cannot be counted; use .gz, .bz2 or no compression."
        )


def _encoding(text: str) -> str:
    """Parse the option: return Python's name of an encoding."""
    try:
        io.TextIOWrapper(io.BytesIO("a".encode(text)), text, errors="penstock.strange").read()
        return codecs.lookup(text).name
    except Exception:  # unknown, of bytes and not of texts, or one that cannot go on after invalid bytes
        raise ValueError(text) from None


ENCODING = Option(
    "encoding",
    "of the files' texts, as latin-1 or utf-16; UTF-8 unless given",
    OptionKind("an encoding, as latin-1", _encoding),
)


def _bind(source: Source[Any], uri: Uri, options: Options, context: SourceContext) -> FileSource:
    return FileSource(source, uri, options)


MAX_FILES = Option("max_files", "take no more than so many files into a micro-batch", COUNT)

_declare = partial(SourceConnector, place="PATH", reach="shared disk", bind=_bind)

JSONL = _declare(scheme="jsonl", options=(MAX_FILES, ENCODING), help="a directory of files, one JSON event a line")
CSV = _declare(
    scheme="csv", options=(MAX_FILES, ENCODING), help="a directory of files, with a header line that names the event's fields"
)
PARQUET = _declare(scheme="parquet", options=(MAX_FILES,), help="a directory of files, with the event's fields as columns")
TEXT = _declare(
    scheme="text",
    options=(MAX_FILES, ENCODING),
    help="a directory of files; each line fills the event's only field, of type `str`",
)
