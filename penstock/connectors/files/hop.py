"""The Parquet files that one group of a run leaves for another."""

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
    """A directory with one of files for each group that makes the stream. An event keeps its birth."""

    def __init__(self, source: Source[Any], directory: Path) -> None:
        # Not */*.parquet: Spark looks up each file that a pattern names, beyond 32 of them in a job of its own.
        super().__init__(source, Uri("parquet", f"{directory}/*"), {})

    def reading(self, spark: SparkView, started_us: int) -> Reading:
        options = {**OLDEST, "pathGlobFilter": "*.parquet"}
        return Reading("binaryFile", ("path", f"{started_us} AS born", f"{WRITTEN} AS major"), options, self._path, FILES)

    def note_progress(self, run: str, positions: list[Position]) -> None:
        """Remove the files that all groups have read for good; what they held is in the ledgers of these groups."""
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
        """There may be no file yet."""
