"""A user's query, loaded anew for each start, and the world that it runs in: recorded input, a sink and a checkpoint."""

import importlib
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.engine.running.watch import reason_in
from penstock.errors import ApplicationNotFoundError, RunFailedError
from penstock.runtime.letters import NOT_THE_USERS

WRITTEN = 1_700_000_000
"""The modification time given to the first input file, in seconds since the epoch."""


class UserQuery:
    """The user's module: its function ``build(spark, source, sink, checkpoint)``, and its optional read, clean and schema.

    Parameters
    ----------
    reference: ``FILE.py:build``, or ``module:build``.
    """

    def __init__(self, reference: str) -> None:
        module, _, name = reference.rpartition(":")
        if not module or not name:
            raise ApplicationNotFoundError(f"{reference}: name the function that starts the query, as jobs.py:build.")
        self.reference, self._name = reference, name
        self._file = module if module.endswith(".py") else None
        self._module = Path(module).stem if self._file else module
        if self._file and not Path(self._file).is_file():
            raise ApplicationNotFoundError(f"There is no file {self._file}; name the file that defines {name}.")
        self._here = str(Path(self._file).resolve().parent) if self._file else ""
        self.load()

    def load(self) -> Any:
        """Load the module anew, as a new process would, and return it."""
        with _looking_in(self._here):
            try:
                module = self._executed()
            except Exception as error:
                raise ApplicationNotFoundError(
                    f"{self.reference} cannot be loaded: {type(error).__name__}: {error}."
                ) from error
        self._send_by_value()
        if not callable(getattr(module, self._name, None)):
            raise ApplicationNotFoundError(f"{self.reference}: there is no function {self._name} in it.")
        self.file = str(getattr(module, "__file__", ""))
        return module

    def _send_by_value(self) -> None:
        """Have Spark's workers get the user's modules with each function that is sent: they could not import them, and a module
        that they had imported would not be loaded anew.
        """
        for name, module in list(sys.modules.items()):
            if name == self._module or self._is_beside(module):
                register_pickle_by_value(module)

    def _is_beside(self, module: Any) -> bool:
        """Whether a module is a file in the user's directory, or below it."""
        file = getattr(module, "__file__", None) or ""
        return bool(self._here) and file.startswith(f"{self._here}{os.sep}") and not file.startswith(NOT_THE_USERS)

    def _executed(self) -> Any:
        """Execute the module and return it. Modules beside it leave `sys.modules`, so they are loaded anew, too."""
        for name, loaded in list(sys.modules.items()):
            if self._is_beside(loaded):
                del sys.modules[name]
        sys.modules.pop(self._module, None)
        if self._file is None:
            return importlib.import_module(self._module)
        spec = importlib.util.spec_from_file_location(self._module, self._file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[self._module] = module
        spec.loader.exec_module(module)
        return module

    def build(self, *given: Any) -> StreamingQuery:
        """Start the query, and return it."""
        query = getattr(self.load(), self._name)(*given)
        if not isinstance(query, StreamingQuery):
            raise RunFailedError(
                f"{self.reference} returned {type(query).__name__}; it is to return the query that it has started."
            )
        return query

    def read(self, spark: SparkSession, sink: str) -> list[str]:
        """Return the sink's rows as sorted JSON texts, read by the module's ``read(spark, sink)``, or as Parquet or JSON."""
        module = self.load()
        own = getattr(module, "read", None)
        try:
            content = own(spark, sink) if own is not None else _read_files(spark, sink)
            rows = content.collect() if isinstance(content, DataFrame) else list(content)
        except Exception as error:
            raise RunFailedError(f"read(spark, sink) of {self.reference} fails: {type(error).__name__}: {error}") from error
        return sorted(
            json.dumps(row.asDict(recursive=True) if hasattr(row, "asDict") else row, default=str, sort_keys=True)
            for row in rows
        )

    def clean(self, spark: SparkSession, sink: str) -> None:
        """Empty the sink by the module's ``clean(spark, sink)``, if it has that function."""
        own = getattr(self.load(), "clean", None)
        if own is not None:
            own(spark, sink)

    @property
    def schema(self) -> str | None:
        """The input's schema in Spark's DDL, from the module's variable ``schema``; None without one."""
        schema_ddl: str | None = getattr(self.load(), "schema", None)
        return schema_ddl


def _read_files(spark: SparkSession, sink: str) -> Any:
    files = [path for path in Path(sink).rglob("*") if path.is_file()]
    if any(path.suffix == ".parquet" for path in files):
        return spark.read.parquet(sink)
    return spark.read.json(sink) if files else []


class QueryWorld:
    """A directory in which a query runs from its beginning, with input that is released file by file, a sink and a checkpoint.

    Parameters
    ----------
    files: the recorded input; each file has JSON Lines and makes one micro-batch.
    """

    def __init__(self, spark: SparkSession, query: UserQuery, place: Path, files: list[bytes], schema: str) -> None:
        self._spark, self._query, self._files, self._schema = spark, query, files, schema
        self.input, self.checkpoint, self.sink = place / "input", place / "checkpoint", place / "sink"
        self._place = place
        self.input.mkdir(parents=True)
        query.clean(spark, str(self.sink))

    def give(self, upto: int) -> None:
        """Release the first ``upto`` input files; those that were released already stay."""
        for number, content in enumerate(self._files[:upto]):
            file = self.input / f"{number:04d}.json"
            if not file.exists():
                hidden = self.input / f".{number:04d}"
                hidden.write_bytes(content)
                os.utime(hidden, (WRITTEN + number, WRITTEN + number))  # Spark reads files in the order of these times
                hidden.rename(file)

    def run(self, interpose: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None) -> str:
        """Run the query until it has read all released files. Returns its error as a text, empty if it did not fail.

        Parameters
        ----------
        interpose: wraps the function that is given to ``foreachBatch``.
        """
        source = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1).json(str(self.input))
        query: StreamingQuery | None = None
        try:
            with _interposed(interpose):
                query = self._query.build(self._spark, source, str(self.sink), str(self.checkpoint))
            query.processAllAvailable()
        except RunFailedError:
            raise
        except Exception as error:
            return reason_in(str(error))[0]
        finally:
            if query is not None:
                query.stop()
        failure = query.exception()
        return "" if failure is None else reason_in(str(failure))[0]

    def rows(self) -> list[str]:
        """Return the rows in the sink, as sorted JSON texts."""
        return self._query.read(self._spark, str(self.sink))

    def committed(self) -> list[int]:
        """Return the numbers of the committed micro-batches, in order."""
        directory = self.checkpoint / "commits"
        return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit()) if directory.exists() else []

    def forget_commit(self, batch: int) -> None:
        """Remove the entry that commits a micro-batch, as if the driver had been killed before Spark wrote it."""
        _remove(self.checkpoint / "commits" / str(batch))

    def forget_files(self, batch: int) -> bool:
        """Remove a micro-batch's entry in a file sink's own log; returns whether there was one."""
        entry = self.sink / "_spark_metadata" / str(batch)
        existed = entry.exists()
        _remove(entry)
        return existed

    def remove(self) -> None:
        """Empty the sink, and remove the directory."""
        self._query.clean(self._spark, str(self.sink))
        shutil.rmtree(self._place, ignore_errors=True)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


@contextmanager
def _looking_in(directory: str) -> Iterator[None]:
    """Within the block, a directory is on the path for modules."""
    if not directory:
        yield
        return
    sys.path.insert(0, directory)
    try:
        yield
    finally:
        sys.path.remove(directory)


@contextmanager
def _interposed(change: Callable[[Callable[..., Any]], Callable[..., Any]] | None) -> Iterator[None]:
    """Within the block, ``change`` wraps each function that is given to ``foreachBatch``."""
    if change is None:
        yield
        return
    plain = DataStreamWriter.foreachBatch

    def changed(self: DataStreamWriter, func: Callable[[DataFrame, int], None]) -> DataStreamWriter:
        return plain(self, change(func))

    DataStreamWriter.foreachBatch = changed  # type: ignore[method-assign]
    try:
        yield
    finally:
        DataStreamWriter.foreachBatch = plain  # type: ignore[method-assign]
