"""Sinks: where committed files go, and what is shown or kept of them besides."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from penstock.app.stream import Sink
from penstock.engine.uri import Uri, parse_uri
from penstock.errors import SinkError
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
    ConfigurationError: a URI is not understood.
    """
    bound = []
    for sink in sinks:
        default = output / sink.name
        text = uris.get(sink.name) or sink.uri or f"jsonl:{default}"
        uri = parse_uri(text, tuple(SCHEMES), SCHEMES)
        bound.append(BoundSink(sink, uri, default))
    return bound


def claim(files: SinkFiles, run: str, *, fresh: bool) -> None:
    """Make a sink's directory this run's, and refuse one that holds another run's output.

    Raises
    ------
    SinkError: it cannot be written, or belongs to another run.
    """
    directory = Path(files.directory)
    try:
        (directory / STAGING).mkdir(parents=True, exist_ok=True)
        owner = directory / OWNER
        held = json.loads(owner.read_text())["run"] if owner.exists() else None
        committed = [path for path in directory.glob(f"*.{files.kind}") if path.name[0] not in "._"]
        if committed and held != run:
            if not (fresh and held is not None):
                raise SinkError(
                    f"Sink {files.name}: {directory} holds files that are not of this run; empty it, or choose another "
                    f"directory with --sink {files.name}={files.kind}:PATH."
                )
            for path in committed:
                path.unlink()
        owner.write_text(json.dumps({"run": run}))
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
            events.extend(msgspec.convert(row, event_type, strict=False) for row in pq.read_table(path).to_pylist())
        else:
            events.extend(msgspec.json.decode(line, type=event_type) for line in path.read_bytes().splitlines())
    return events
