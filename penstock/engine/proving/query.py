"""A user's query, loaded anew for each start, and the world that it runs in: recorded input, a sink and a checkpoint."""

import importlib
import importlib.util
import json
import os
import shutil
import sys
import threading
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

PATIENCE_S = 120.0
"""How long a query may take to read all input."""
WRITTEN = 1_700_000_000
"""The modification time given to the first input file, in seconds since the epoch."""


class UserQuery:
    """The user's module: its function ``build(spark, source, sink, checkpoint)``, and its optional read, clean and schema.

    Args:
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
        self.file = ""
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

    def is_users(self, file: str) -> bool:
        """Whether a file is the user's: the module's own, or one beside it."""
        beside = bool(self._here) and file.startswith(f"{self._here}{os.sep}") and not file.startswith(NOT_THE_USERS)
        return (bool(file) and file == self.file) or beside

    def _send_by_value(self) -> None:
        """Have Spark's workers get the user's modules with each function that is sent: they could not import them, and a module
        that they had imported would not be loaded anew.
        """
        for name, module in list(sys.modules.items()):
            if name == self._module or self._is_beside(module):
                register_pickle_by_value(module)  # type: ignore[no-untyped-call]

    def _is_beside(self, module: Any) -> bool:
        """Whether a module is a file in the user's directory, or below it."""
        return self.is_users(getattr(module, "__file__", None) or "")

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
            return sorted(
                json.dumps(row.asDict(recursive=True) if hasattr(row, "asDict") else row, default=str, sort_keys=True)
                for row in rows
            )
        except Exception as error:
            raise RunFailedError(f"read(spark, sink) of {self.reference} fails: {type(error).__name__}: {error}") from error

    def clean(self, spark: SparkSession, sink: str) -> None:
        """Empty the sink by the module's ``clean(spark, sink)``, if it has that function."""
        own = getattr(self.load(), "clean", None)
        if own is None:
            return
        try:
            own(spark, sink)
        except Exception as error:
            raise RunFailedError(
                f"clean(spark, sink) of {self.reference} fails: {type(error).__name__}: {error}. It is called before a sink is "
                "used for the first time, too."
            ) from error

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

    Args:
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

        Args:
            interpose: wraps the function that is given to ``foreachBatch``.
        """
        source = self._spark.readStream.schema(self._schema).option("maxFilesPerTrigger", 1).json(str(self.input))
        query: StreamingQuery | None = None
        try:
            with _interposed(interpose, self._query.reference):
                query = self._query.build(self._spark, source, str(self.sink), str(self.checkpoint))
            for started in self._spark.streams.active:  # it may have started others besides
                self._wait_for(started)
        except RunFailedError:
            raise
        except Exception as error:
            return reason_in(str(error))[0]
        finally:
            for started in self._spark.streams.active:
                started.stop()
            if query is not None:
                query.stop()
        failure = query.exception()
        return "" if failure is None else reason_in(str(failure))[0]

    def _wait_for(self, query: StreamingQuery) -> None:
        """Wait until a query has read all input.

        Raises:
            RunFailedError: it goes on for longer than `PATIENCE_S`.
        """
        failures: list[Exception] = []

        def wait() -> None:
            try:
                query.processAllAvailable()
            except Exception as error:
                failures.append(error)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(PATIENCE_S)
        if waiting.is_alive():
            raise RunFailedError(
                f"{self._query.reference} does not come to rest within {PATIENCE_S:g} s: a timer, a timeout or a time to live "
                "by processing time keeps Spark going. Use event time in what is proved, or less input."
            )
        for failure in failures:
            raise failure

    def rows(self) -> list[str]:
        """Return the rows in the sink, as sorted JSON texts."""
        return self._query.read(self._spark, str(self.sink))

    def committed(self) -> list[int]:
        """Return the numbers of the committed micro-batches, in order."""
        return _numbers(self.checkpoint / "commits")

    def begun(self) -> list[int]:
        """Return the numbers of the micro-batches that were begun, in order."""
        return _numbers(self.checkpoint / "offsets")

    def forget_offsets(self, batch: int) -> None:
        """Remove the entry that begins a micro-batch, as if the driver had been killed before."""
        _remove(self.checkpoint / "offsets" / str(batch))

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


def _numbers(log: Path) -> list[int]:
    """Return the numbers of the entries in one of Spark's logs, in order."""
    return sorted(int(path.name) for path in log.iterdir() if path.name.isdigit()) if log.exists() else []


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
def _interposed(change: Callable[[Callable[..., Any]], Callable[..., Any]] | None, reference: str) -> Iterator[None]:
    """Within the block, ``change`` wraps each function that is given to ``foreachBatch``, a query does not wait for its
    trigger's interval, and a wait for the query's end is refused.
    """
    for_each, trigger, wait = DataStreamWriter.foreachBatch, DataStreamWriter.trigger, StreamingQuery.awaitTermination

    def changed(self: DataStreamWriter, func: Callable[[DataFrame, int], None]) -> DataStreamWriter:
        return for_each(self, func if change is None else change(func))

    def at_once(self: DataStreamWriter, **asked: Any) -> DataStreamWriter:
        return self if asked.get("processingTime") is not None else trigger(self, **asked)

    def refused(self: StreamingQuery, timeout: Any = None) -> Any:
        raise RunFailedError(f"{reference} waits for the end of its query (awaitTermination): let it return the query instead.")

    for owner, name, other in (
        (DataStreamWriter, "foreachBatch", changed),
        (DataStreamWriter, "trigger", at_once),
        (StreamingQuery, "awaitTermination", refused),
    ):
        setattr(owner, name, other)
    try:
        yield
    finally:
        DataStreamWriter.foreachBatch, DataStreamWriter.trigger = for_each, trigger  # type: ignore[method-assign]
        StreamingQuery.awaitTermination = wait  # type: ignore[method-assign]
