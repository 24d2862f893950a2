"""Directories of files as sources: JSON Lines, CSV, Parquet, text."""

import bz2
import csv
import glob
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.app.stream import Source
from penstock.connectors.checkpoint import Files, Position
from penstock.connectors.declaration import COUNT, Option, Options, SourceConnector, SourceContext
from penstock.connectors.source import Births, BoundSource, Reading, Reckoning, RowKind, SparkView
from penstock.connectors.uri import Uri
from penstock.errors import SourceError
from penstock.kinds.event import field_types
from penstock.runtime.codec import Codec
from penstock.storage import durable, journal
from penstock.storage.place import absolute, is_local, ours, path_of
from penstock.storage.reach import meet, reaching
from penstock.storage.tables import int96_of, rows_of, schema_of

WIDENINGS = (
    ("tinyint", "smallint", "int", "bigint", "double"),
    ("float", "double"),
    ("date", "timestamp_ntz", "timestamp"),
)
MICROSECOND = "INTERVAL '0 00:00:00.000001' DAY TO SECOND"
"""What lengths of time are numbers of where Arrow has written them; Spark does not know their type."""
NESTED = ("array", "map", "struct", "decimal")
ROWS: dict[str, RowKind] = {"jsonl": "lines", "text": "texts", "csv": "fields", "parquet": "columns"}

BLANK = " \t\n\r\x0b\x0c"
UNCOUNTABLE = (".zst", ".lz4", ".snappy", ".deflate", ".xz", ".lzma")
csv.field_size_limit(2**31 - 1)  # the module's own is below what Spark reads

WRITTEN = "unix_millis(_metadata.file_modification_time)"
OLDEST = {"maxFileAge": "36500d"}
"""Else Spark passes over old files that are moved in late."""

MISREAD = re.compile(r"[][*?{}\\:]")
"""Characters in paths that Spark takes for a pattern, or for the end of a scheme: it would read other files, or none."""


def misread(path: Path) -> str | None:
    """The first such character of a path; None, where there is none."""
    found = MISREAD.search(path.as_posix() if is_local(path) else str(path).partition("://")[2].partition("/")[2])
    return None if found is None else found[0]


