"""Directories of files as sinks, and what is shown of them besides."""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from penstock.app.stream import Sink
from penstock.connectors.declaration import Options, SinkConnector, SinkContext
from penstock.connectors.sink import BoundSink, fenced, other_run
from penstock.connectors.uri import Uri
from penstock.errors import PenstockError, SinkError
from penstock.kinds.coding import json_decoder
from penstock.runtime.codec import Codec
from penstock.runtime.output import STAGING, SinkFiles, StagedFile
from penstock.storage import durable
from penstock.storage.alone import alone
from penstock.storage.place import absolute, path_of
from penstock.storage.reach import meet, reaching
from penstock.storage.tables import batches_in
from penstock.visible import visible

OWNER = ".penstock"
"""Says whose a directory is."""
REACHED = ".penstock-reached"
"""Says up to which batch of each group files have come, whatever has become of them since."""


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
        self._reached: dict[str, int] = {}

    def inspect(self, run: str, discarded: Collection[str]) -> None:
        with self._explained() as directory:
            self._refuse_others(directory, run, discarded)

    def claim(self, run: str, discarded: Collection[str]) -> None:
        with self._explained() as directory:
            durable.make(directory)
            with alone(directory):
                self._claim(directory, run, discarded)

    @contextmanager
    def _explained(self) -> Iterator[Path]:
        directory = path_of(self.files.directory)
        try:
            meet(directory)
            with reaching(directory):
                yield directory
        except PenstockError:
            raise
        except OSError as error:
            raise SinkError(
                f"Sink {self.files.name}: {directory} cannot be written ({error.strerror}); choose another directory."
            ) from error

    def _refuse_others(self, directory: Path, run: str, discarded: Collection[str]) -> str | None:
        """Returns whose the directory is, if that is nobody else."""
        held = _owner_of(directory)
        if held is None:
            others = any(name[0] not in "._" and "." in name for name in durable.names(directory))
        else:
            others = held != run and held not in discarded
        if others:
            raise SinkError(other_run(self.files, directory, f"{self.files.kind}:PATH"))
        return held

    def _claim(self, directory: Path, run: str, discarded: Collection[str]) -> None:
        """Files of a discarded run are removed once the directory is another's, which says so until they are: its driver, if it
        wakes, moves none to it, and who is killed on the way goes on with that."""
        held = self._refuse_others(directory, run, discarded)
        emptying = held in discarded or (held == run and _is_emptying(directory))
        durable.make(directory / STAGING)
        if held is not None:
            durable.write(directory / OWNER, _owned(run, emptying=emptying))
        elif not durable.create(directory / OWNER, _owned(run)) and _owner_of(directory) != run:
            raise SinkError(other_run(self.files, directory, f"{self.files.kind}:PATH"))
        if emptying:
            remove_batches(directory)
            durable.write(directory / OWNER, _owned(run))
        self._run, self._reached = run, _reached_in(directory, run)

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        """It is written down first: from then on the batch is the directory's, whatever its readers do with the files."""
        directory = path_of(self.files.directory)
        owner = _owner_of(directory)
        if owner != self._run:
            if owner is not None:
                raise fenced(self.files, self.files.directory)
            raise SinkError(
                f"Sink {self.files.name}: {self.files.directory} was moved, removed or replaced while the run was on; put it "
                "back, and run again."
            )
        if self._run is not None and self._reached.get(group, -1) < batch:
            self._reached[group] = batch
            noted = json.dumps({"run": self._run, "reached": self._reached})
            durable.write(directory / REACHED, noted, kept="bytes")
        for file in files:
            final = directory / f"{batch:08d}-{group}-{file.final}"
            with suppress(FileNotFoundError):  # it was delivered before
                durable.move(path_of(file.staged), final)
                self._show(final)
        durable.sync_names(directory)

    def reached(self, group: str) -> int | None:
        directory = path_of(self.files.directory)
        own = re.compile(rf"(\d{{8,}})-{re.escape(group)}-{STEM}")  # and not those of group main-1, say
        there = (int(match[1]) for match in map(own.fullmatch, durable.names(directory)) if match)
        return max([_reached_in(directory, self._run).get(group, -1), *there])

    def read(self) -> list[Any]:
        paths = durable.matching(path_of(self.files.directory), f"*.{self.files.kind}")
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
            print(f"{self.files.name}: {visible(line.decode())}", flush=True)


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


STEM = r"(?:\d+-\d{5}(?:-timer)?|(?:native|refused)-\d{5})\.(?:jsonl|parquet)"
"""How the names of a batch's files end, after its number and its group."""


def remove_batches(directory: Path) -> None:
    """Remove what a run has put into a directory of output, and nothing else: what is staged first, so that nothing comes of
    it.
    """
    durable.remove(directory / STAGING)
    durable.make(directory / STAGING)
    (directory / REACHED).unlink(missing_ok=True)
    for name in durable.names(directory):
        if re.fullmatch(rf"\d{{8,}}-.+-{STEM}", name):
            (directory / name).unlink(missing_ok=True)


def refused_in(letters: DirectorySink) -> int:
    """How many of the dead letters are results that a sink has refused as they were delivered."""
    files = durable.matching(path_of(letters.files.directory), "*-refused-*.jsonl")
    return sum(len(durable.read(path).splitlines()) for path in files)


def remove_output(directory: Path, runs: Collection[str]) -> None:
    """Remove a directory of output as far as some runs have made it; where more lies in it, it stays, and stays theirs."""
    held = _owner_of(directory)
    if held is not None and held not in runs:
        return
    if held is not None:
        remove_batches(directory)
    durable.remove(directory / STAGING)
    if not set(durable.names(directory)) - {OWNER}:
        durable.remove(directory)


def _reached_in(directory: Path, run: str | None) -> dict[str, int]:
    """The last batch of each group, as far as the run has written that down."""
    with suppress(FileNotFoundError, ValueError, KeyError):
        noted = json.loads(durable.read(directory / REACHED))
        if noted["run"] == run:
            return {str(group): int(batch) for group, batch in noted["reached"].items()}
    return {}


def _owned(run: str, *, emptying: bool = False) -> bytes:
    return json.dumps({"run": run, **({"emptying": True} if emptying else {})}).encode()


def _owner_of(directory: Path) -> str | None:
    """The run that a directory belongs to."""
    try:
        return str(json.loads(durable.read(directory / OWNER))["run"])
    except FileNotFoundError:
        return None


def _is_emptying(directory: Path) -> bool:
    """Whether its run has begun to remove what a discarded one has left, and was killed."""
    return bool(json.loads(durable.read(directory / OWNER)).get("emptying"))


def _events(path: Path, event_type: type) -> list[Any]:
    return list(map(json_decoder(event_type).decode, durable.read(path).splitlines()))


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
CONSOLE = _declare(scheme="console", place="", help="printed as well as kept in the run's directory", bind=_bind_console)
MEMORY = _declare(
    scheme="memory",
    place="",
    help="a list in the process, read by `RunResult.output`; `uri=Memory()` gives the list itself",
    bind=_bind_memory,
)
