"""The Parquet files that one group of a run leaves for another."""

from pathlib import Path
from typing import Any

from penstock.app.stream import Source
from penstock.connectors.files.source import OLDEST, WRITTEN, FileSource, ddl, quoted
from penstock.connectors.source import Reading, SparkView
from penstock.connectors.uri import Uri
from penstock.runtime.output import BORN


class HopSource(FileSource):
    """A directory with one of files for each group that makes the stream. An event keeps its birth."""

    def __init__(self, source: Source[Any], directory: Path) -> None:
        super().__init__(source, Uri("parquet", f"{directory}/*/*.parquet"), {})

    def reading(self, spark: SparkView, started_us: int) -> Reading:
        columns = (*map(quoted, self._schema.names), f"{BORN} AS born", f"{WRITTEN} AS major")
        return Reading("parquet", columns, OLDEST, self._path, f"{ddl(self._schema)}, {BORN} bigint")

    def _check(self) -> None:
        """There may be no file yet."""
