"""A user's query, loaded anew for each start, in a world of its own: recorded input, a sink and a checkpoint."""

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

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock.engine.running.watch import reason_in
from penstock.errors import ApplicationNotFoundError, RunFailedError
from penstock.runtime.letters import NOT_THE_USERS

WRITTEN = 1_700_000_000
"""When the first file was written, as far as its time says."""


class UserQuery:
    """What the user has written: ``build(spark, source, sink, checkpoint)``, and how its sink is read.

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
        """The module, loaded anew as by a process that has just begun."""
        with _looking_in(self._here):
            try:
                module = self._executed()
            except Exception as error:
                raise ApplicationNotFoundError(
                    f"{self.reference} cannot be loaded: {type(error).__name__}: {error}."
                ) from error
        if not callable(getattr(module, self._name, None)):
            raise ApplicationNotFoundError(f"{self.reference}: there is no function {self._name} in it.")
        self.file = str(getattr(module, "__file__", ""))
        return module

    def _executed(self) -> Any:
        """The module, executed with all of its neighbours."""
        for name, known in list(sys.modules.items()):
            file = getattr(known, "__file__", None) or ""
            if self._here and file.startswith(f"{self._here}{os.sep}") and not file.startswith(NOT_THE_USERS):
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
        """Start the query."""
        query = getattr(self.load(), self._name)(*given)
        if not isinstance(query, StreamingQuery):
            raise RunFailedError(
                f"{self.reference} returned {type(query).__name__}; it is to return the query that it has started."
            )
        return query

    def read(self, spark: SparkSession, sink: str) -> list[str]:
        """What the sink holds, by the module's own ``read(spark, sink)``, or as Parquet or JSON."""
        module = self.load()
        own = getattr(module, "read", None)
        try:
            found = own(spark, sink) if own is not None else _read_files(spark, sink)
            rows = found.collect() if isinstance(found, DataFrame) else list(found)
        except Exception as error:
            raise RunFailedError(f"read(spark, sink) of {self.reference} fails: {type(error).__name__}: {error}") from error
        return sorted(
            json.dumps(row.asDict(recursive=True) if hasattr(row, "asDict") else row, default=str, sort_keys=True)
            for row in rows
        )

    def clean(self, spark: SparkSession, sink: str) -> None:
        """Let the module make its sink empty, if it says how."""
        own = getattr(self.load(), "clean", None)
        if own is not None:
            own(spark, sink)

    @property
    def schema(self) -> str | None:
        """The input's schema in Spark's DDL, if the module gives it."""
        given: str | None = getattr(self.load(), "schema", None)
        return given


def _read_files(spark: SparkSession, sink: str) -> Any:
    files = [path for path in Path(sink).rglob("*") if path.is_file()]
    if any(path.suffix == ".parquet" for path in files):
        return spark.read.parquet(sink)
    return spark.read.json(sink) if files else []


class World:
    """A place in which a query is run from its beginning: input that is handed out file by file, a sink, a checkpoint.

    Parameters
    ----------
    files: the recorded input, JSON Lines, a micro-batch each.
    """

    def __init__(self, spark: SparkSession, query: UserQuery, place: Path, files: list[bytes], schema: str) -> None:
        self._spark, self._query, self._files, self._schema = spark, query, files, schema
        self.input, self.checkpoint, self.sink = place / "input", place / "checkpoint", place / "sink"
        self._place = place
        self.input.mkdir(parents=True)
        query.clean(spark, str(self.sink))

    def give(self, upto: int) -> None:
        """Hand out the files up to a number."""
        for number, content in enumerate(self._files[:upto]):
            file = self.input / f"{number:04d}.json"
            if not file.exists():
                hidden = self.input / f".{number:04d}"
                hidden.write_bytes(content)
                os.utime(hidden, (WRITTEN + number, WRITTEN + number))  # by which Spark takes them in this order
                hidden.rename(file)

    def run(self, interpose: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None) -> str:
        """Run the query until it has read all that is there; the error that it has ended with, or nothing.

        Parameters
        ----------
        interpose: makes another function of the one that is given to ``foreachBatch``.
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
        found = query.exception()
        return "" if found is None else reason_in(str(found))[0]

    def rows(self) -> list[str]:
        """What the sink holds."""
        return self._query.read(self._spark, str(self.sink))

    def committed(self) -> list[int]:
        """The micro-batches that are committed."""
        place = self.checkpoint / "commits"
        return sorted(int(path.name) for path in place.iterdir() if path.name.isdigit()) if place.exists() else []

    def forget_commit(self, batch: int) -> None:
        """Undo the last thing that Spark does for a micro-batch, as if the driver had been killed before it."""
        _remove(self.checkpoint / "commits" / str(batch))

    def forget_files(self, batch: int) -> bool:
        """Undo the entry of a file sink's own log; whether it has one."""
        entry = self.sink / "_spark_metadata" / str(batch)
        there = entry.exists()
        _remove(entry)
        return there

    def remove(self) -> None:
        """Leave nothing."""
        self._query.clean(self._spark, str(self.sink))
        shutil.rmtree(self._place, ignore_errors=True)


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


@contextmanager
def _looking_in(directory: str) -> Iterator[None]:
    """Within the block, modules are looked for in a directory, too."""
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
    """Within the block, ``foreachBatch`` is given another function."""
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
