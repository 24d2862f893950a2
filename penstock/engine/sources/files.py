"""Directories of files: JSON Lines, CSV, Parquet, text; and those that one group leaves for another."""

import csv
import glob
import gzip
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from penstock.app.event import field_types
from penstock.app.stream import Source
from penstock.app.uri import Uri
from penstock.engine.checkpoint import committed_offsets, files_by_log_offset
from penstock.engine.decode import RowKind
from penstock.engine.sources.base import Reckoning
from penstock.errors import SourceError
from penstock.runtime.codec import Codec
from penstock.runtime.staging import BORN

WIDENINGS = (
    ("tinyint", "smallint", "int", "bigint", "double"),
    ("float", "double"),
    ("date", "timestamp_ntz", "timestamp"),
)
ROWS: dict[str, RowKind] = {"jsonl": "lines", "text": "columns", "csv": "fields", "parquet": "columns"}


class FileSource:
    """A directory (or one file, or a glob) that files are moved into; each is read once, whole."""

    def __init__(self, source: Source[Any], uri: Uri) -> None:
        self.source = source
        self.uri = str(uri)
        self.rows: RowKind = ROWS[uri.scheme]
        self._format = uri.scheme
        self._path = str(Path(uri.place).expanduser().absolute())
        self._max_files = uri.positive("max_files", int)
        self._counted: dict[tuple[str, int], int] = {}
        self._check()

    def frame(self, spark: SparkSession, started_us: int) -> DataFrame:
        """See `BoundSource`. An event is born when its file was last written, or when the run started."""
        reader = spark.readStream.format("text" if self._format in ("jsonl", "text") else self._format)
        reader = reader.option("maxFileAge", "36500d")  # else Spark passes over old files moved in late
        if self._max_files is not None:
            reader = reader.option("maxFilesPerTrigger", int(self._max_files))
        columns = self._columns(spark)
        if self._format in ("csv", "parquet"):
            reader = reader.schema(self._file_schema(spark))
        if self._format == "csv":
            reader = reader.options(header=True, enforceSchema=False, multiLine=True, escape='"')
        written = F.unix_millis(F.col("_metadata.file_modification_time"))
        born = F.greatest(written * 1000, F.lit(started_us))
        return reader.load(self._path).select(*columns, born.alias("born"), written.alias("major"))

    def reckon(self, checkpoint: Path, number: int, batch: int | None) -> Reckoning:
        """See `BoundSource`; counts the lines or rows of the files themselves."""
        committed, queued = self._divide(checkpoint, number, batch)
        return Reckoning(sum(map(self._count, committed)), sum(map(self._count, queued)))

    def waiting(self, checkpoint: Path, number: int, batch: int | None) -> bool:
        """See `BoundSource`."""
        return bool(self._divide(checkpoint, number, batch)[1])

    def files_of(self, checkpoint: Path, number: int, batch: int) -> list[tuple[int, int]]:
        """The rows, and the time of writing in microseconds, of each file that a batch took in."""
        last = _log_offset(checkpoint, number, batch)
        before = _log_offset(checkpoint, number, batch - 1) if batch else -1
        taken = files_by_log_offset(checkpoint, number)
        files = [Path(file) for file, offset in taken.items() if before < offset <= last]
        return [(self._count(file), file.stat().st_mtime_ns // 1000) for file in files]

    def _divide(self, checkpoint: Path, number: int, batch: int | None) -> tuple[list[Path], list[Path]]:
        """The files that are in committed batches, and those that are not."""
        last = -1 if batch is None else _log_offset(checkpoint, number, batch)
        taken = files_by_log_offset(checkpoint, number)
        committed: list[Path] = []
        queued: list[Path] = []
        for file in self._files():
            (committed if taken.get(str(file), last + 1) <= last else queued).append(file)
        return committed, queued

    def finished(self) -> bool:
        """Never: another file may be moved in."""
        return False

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
                self._missing(set(_header(files[0])), files[0])
            if self._format == "parquet" and files:
                self._missing(set(pq.read_schema(files[0]).names), files[0])
        except PermissionError as error:
            raise SourceError(f"Source {name}: {error.filename} cannot be read; check its permissions.") from error
        except ValueError as error:
            raise SourceError(f"Source {name}: {files[0]} is not a {self._format} file: {error}.") from error

    def _missing(self, present: set[str], file: Path) -> None:
        needed = [field for field in Codec(self.source.event_type).schema if field.name not in present]
        missing = [field.name for field in needed if not field.nullable]
        if missing:
            raise SourceError(
                f"Source {self.source.name}: {file} has no column {', '.join(missing)}, which "
                f"{self.source.event_type.__name__} requires; it has {', '.join(sorted(present))}."
            )

    def _columns(self, spark: SparkSession) -> list[Column]:
        schema = Codec(self.source.event_type).schema
        if self._format == "jsonl":
            return [F.col("value").cast("binary").alias("payload")]
        if self._format == "text":
            return [F.col("value").alias(schema.names[0])]
        if self._format == "csv":
            return [F.col(f"`{name}`") for name in self._file_schema(spark).names if name in schema.names]
        stored = {field.name: field.dataType for field in self._file_schema(spark)}
        return [self._cast(field.name, stored.get(field.name), field.dataType) for field in from_arrow_schema(schema)]

    def _cast(self, name: str, stored: DataType | None, wanted: DataType) -> Column:
        if stored is None:
            return F.lit(None).cast(wanted).alias(name)
        same = stored == wanted or stored.simpleString() == wanted.simpleString()
        wider = any(
            stored.simpleString() in kinds and wanted.simpleString() in kinds[kinds.index(stored.simpleString()) :]
            for kinds in WIDENINGS
        )
        nested = stored.typeName() == wanted.typeName() and stored.typeName() in ("array", "map", "struct", "decimal")
        if not (same or wider or nested):
            raise SourceError(
                f"Source {self.source.name}: column {name} is of type {stored.simpleString()} in {self._path}, but "
                f"{self.source.event_type.__name__}.{name} needs {wanted.simpleString()}."
            )
        return F.col(f"`{name}`").cast(wanted).alias(name)

    def _file_schema(self, spark: SparkSession) -> StructType:
        files = self._files()
        if self._format == "csv":
            names = _header(files[0]) if files else Codec(self.source.event_type).schema.names
            return StructType([StructField(name, StringType()) for name in names])
        if not files:
            return from_arrow_schema(Codec(self.source.event_type).schema)
        return spark.read.parquet(str(files[0])).schema

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


class HopSource(FileSource):
    """The Parquet files that another group of the same run leaves in a directory."""

    def __init__(self, source: Source[Any], directory: Path) -> None:
        super().__init__(source, Uri("parquet", f"{directory}/*/*.parquet", {}))

    def frame(self, spark: SparkSession, started_us: int) -> DataFrame:
        """See `BoundSource`. An event keeps the birth that it had in the group before."""
        schema = from_arrow_schema(Codec(self.source.event_type).schema)
        names = schema.names
        with_birth = StructType([*schema.fields, StructField(BORN, LongType())])
        written = F.unix_millis(F.col("_metadata.file_modification_time"))
        frame = spark.readStream.schema(with_birth).parquet(self._path)
        return frame.select(*names, F.col(BORN).alias("born"), written.alias("major"))

    def _check(self) -> None:
        """There may be no file yet."""


def _log_offset(checkpoint: Path, number: int, batch: int) -> int:
    offsets = committed_offsets(checkpoint, batch)
    return int(offsets[number]["logOffset"]) if offsets and offsets[number] is not None else -1


def _open(file: Path) -> Any:
    return gzip.open(file, "rt") if file.suffix == ".gz" else open(file, encoding="utf-8", errors="replace")


def _header(file: Path) -> list[str]:
    with _open(file) as lines:
        return next(csv.reader(lines), [])
