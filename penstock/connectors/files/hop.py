"""Hops: directories of Parquet files by which one group of a run hands a stream on to another."""

from pathlib import Path
from typing import Any

from penstock.app.stream import Source
from penstock.connectors.checkpoint import Position
from penstock.connectors.files.source import FILES, OLDEST, WRITTEN, FileSource
from penstock.connectors.source import Reading, SparkView
from penstock.connectors.uri import Uri
from penstock.storage import durable
from penstock.storage.place import path_of


class HopSource(FileSource):
    """A stream from other groups: a directory with a subdirectory for each group that writes it. Events keep their birth."""

    def __init__(self, source: Source[Any], directory: Path) -> None:
        # Not */*.parquet: Spark looks up every path that a pattern matches, and runs a job to do so if there are over 32.
        super().__init__(source, Uri("parquet", f"{directory}/*"), {})

    def reading(self, spark: SparkView, started_us: int) -> Reading:
        options = {**OLDEST, "pathGlobFilter": "*.parquet"}
        return Reading("binaryFile", ("path", f"{started_us} AS born", f"{WRITTEN} AS major"), options, self._path, FILES)

    def note_progress(self, run: str, positions: list[Position]) -> None:
        """Remove the files that all reading groups have in committed batches; these groups' ledgers count their events."""
        for file in set.intersection(*(set(self._divide(position)[0]) for position in positions)):
            file.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        root = path_of(self._path.removesuffix("/*"))
        return [
            directory / name
            for directory in (root / name for name in sorted(durable.names(root)))
            for name in sorted(durable.names(directory))
            if name.endswith(".parquet")
        ]

    def _check(self) -> None:
        """Check nothing: there may be no file yet."""
