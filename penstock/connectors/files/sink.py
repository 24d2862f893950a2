"""Directories of files as sinks; some also print the events, or collect them in memory."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
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
from penstock.storage.place import absolute, path_of, real
from penstock.storage.reach import meet, reaching
from penstock.storage.tables import batches_in
from penstock.visible import visible

OWNER = ".penstock"
"""The file in a sink's directory that names the run which owns it."""
REACHED = ".penstock-reached"
"""The beginning of the names of empty files, each of which notes a delivered batch by its run, number and group. So a batch
counts as delivered even if its files have been removed. A driver that was paused may add a note of an older batch when it
wakes, and cannot take back one of a newer.
"""
NOTES_KEPT = 20
"""Older notes are removed. The newest one stays, whose name may not be synced yet, and some before it."""


class DirectorySink(BoundSink):
    """A directory, into which the staged files of committed batches are moved; their names begin with batch and group.

    Args:
        event_type: of the events; dict for dead letters.
    """

    def __init__(self, files: SinkFiles, event_type: type = dict) -> None:
        self.files, self.uri, self.place = files, f"{files.kind}:{files.directory}", files.directory
        self._event_type = event_type
        self._run: str | None = None
        self._notes: dict[str, dict[int, Path]] = {}

    @property
    def spot(self) -> str:
        return str(real(path_of(self.place)))

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
        """Provide the directory's path; within the block, turn errors into `SinkError`."""
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
        """Refuse a directory of another run, or with files of none. Returns its owner: this run, a discarded one, or None."""
        owner = _owner_of(directory)
        if owner is None:
            others = any(name[0] not in "._" and "." in name for name in durable.names(directory))
            others = others or bool(durable.names(directory / STAGING))  # a run that stages owns the directory
        else:
            others = owner != run and owner not in discarded
        if others:
            raise SinkError(other_run(self.files, directory, f"{self.files.kind}:PATH"))
        return owner

    def _claim(self, directory: Path, run: str, discarded: Collection[str]) -> None:
        """Take ownership first, and then remove a discarded run's files, so that a paused driver of it can deliver no more.

        The owner file says that the removal is not complete, so that it is completed after a crash.
        """
        owner = self._refuse_others(directory, run, discarded)
        emptying = owner in discarded or (owner == run and _is_emptying(directory))
        durable.make(directory / STAGING)
        if owner is not None:
            if owner != run or emptying:
                durable.write(directory / OWNER, _owned(run, emptying=emptying))
        elif not durable.create(directory / OWNER, _owned(run)) and _owner_of(directory) != run:
            raise SinkError(other_run(self.files, directory, f"{self.files.kind}:PATH"))
        if emptying:
            remove_batches(directory)
            durable.write(directory / OWNER, _owned(run))
        self._run, self._notes = run, _notes_in(directory, durable.names(directory), run)

    def deliver(self, group: str, batch: int, files: Sequence[StagedFile]) -> None:
        """See `BoundSink.deliver`. The batch is noted first: then it counts as delivered, even if readers remove files."""
        directory = path_of(self.files.directory)
        owner = _owner_of(directory)
        if owner != self._run:
            if owner is not None:
                raise fenced(self.files, self.files.directory)
            raise SinkError(
                f"Sink {self.files.name}: {self.files.directory} was moved, removed or replaced while the run was on; put it "
                "back, and run again."
            )
        if self._run is not None:
            self._note(directory, group, batch)
        for file in files:
            final = directory / f"{batch:08d}-{group}-{file.final}"
            with suppress(FileNotFoundError):  # an earlier attempt has delivered it
                durable.move(path_of(file.staged), final)
                self._show(final)
        durable.sync_names(directory)

    def _note(self, directory: Path, group: str, batch: int) -> None:
        """Note that a batch of a group is delivered, and remove old notes."""
        notes = self._notes.setdefault(group, {})
        if batch in notes:
            return
        for old in sorted(notes)[:-NOTES_KEPT][:2]:  # two at most, for in a store each takes its time
            notes.pop(old).unlink(missing_ok=True)
        notes[batch] = directory / f"{REACHED}-{self._run}-{batch:08d}-{group}"
        durable.write(notes[batch], b"", kept="bytes")

    def reached(self, group: str) -> int | None:
        directory = path_of(self.files.directory)
        own = re.compile(rf"(\d{{8,}})-{re.escape(group)}-{STEM}")  # for group main, not main-1
        names = durable.names(directory)
        batches = (int(match[1]) for match in map(own.fullmatch, names) if match)
        noted = _notes_in(directory, names, self._run).get(group, {})
        return max([_reached_formerly(directory, self._run).get(group, -1), *noted, *batches])

    def read(self) -> list[Any]:
        paths = durable.matching(path_of(self.files.directory), f"*.{self.files.kind}")
        if self.files.kind != "parquet":
            return [event for path in paths for event in _events(path, self._event_type)]
        codec = Codec(self._event_type)
        batches = (rows for path in paths for rows in batches_in(path, codec.schema))
        return [event for rows in batches for event in codec.from_rows(rows.to_pylist(maps_as_pydicts="strict"))]

    def _show(self, final: Path) -> None:
        """Show a file that was delivered; a directory shows it by itself."""