class FileSource(BoundSource):
    """A directory (or one file, or a glob) that files are moved into; each is read once, whole.

    An event is born when its file was last written, or when the run started.
    """

    def __init__(self, source: Source[Any], uri: Uri, options: Options) -> None:
        self.source = source
        self.uri = str(uri)
        self.rows = ROWS[uri.scheme]
        self._format = uri.scheme
        self._path = str(absolute(uri.place))
        self._max_files: int | None = options.get("max_files")
        self._schema = Codec(source.event_type).schema
        self._counted: dict[tuple[str, int], int] = {}
        self._taken: dict[Path, Files] = {}
        self._notes: dict[Path, _Notes] = {}
        self._started_us = 0
        meet(path_of(self._path), by_spark=True)
        with reaching(path_of(self._path)):
            self._check()

    def reading(self, spark: SparkView, started_us: int) -> Reading:
        self._started_us = started_us
        path, options = self._place()
        if self._max_files is not None:
            options["maxFilesPerTrigger"] = str(self._max_files)
        order = (f"greatest({WRITTEN} * 1000, {started_us}) AS born", f"{WRITTEN} AS major")
        if self._format in ("jsonl", "text"):
            return Reading("text", ("CAST(value AS BINARY) AS payload", *order), options, path)
        if self._format == "csv":
            options |= {"header": "true", "enforceSchema": "false", "multiLine": "true", "escape": '"'}
            names = self._csv_columns()
            schema = ", ".join(f"{quoted(name)} STRING" for name in names)
            wanted = tuple(quoted(name) for name in names if name in self._schema.names)
            return Reading("csv", (*wanted, *order), options, path, schema)
        files = self._files()
        if not files:
            return Reading("parquet", (*map(quoted, self._schema.names), *order), options, path, ddl(self._schema))
        stored = spark.columns("parquet", str(files[0]))
        lengths = {field.name for field in schema_of(files[0]) if field.type == pa.duration("us")}
        read = ", ".join(
            f"{quoted(field.name)} {kind}"
            for field in self._schema
            if (kind := _read_as(field, stored.get(field.name)))
        )
        columns = (
            f"{MICROSECOND} * {quoted(field.name)} AS {quoted(field.name)}"
            if field.name in lengths and (field.type, stored[field.name]) == (pa.duration("us"), "bigint")
            else self._cast(field, stored.get(field.name))
            for field in self._schema
        )
        return Reading("parquet", (*columns, *order), options, path, read or None, like=str(files[0]))

    def _place(self) -> tuple[str, dict[str, str]]:
        """The path that Spark is told, and with which options it means no more than what lies there."""
        here = path_of(self._path)
        if here.is_file():
            return str(here.parent), {**OLDEST, "pathGlobFilter": here.name}
        return self._path, dict(OLDEST)

    def reckon(self, position: Position) -> Reckoning:
        self._note(position)
        last, noted = _log_offset(position), self._noted(position)
        queued = sum(map(self._count, self._divide(position)[1]))
        committed = 0
        for name, offset in position.files(known=self._taken).items():
            if offset <= last:
                count = noted.get(name)
                if count is None:  # archived before it was counted
                    return Reckoning(None, queued)
                committed += count
        return Reckoning(committed, queued)

    def note_progress(self, run: str, position: Position) -> None:
        self._note(position)

    def _note(self, position: Position) -> None:
        """Files may be archived once they are read, so what they held is written down."""
        last, noted = _log_offset(position), self._noted(position)
        new = [
            name for name, offset in position.files(known=self._taken).items() if offset <= last and name not in noted
        ]
        lines = []
        for name in new:
            with suppress(FileNotFoundError):  # it may have been archived
                lines.append(json.dumps({"file": name, "rows": self._count(path_of(name))}))
        if lines:
            journal.add(position.notes, "\n".join(lines).encode())

    def _noted(self, position: Position) -> dict[str, int]:
        seen = self._notes.setdefault(position.notes, _Notes())
        for line in seen.new_lines(position.notes):
            with suppress(json.JSONDecodeError):  # a kill may have torn it; the file is counted again
                note = json.loads(line)
                seen.rows[note["file"]] = note["rows"]
        return seen.rows

    def drained(self, position: Position) -> bool:
        return not self._divide(position)[1]

    def births(self, position: Position) -> list[Births]:
        last, before = _log_offset(position), _log_offset(position.previous)
        files = [path_of(file) for file, offset in position.files(before, self._taken).items() if offset <= last]
        return [Births(self._count(file), max(int(file.stat().st_mtime * 1e6), self._started_us)) for file in files]

    def vouch(self, position: Position) -> None:
        last, before = _log_offset(position), _log_offset(position.previous)
        for file, offset in position.files(before, self._taken).items():
            if offset <= last:
                self._refuse_misread(
                    path_of(file), "nothing of its batch was committed: rename it, and start with --fresh"
                )

    def _divide(self, position: Position) -> tuple[list[Path], list[Path]]:
        """The files that are in committed batches, and those that are not."""
        last, taken = _log_offset(position), position.files(known=self._taken)
        committed: list[Path] = []
        queued: list[Path] = []
        for file in self._files():
            (committed if taken.get(str(file), last + 1) <= last else queued).append(file)
        return committed, queued

    def _files(self) -> list[Path]:
        root = path_of(self._path)
        if root.is_dir():
            return [path for path, size in durable.sizes(root).items() if path.name[0] not in "._" and size]
        paths = [root] if root.exists() else _matching(self._path)
        return [path for path in paths if path.is_file() and path.name[0] not in "._" and path.stat().st_size]

    def _check(self) -> None:
        root = path_of(self._path)
        name = self.source.name
        if not root.exists() and not _matching(self._path):
            raise SourceError(f"Source {name}: {self._path} does not exist; create the directory, or check the path.")
        if root.exists():
            self._refuse_misread(root)
        fields = field_types(self.source.event_type)
        if self._format == "text" and list(fields.values()) != [str]:
            raise SourceError(
                f"Source {name}: a text source fills one field of type str, but {self.source.event_type.__name__} has "
                f"{', '.join(fields)}; use jsonl or csv."
            )
        try:
            files = self._files()
            for file in files:
                self._refuse_misread(file)
                if file.suffix in UNCOUNTABLE and self._format != "parquet":
                    _open(file)
            if self._format == "csv" and files:
                with self._whole(files[0]):
                    self._refuse_missing(set(_header(files[0])), files[0])
            if self._format == "parquet" and files:
                with self._whole(files[0]):
                    self._refuse_unread(schema_of(files[0]), files[0])
        except PermissionError as error:
            raise SourceError(f"Source {name}: {error.filename} cannot be read; check its permissions.") from error

    def _refuse_unread(self, schema: pa.Schema, file: Path) -> None:
        self._refuse_missing(set(schema.names), file)
        fine = [one.name for one in schema if pa.types.is_timestamp(one.type) and one.type.unit == "ns"]
        if fine:  # which is how Arrow shows the times of Hive and of older Sparks, too, and those Spark reads
            old = int96_of(file)
            fine = [name for name in fine if name not in old]
        if fine:
            raise SourceError(
                f"Source {self.source.name}: column {fine[0]} of {file} has times in nanoseconds, which Spark does not read: write "
                "microseconds (coerce_timestamps='us', in pandas and pyarrow)."
            )

    def _refuse_misread(self, path: Path, mend: str = "rename it, or make a link to it with a plain name") -> None:
        found = misread(path)
        if found is not None:
            raise SourceError(
                f"Source {self.source.name}: {path} has the character {found} in its name, by which Spark would read other "
                f"files or none; {mend}."
            )

    def _refuse_missing(self, present: set[str], file: Path) -> None:
        missing = [field.name for field in self._schema if not field.nullable and field.name not in present]
        if missing:
            raise SourceError(
                f"Source {self.source.name}: {file} has no column {', '.join(missing)}, which "
                f"{self.source.event_type.__name__} requires; it has {', '.join(sorted(present))}."
            )

    def _csv_columns(self) -> list[str]:
        files = self._files()
        return _header(files[0]) if files else self._schema.names

    def _cast(self, field: pa.Field, stored: str | None) -> str:
        wanted = spark_type(field.type)
        if stored is None:  # other files may have it
            return quoted(field.name)
        kind = wanted.partition("<")[0].partition("(")[0]
        wider = any(stored in kinds and wanted in kinds[kinds.index(stored) :] for kinds in WIDENINGS)
        nested = kind in NESTED and stored.startswith(kind)
        if not (stored == wanted or wider or nested):
            raise SourceError(
                f"Source {self.source.name}: column {field.name} is of type {stored} in {self._path}, but "
                f"{self.source.event_type.__name__}.{field.name} needs {wanted}."
            )
        return f"CAST({quoted(field.name)} AS {wanted}) AS {quoted(field.name)}"

    def _count(self, file: Path) -> int:
        key = (str(file), file.stat().st_size)
        if key not in self._counted:
            with self._whole(file):
                self._counted[key] = self._rows_of(file) if key[1] else 0
        return self._counted[key]

    @contextmanager
    def _whole(self, file: Path) -> Iterator[None]:
        """Within the block, a file that is cut short, or not what its name says, is named."""
        try:
            yield
        except (EOFError, OSError, ValueError, zlib.error, csv.Error) as error:
            if isinstance(error, OSError) and (isinstance(error, SourceError) or error.errno is not None):
                raise
            raise SourceError(
                f"Source {self.source.name}: {file} is not a whole {self._format} file ({str(error).removesuffix('.')}): it is cut short, or "
                "is not what its name says; put the whole file in its place, or move it away."
            ) from error

    def _rows_of(self, file: Path) -> int:
        if self._format == "parquet":
            return rows_of(file)
        if self._format == "csv":
            with _open(file) as lines:
                return max(0, sum(1 for row in csv.reader(lines) if row) - 1)
        with _open(file, "latin-1") as lines:  # a byte each: only ASCII counts as blank, and nothing fails to decode
            return sum(1 for line in lines if line.strip(BLANK) or self._format == "text")


