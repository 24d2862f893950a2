"""Sinks: where committed files go, and what is shown or kept of them besides."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from penstock.app.stream import Sink
from penstock.app.uri import Uri, parse_uri
from penstock.errors import ConfigurationError, SinkError
from penstock.runtime.staging import STAGING, FileKind, SinkFiles

SCHEMES: dict[str, tuple[str, ...]] = {"jsonl": (), "parquet": (), "console": (), "memory": ()}
OWNER = ".penstock"

MEMORY: dict[str, list[Any]] = {}
"""Events that have left at ``memory:`` sinks of runs in this process, by the URI's name."""


class BoundSink:
    """A declared sink and where its events go."""

    def __init__(self, sink: Sink, uri: Uri, default: Path) -> None:
        self.sink = sink
        self.uri = str(uri)
        self._scheme, self._place = uri.scheme, uri.place
        kind: FileKind = "parquet" if uri.scheme == "parquet" else "jsonl"
        directory = Path(uri.place).expanduser() if uri.scheme in ("jsonl", "parquet") else default
        self.files = SinkFiles(sink.name, kind, str(directory.absolute()))

    def show(self, paths: Iterable[Path]) -> None:
        """Pass on what a batch has committed, where the sink is the console or memory."""
        if self._scheme not in ("console", "memory"):
            return
        for path in paths:
            for line in path.read_bytes().splitlines():
                if self._scheme == "console":
                    print(f"{self.sink.name}: {line.decode()}", flush=True)
                else:
                    event = msgspec.json.decode(line, type=self.sink.stream.event_type)
                    MEMORY.setdefault(self._place or self.sink.name, []).append(event)


def bind_sinks(sinks: Iterable[Sink], uris: Mapping[str, str], output: Path) -> list[BoundSink]:
    """The sinks of a run; those without a URI write JSON Lines below ``output``.

    Raises
    ------
    ConfigurationError: a URI is not understood, or two sinks have one directory.
    """
    bound = []
    for sink in sinks:
        default = output / sink.name
        text = uris.get(sink.name) or sink.uri or f"jsonl:{default}"
        uri = parse_uri(text, tuple(SCHEMES), SCHEMES)
        bound.append(BoundSink(sink, uri, default))
    owners: dict[str, str] = {}
    for one in bound:
        other = owners.setdefault(one.files.directory, one.sink.name)
        if other != one.sink.name:
            raise ConfigurationError(
                f"The sinks {other} and {one.sink.name} both write to {one.files.directory}: give each a directory of its own."
            )
    return bound


def claim(files: SinkFiles, run: str, previous: str | None) -> None:
    """Make a sink's directory this run's, and refuse one that is another run's.

    Parameters
    ----------
    previous: the run that this one was told to discard, whose output is removed.

    Raises
    ------
    SinkError: it cannot be written, or belongs to another run.
    """
    directory = Path(files.directory)
    try:
        owner = directory / OWNER
        held = json.loads(owner.read_text())["run"] if owner.exists() else None
        committed = [path for path in directory.glob("*.*") if path.name[0] not in "._"] if directory.is_dir() else []
        ours = held is not None and held in (run, previous)
        if not ours and (held is not None or committed):
            raise SinkError(
                f"Sink {files.name}: {directory} holds files that are not of this run; empty it, or choose another "
                f"directory with --sink {files.name}={files.kind}:PATH."
            )
        if ours and held == previous:
            for path in committed:
                path.unlink()
        (directory / STAGING).mkdir(parents=True, exist_ok=True)
        draft = directory / f"{OWNER}.draft"
        draft.write_text(json.dumps({"run": run}))
        draft.replace(owner)
    except SinkError:
        raise
    except OSError as error:
        raise SinkError(
            f"Sink {files.name}: {directory} cannot be written ({error.strerror}); choose another directory."
        ) from error


def read_sink(files: SinkFiles, event_type: type) -> list[Any]:
    """All committed events of a sink, in the order of their batches."""
    events: list[Any] = []
    for path in sorted(Path(files.directory).glob(f"*.{files.kind}")):
        if files.kind == "parquet":
            events.extend(
                msgspec.convert(row, event_type, strict=False)
                for row in pq.read_table(path).to_pylist(maps_as_pydicts="strict")
            )
        else:
            events.extend(msgspec.json.decode(line, type=event_type) for line in path.read_bytes().splitlines())
    return events
