"""Directories of files as sinks, and what is shown of them besides."""

import fcntl
import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from penstock.app.stream import Sink
from penstock.connectors.declaration import Options, SinkConnector, SinkContext
from penstock.connectors.sink import BoundSink, other_run
from penstock.connectors.uri import Uri
from penstock.errors import PenstockError, SinkError
from penstock.runtime.codec import Codec
from penstock.runtime.output import STAGING, SinkFiles, StagedFile
from penstock.storage import durable
from penstock.storage.place import absolute, is_local, path_of
from penstock.storage.reach import meet, reaching
from penstock.storage.tables import batches_in

OWNER = ".penstock"


class DirectorySink(BoundSink):
    """A directory, into which a batch's files are moved; they are named by group and batch.

    Parameters
    ----------
    event_type: dict, where events are of no type (dead letters).
    """

    def __init__(self, files: SinkFiles, event_type: type = dict) -> None:
        self.files, self.uri, self.place = files, f"{files.kind}:{files.directory}", files.directory
        self._event_type = event_type
        self._run: str | None = None

    def claim(self, run: str, discarded: Collection[str]) -> None:
        directory = path_of(self.files.directory)
        try:
            meet(directory)
            durable.make(directory)
            with reaching(directory), _alone_in(directory):
                self._claim(directory, run, discarded)
        except PenstockError:
            raise
        except OSError as error:
            raise SinkError(
                f"Sink {self.files.name}: {directory} cannot be written ({error.strerror}); choose another directory."
            ) from error

    def _claim(self, directory: Path, run: str, discarded: Collection[str]) -> None:
        files = self.files
        owner = directory / OWNER
        held = _owner_of(directory)
        committed = [path for path in directory.glob("*.*") if path.name[0] not in "._"]
        ours = held is not None and (held == run or held in discarded)
        if not ours and (held is not None or committed):
            raise SinkError(other_run(files, directory, f"{files.kind}:PATH"))
        if held in discarded:
            for path in committed:
                path.unlink()
        durable.make(directory / STAGING)
        if held is not None:
            durable.write(owner, _owned(run))
        elif not durable.create(owner, _owned(run)) and _owner_of(directory) != run:
            raise SinkError(other_run(files, directory, f"{files.kind}:PATH"))
        self._run = run

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        owner = _owner_of(path_of(self.files.directory))
        if owner != self._run:
            raise SinkError(
                f"Sink {self.files.name}: {self.files.directory} was moved, removed or replaced while the run was on; put it "
                "back, and run again."
            )
        for file in files:
            final = path_of(self.files.directory) / f"{batch:08d}-{group}-{file.final}"
            with suppress(FileNotFoundError):  # it was delivered before
                durable.move(path_of(file.staged), final)
                self._show(final)

    def reached(self, group: str) -> int | None:
        names = (path.name for path in path_of(self.files.directory).glob(f"[0-9]*-{group}-*.{self.files.kind}"))
        own = re.compile(rf"(\d+)-{re.escape(group)}-(\d+-\d{{5}}|native-)")  # and not those of group main-1, say
        return max((int(found[1]) for found in map(own.match, names) if found), default=None)

    def read(self) -> list[Any]:
        paths = sorted(path_of(self.files.directory).glob(f"*.{self.files.kind}"))
        if self.files.kind != "parquet":
            return [event for path in paths for event in _events(path, self._event_type)]
        codec = Codec(self._event_type)
        batches = (rows for path in paths for rows in batches_in(path, codec.schema))
        return [event for rows in batches for event in codec.from_rows(rows.to_pylist(maps_as_pydicts="strict"))]

    def _show(self, final: Path) -> None:
        """Nothing but the file."""


class ConsoleSink(DirectorySink):
    """Prints committed events, besides keeping them."""

    def _show(self, final: Path) -> None:
        for line in final.read_bytes().splitlines():
            print(f"{self.files.name}: {line.decode()}", flush=True)


class MemorySink(DirectorySink):
    """Appends committed events to a list in this process, besides keeping them."""

    def __init__(self, files: SinkFiles, event_type: type, events: list[Any]) -> None:
        super().__init__(files, event_type)
        self._events = events

    def _show(self, final: Path) -> None:
        self._events.extend(_events(final, self._event_type))


class Memory:
    """A sink that keeps events in a list of the process, for notebooks and tests: ``uri=Memory()``.

    >>> from penstock import App, Event
    >>> class Word(Event):
    ...     text: str
    >>> app, kept = App("keep"), Memory()
    >>> sink = app.sink("Out", app.source("Words", Word), uri=kept)
    >>> kept.events  # what a run has committed so far
    []
    """

    def __init__(self) -> None:
        self.events: list[Any] = []

    def __str__(self) -> str:
        return "memory:"

    def bind(self, sink: Sink, context: SinkContext) -> MemorySink:
        """Make it the sink of a run."""
        files = SinkFiles(sink.name, "jsonl", str(context.output))
        return MemorySink(files, sink.stream.event_type, self.events)


def _owned(run: str) -> bytes:
    return json.dumps({"run": run}).encode()


def _owner_of(directory: Path) -> str | None:
    """The run that a directory belongs to."""
    try:
        return str(json.loads(durable.read(directory / OWNER))["run"])
    except FileNotFoundError:
        return None


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Within the block, no other process of this machine claims a directory."""
    if not is_local(directory):  # its owner is written where there is none
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _events(path: Path, event_type: type) -> list[Any]:
    return [msgspec.json.decode(line, type=event_type) for line in durable.read(path).splitlines()]


def _bind_directory(sink: Sink, uri: Uri, options: Options, context: SinkContext) -> DirectorySink:
    path = absolute(uri.place) if uri.place else context.output
    return DirectorySink(SinkFiles(sink.name, uri.scheme, str(path)), sink.stream.event_type)  # type: ignore[arg-type]


def _bind_console(sink: Sink, uri: Uri, options: Options, context: SinkContext) -> ConsoleSink:
    return ConsoleSink(SinkFiles(sink.name, "jsonl", str(context.output)), sink.stream.event_type)


def _bind_memory(sink: Sink, uri: Uri, options: Options, context: SinkContext) -> MemorySink:
    return Memory().bind(sink, context)


_declare = partial(SinkConnector, reach="shared disk", bind=_bind_directory)

JSONL = _declare(scheme="jsonl", place="PATH", help="a directory of files, one JSON event a line")
PARQUET = _declare(scheme="parquet", place="PATH", help="a directory of Parquet files")
CONSOLE = _declare(
    scheme="console", place="", help="printed as well as kept in the run's directory", bind=_bind_console
)
MEMORY = _declare(
    scheme="memory",
    place="",
    help="a list in the process, read by `RunResult.output`; `uri=Memory()` gives the list itself",
    bind=_bind_memory,
)