class _Notes:
    """What has been read of the notes of how many rows files have; of a store's, no file is read twice."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._reached = -1

    def new_lines(self, path: Path) -> Iterable[bytes]:
        if is_local(path):
            return journal.lines_of(path)
        lines, self._reached, _ = journal.lines_after(path, self._reached)
        return lines


def spark_type(kind: pa.DataType) -> str:
    """What Spark calls an Arrow type that events are made of."""
    if pa.types.is_list(kind):
        return f"array<{spark_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{spark_type(kind.key_type)},{spark_type(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{quoted(field.name)}:{spark_type(field.type)}' for field in kind)}>"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    names = {
        "bool": "boolean", "int64": "bigint", "double": "double", "string": "string", "binary": "binary",
        "date32[day]": "date", "duration[us]": "interval day to second", "timestamp[us, tz=UTC]": "timestamp",
        "timestamp[us]": "timestamp_ntz",
    }  # fmt: skip
    return names[str(kind)]


def _read_as(field: pa.Field, stored: str | None) -> str | None:
    """As what Spark is to read a column, where other files may have it wider than the first one; None: as that has it."""
    wanted = spark_type(field.type)
    if stored is None or stored == "float" or (wanted == "bigint" and stored in WIDENINGS[0][:3]):
        return wanted
    return None


def ddl(schema: pa.Schema) -> str:
    """An Arrow schema in Spark's DDL."""
    return ", ".join(f"{quoted(field.name)} {spark_type(field.type)}" for field in schema)


