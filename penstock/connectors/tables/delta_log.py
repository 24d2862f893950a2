"""The log of a Delta table: the files that each version has added, and whether it has deleted or rewritten rows.

Neither the files in the log nor versions ever change. The library can tell what a table holds at a version, but not what a
single version has changed; that is read from the version's own file in the log, whose format the Delta protocol specifies.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import PyFileSystem

from penstock.connectors.tables.delta_place import reason_of
from penstock.errors import PenstockError, SourceError
from penstock.extras import needs

with needs():
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import DeltaError, TableNotFoundError
    from deltalake.fs import DeltaStorageHandler

MAPPING = "delta.columnMapping.mode"
"""The table property that says whether columns have other names in the table's files."""

AT_FIRST = {"connect_timeout": "3s", "timeout": "20s", "max_retries": "1", "retry_timeout": "20s"}
"""Settings for the first request to an object store, so that a wrong address fails soon; later, retries last three minutes."""


def meet(at: str, storage: dict[str, str]) -> None:
    """Check that a table's store answers within seconds, whether or not there is a table.

    Raises:
        OSError: it does not answer.
    """
    DeltaTable.is_deltatable(at, {**AT_FIRST, **storage})


class Added(NamedTuple):
    """A file that a version has added; ``born`` is in microseconds since the epoch, ``partition`` has values by column."""

    path: str
    rows: int
    born: int
    partition: dict[str, Any]


class Version(NamedTuple):
    """The changes that a version has made to a table's rows."""

    added: list[Added]
    rewrites: str
    """A file of which the version has removed or rewritten rows; empty for none. Then ``added`` is empty."""


class DeltaLog:
    """Reads the log and the files of a Delta table.

    Args:
        what: names the source in error messages.
    """

    def __init__(self, what: str, at: str, storage: dict[str, str]) -> None:
        self.what, self.at, self._storage = what, at, storage
        with self.explained():
            meet(at, storage)
            table = self._opened()
            self.check_readable(table.metadata().configuration)
            self.columns: dict[str, pa.Field] = _columns(table.schema())
            self.table_id = str(table.metadata().id)
            self.files = PyFileSystem(DeltaStorageHandler(at, storage))

    def newest(self) -> int:
        """Return the number of the table's newest version.

        Raises:
            SourceError: another table has been put in its place.
        """
        with self.explained():
            table = self._opened()
            if str(table.metadata().id) != self.table_id:
                raise self.refusal("is another table than it was", "put that back, or start afresh with --fresh")
            return table.version()

    def held(self, version: int) -> list[Added]:
        """Return the files that hold all rows of the table at a version, the oldest first."""
        with self.explained():
            table = DeltaTable(self.at, version=version, storage_options=self._storage)
            if pa.table(table.deletion_vectors()).num_rows:
                raise self.refusal(
                    "has rows that are removed by deletion vectors, which Penstock cannot read",
                    "purge them (REORG TABLE ... APPLY (PURGE) in Spark), and start again",
                )
            files = pa.table(table.get_add_actions())
            wanted = ("path", "modification_time", "num_records", "partition")
            files = files.select([name for name in wanted if name in files.column_names]).to_pylist()
        added = [self._added({**file, "born": file["modification_time"] * 1000}) for file in files]
        return sorted(added, key=lambda file: (file.born, file.path))

    def version(self, number: int) -> Version | None:
        """Return the changes that a version has made; None if the log has no such version, or not yet."""
        with self.explained():
            try:
                with self.files.open_input_file(f"_delta_log/{number:020}.json") as file:
                    lines = file.read().splitlines()
            except FileNotFoundError:
                return None
        actions = [msgspec.json.decode(line) for line in lines if line.strip()]
        commit: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        time = commit.get("inCommitTimestamp") or commit.get("timestamp")
        added, rewrites = [], ""
        # Actions without dataChange, as of a compaction, only move rows between files.
        for action in actions:
            if "metaData" in action:
                self._heed(action["metaData"])
            elif "remove" in action and action["remove"]["dataChange"]:
                rewrites = action["remove"]["path"]
            elif "add" in action and action["add"]["dataChange"]:
                file = action["add"]
                rewrites = file["path"] if file.get("deletionVector") else rewrites
                stats = msgspec.json.decode(file.get("stats") or "{}")
                born = (time or file["modificationTime"]) * 1000
                partition = {"partition": file["partitionValues"], "num_records": stats.get("numRecords")}
                added.append({"path": file["path"], "born": born, **partition})
        return Version([] if rewrites else list(map(self._added, added)), rewrites)

    def refusal(self, wrong: str, mend: str) -> SourceError:
        """Return the error that says what is wrong with the table, and how to mend it."""
        return SourceError(f"{self.what}: delta:{self.at} {wrong}: {mend}.")

    def check_readable(self, configuration: Any) -> None:
        """Refuse a table whose columns have other names in its files (column mapping)."""
        mode = configuration.get(MAPPING) or "none"
        if mode != "none":
            raise self.refusal(
                f"maps columns to other names ({MAPPING}={mode}), which Penstock cannot read",
                "write it anew without column mapping",
            )

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn errors of the table or its store, within the block, into a `SourceError` that explains them."""
        try:
            yield
        except PenstockError:
            raise
        except TableNotFoundError as error:
            raise self.refusal("is no Delta table", "check the place, or let whoever writes it make it first") from error
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise self.refusal(f"cannot be read ({reason_of(error)})", "mend that, and run again") from error

    def _opened(self) -> DeltaTable:
        return DeltaTable(self.at, storage_options=self._storage)

    def _heed(self, metadata: dict[str, Any]) -> None:
        if metadata["id"] != self.table_id:
            raise self.refusal("is another table than it was", "put that back, or start afresh with --fresh")
        self.check_readable(metadata.get("configuration") or {})
        self.columns = _columns(Schema.from_json(metadata["schemaString"]))

    def _added(self, file: dict[str, Any]) -> Added:
        path = unquote(file["path"])
        if "://" in path or path.startswith(("/", "file:")):
            raise self.refusal(
                f"has the file {path}, which lies elsewhere, as in a shallow clone", "read the table that was cloned"
            )
        rows = file["num_records"]
        return Added(path, self._counted(path) if rows is None else rows, file["born"], file.get("partition") or {})

    def _counted(self, path: str) -> int:
        return int(self.opened(path, lambda file: file.metadata.num_rows))

    def opened(self, path: str, use: Callable[[pq.ParquetFile], Any]) -> Any:
        """Return the result of ``use`` for an opened file of the table."""
        with self.explained():
            try:
                with self.files.open_input_file(path) as file:
                    return use(pq.ParquetFile(file, coerce_int96_timestamp_unit="us"))
            except FileNotFoundError as error:
                raise self.refusal(
                    f"has lost the file {path} before its rows were read, as vacuum does with what has been compacted",
                    "keep such files for longer (delta.deletedFileRetentionDuration), and start afresh with --fresh",
                ) from error


def _columns(schema: Schema) -> dict[str, pa.Field]:
    return {field.name: field for field in pa.schema(schema.to_arrow())}
