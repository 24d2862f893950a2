"""Directories of files as sources: JSON Lines, CSV, Parquet, text."""

import csv
import glob
import gzip
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.app.event import field_types
from penstock.app.stream import Source
from penstock.connectors.checkpoint import Position
from penstock.connectors.declaration import COUNT, Option, Options, SourceConnector, SourceContext
from penstock.connectors.source import Births, BoundSource, Reading, Reckoning, RowKind, SparkView
from penstock.connectors.uri import Uri
from penstock.errors import SourceError
from penstock.runtime.codec import Codec

WIDENINGS = (
    ("tinyint", "smallint", "int", "bigint", "double"),
    ("float", "double"),
    ("date", "timestamp_ntz", "timestamp"),
)
NESTED = ("array", "map", "struct", "decimal")
ROWS: dict[str, RowKind] = {"jsonl": "lines", "text": "columns", "csv": "fields", "parquet": "columns"}

WRITTEN = "unix_millis(_metadata.file_modification_time)"
OLDEST = {"maxFileAge": "36500d"}
"""Else Spark passes over old files that are moved in late."""


class FileSource(BoundSource):
    """A directory (or one file, or a glob) that files are moved into; each is read once, whole.

    An event is born when its file was last written, or when the run started.
    """

    def __init__(self, source: Source[Any], uri: Uri, options: Options) -> None:
        self.source = source
        self.uri = str(uri)
        self.rows = ROWS[uri.scheme]
        self._format = uri.scheme
        self._path = str(Path(uri.place).expanduser().absolute())
        self._max_files: int | None = options.get("max_files")
        self._schema = Codec(source.event_type).schema
        self._counted: dict[tuple[str, int], int] = {}
        self._started_us = 0
        self._check()

    def reading(self, spark: SparkView, started_us: int) -> Reading:
        self._started_us = started_us
        options = dict(OLDEST)
        if self._max_files is not None:
            options["maxFilesPerTrigger"] = str(self._max_files)
        order = (f"greatest({WRITTEN} * 1000, {started_us}) AS born", f"{WRITTEN} AS major")
        if self._format == "jsonl":
            return Reading("text", ("CAST(value AS BINARY) AS payload", *order), options, self._path)
        if self._format == "text":
            return Reading("text", (f"value AS {quoted(self._schema.names[0])}", *order), options, self._path)
        if self._format == "csv":
            options |= {"header": "true", "enforceSchema": "false", "multiLine": "true", "escape": '"'}
            names = self._csv_columns()
            schema = ", ".join(f"{quoted(name)} STRING" for name in names)
            wanted = tuple(quoted(name) for name in names if name in self._schema.names)
            return Reading("csv", (*wanted, *order), options, self._path, schema)
        files = self._files()
        if not files:
            return Reading(
                "parquet", (*map(quoted, self._schema.names), *order), options, self._path, ddl(self._schema)
            )
        stored = spark.columns("parquet", str(files[0]))
        columns = (self._cast(field, stored.get(field.name)) for field in self._schema)
        return Reading("parquet", (*columns, *order), options, self._path, like=str(files[0]))

    def reckon(self, position: Position) -> Reckoning:
        committed, queued = self._divide(position)
        return Reckoning(sum(map(self._count, committed)), sum(map(self._count, queued)))

    def drained(self, position: Position) -> bool:
        return not self._divide(position)[1]

    def births(self, position: Position) -> list[Births]:
        last, before = _log_offset(position), _log_offset(position.previous)
        files = [Path(file) for file, offset in position.files().items() if before < offset <= last]
        return [Births(self._count(file), max(file.stat().st_mtime_ns // 1000, self._started_us)) for file in files]

    def _divide(self, position: Position) -> tuple[list[Path], list[Path]]:
        """The files that are in committed batches, and those that are not."""
        last, taken = _log_offset(position), position.files()
        committed: list[Path] = []
        queued: list[Path] = []
        for file in self._files():
            (committed if taken.get(str(file), last + 1) <= last else queued).append(file)
        return committed, queued

    def _files(self) -> list[Path]:
        root = Path(self._path)
        paths = sorted(root.iterdir()) if root.is_dir() else [Path(found) for found in sorted(glob.glob(self._path))]
        return [path for path in paths if path.is_file() and path.name[0] not in "._" and path.stat().st_size]

    def _check(self) -> None:
        root = Path(self._path)
        name = self.source.name
        if not root.exists() and not glob.glob(self._path):
            raise SourceError(f"Source {name}: {self._path} does not exist; create the directory, or check the path.")
        fields = field_types(self.source.event_type)
        if self._format == "text" and list(fields.values()) != [str]:
            raise SourceError(
                f"Source {name}: a text source fills one field of type str, but {self.source.event_type.__name__} has "
                f"{', '.join(fields)}; use jsonl or csv."
            )
        try:
            files = self._files()
            if self._format == "csv" and files:
                self._refuse_missing(set(_header(files[0])), files[0])
            if self._format == "parquet" and files:
                self._refuse_missing(set(pq.read_schema(files[0]).names), files[0])
        except PermissionError as error:
            raise SourceError(f"Source {name}: {error.filename} cannot be read; check its permissions.") from error
        except ValueError as error:
            raise SourceError(f"Source {name}: {files[0]} is not a {self._format} file: {error}.") from error

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
        if stored is None:
            return f"CAST(NULL AS {wanted}) AS {quoted(field.name)}"
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
            if self._format == "parquet":
                self._counted[key] = pq.read_metadata(file).num_rows
            elif self._format == "csv":
                with _open(file) as lines:
                    self._counted[key] = max(0, sum(1 for row in csv.reader(lines) if row) - 1)
            else:
                with _open(file) as lines:
                    self._counted[key] = sum(1 for line in lines if line.strip() or self._format == "text")
        return self._counted[key]


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
    }  # fmt: skip
    return names[str(kind)]


def ddl(schema: pa.Schema) -> str:
    """An Arrow schema in Spark's DDL."""
    return ", ".join(f"{quoted(field.name)} {spark_type(field.type)}" for field in schema)


def quoted(name: str) -> str:
    """A column's name as Spark's SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def _log_offset(position: Position) -> int:
    return -1 if position.offset is None else int(position.offset["logOffset"])


def _open(file: Path) -> Any:
    return gzip.open(file, "rt") if file.suffix == ".gz" else open(file, encoding="utf-8", errors="replace")


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