def quoted(name: str) -> str:
    """A column's name as Spark's SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def _matching(pattern: str) -> list[Path]:
    """The files that a pattern names."""
    root = path_of(pattern)
    if is_local(root):
        return [Path(found) for found in sorted(glob.glob(pattern))]
    scheme = pattern.partition("://")[0]
    return sorted(path_of(f"{scheme}://{found}") for found in ours(root).fs.glob(ours(root).path))


def _log_offset(position: Position) -> int:
    return -1 if position.offset is None else int(position.offset["logOffset"])


def _open(file: Path, encoding: str = "utf-8") -> Any:
    """A file as text, unpacked as Spark does by its suffix.

    Raises
    ------
    SourceError: Spark unpacks it, and its lines cannot be counted here.
    """
    if file.suffix in UNCOUNTABLE:
        raise SourceError(
            f"{file} is packed as {file.suffix}; lines are counted in plain files and those packed as .gz or .bz2: pack it so."
        )
    unpacked: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(file.suffix)
    if unpacked is not None:
        return unpacked(file.open("rb"), "rt", encoding=encoding, errors="replace")
    return io.TextIOWrapper(file.open("rb"), encoding=encoding, errors="replace")


def _header(file: Path) -> list[str]:
    with _open(file) as lines:
        return next(csv.reader(lines), [])


def _bind(source: Source[Any], uri: Uri, options: Options, context: SourceContext) -> FileSource:
    return FileSource(source, uri, options)


_declare = partial(
    SourceConnector,
    place="PATH",
    options=(Option("max_files", "take no more than so many files into a micro-batch", COUNT),),
    reach="shared disk",
    bind=_bind,
)

JSONL = _declare(scheme="jsonl", help="a directory of files, one JSON event a line")
CSV = _declare(scheme="csv", help="a directory of files, with a header line that names the event's fields")
PARQUET = _declare(scheme="parquet", help="a directory of files, with the event's fields as columns")
TEXT = _declare(scheme="text", help="a directory of files; each line fills the event's only field, of type `str`")