class ConsoleSink(DirectorySink):
    """Prints committed events, and keeps them in a directory."""

    def _show(self, final: Path) -> None:
        for line in final.read_bytes().splitlines():
            print(f"{self.files.name}: {visible(line.decode())}", flush=True)


class MemorySink(DirectorySink):
    """Appends committed events to a list in this process, and keeps them in a directory."""

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
        """Return the bound sink for a run."""
        files = SinkFiles(sink.name, "jsonl", str(context.output))
        return MemorySink(files, sink.stream.event_type, self.events)


STEM = r"(?:\d+-\d{5}(?:-timer)?|(?:native|refused)-\d{5})\.(?:jsonl|parquet)"
"""Matches the end of a delivered file's name, after batch and group."""


def remove_batches(directory: Path) -> None:
    """Remove a run's files from a directory of output, and no others. Staged files go first, so that none can be delivered
    meanwhile.
    """
    durable.remove(directory / STAGING)
    durable.make(directory / STAGING)
    for name in durable.names(directory):
        if re.fullmatch(rf"\d{{8,}}-.+-{STEM}", name) or name.startswith(REACHED):
            (directory / name).unlink(missing_ok=True)


def refused_in(letters: DirectorySink) -> int:
    """Return how many of the dead letters are results that a sink has refused at delivery."""
    files = durable.matching(path_of(letters.files.directory), "*-refused-*.jsonl")
    return sum(len(durable.read(path).splitlines()) for path in files)


def remove_output(directory: Path, runs: Collection[str]) -> None:
    """Remove some runs' files from a directory of output, unless another run owns it. It stays if it has other files."""
    owner = _owner_of(directory)
    if owner is not None and owner not in runs:
        return
    if owner is not None:
        remove_batches(directory)
    durable.remove(directory / STAGING)
    if not set(durable.names(directory)) - {OWNER}:
        durable.remove(directory)


def _notes_in(directory: Path, names: Iterable[str], run: str | None) -> dict[str, dict[int, Path]]:
    """Return the notes of a run's delivered batches among the names in a directory, by group and batch."""
    noted = re.compile(rf"{re.escape(REACHED)}-{re.escape(run or '')}-(\d{{8,}})-(.+)")
    notes: dict[str, dict[int, Path]] = {}
    for match in filter(None, map(noted.fullmatch, names)):
        notes.setdefault(match[2], {})[int(match[1])] = directory / match[0]
    return notes


def _reached_formerly(directory: Path, run: str | None) -> dict[str, int]:
    """Return the last delivered batch of each group, as older versions noted it for a run, all in one file."""
    with suppress(FileNotFoundError, ValueError, KeyError):
        noted = json.loads(durable.read(directory / REACHED))
        if noted["run"] == run:
            return {str(group): int(batch) for group, batch in noted["reached"].items()}
    return {}


def _owned(run: str, *, emptying: bool = False) -> bytes:
    """Return the content of `OWNER`; ``emptying`` while a discarded run's files are being removed."""
    return json.dumps({"run": run, **({"emptying": True} if emptying else {})}).encode()


def _owner_of(directory: Path) -> str | None:
    """Return the run that owns a directory; None if no run does."""
    return None if (owner := _owner(directory)) is None else str(owner["run"])


def _owner(directory: Path) -> dict[str, Any] | None:
    """Return the content of `OWNER`; None if there is no such file.

    Raises:
        SinkError: the file is damaged.
    """
    try:
        owner = json.loads(durable.read(directory / OWNER))
        return {"run": str(owner["run"]), "emptying": bool(owner.get("emptying"))}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SinkError(
            f"{directory / OWNER} is damaged, which names the run that writes there: put back the file, or choose another "
            "directory."
        ) from error


def _is_emptying(directory: Path) -> bool:
    """Whether the directory's run was killed while it removed a discarded run's files."""
    owner = _owner(directory)
    return owner is not None and bool(owner["emptying"])


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
