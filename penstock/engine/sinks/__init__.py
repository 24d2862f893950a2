"""Sinks: where the events of committed micro-batches go."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock.app.stream import Sink, Source
from penstock.app.uri import Uri, parse_uri
from penstock.engine.sinks import postgres
from penstock.engine.sinks.base import BoundSink
from penstock.engine.sinks.files import MEMORY, Console, Directory, Memory
from penstock.engine.sinks.kafka import KafkaSink
from penstock.engine.sinks.log import LogSink
from penstock.engine.sinks.sqlite import Sqlite
from penstock.engine.sinks.table import TableSink
from penstock.errors import ConfigurationError
from penstock.runtime.staging import SinkFiles

SCHEMES: dict[str, tuple[str, ...]] = {
    "jsonl": (),
    "parquet": (),
    "console": (),
    "memory": (),
    "log": (),
    "kafka": ("header.NAME", "kafka.NAME"),
    "sqlite": ("table",),
    "postgresql": postgres.OPTIONS,
}


def bind_sinks(sinks: Iterable[Sink], uris: Mapping[str, str], output: Path) -> dict[str, BoundSink]:
    """The sinks of a run by name; those without a URI write JSON Lines below ``output``.

    Raises
    ------
    ConfigurationError: a URI is not understood, or two sinks have one place.
    SinkError: a place cannot be written.
    """
    bound: dict[str, BoundSink] = {}
    owners: dict[str, str] = {}
    for sink in sinks:
        default = output / sink.name
        uri = parse_uri(uris.get(sink.name) or sink.uri or f"jsonl:{default}", tuple(SCHEMES), SCHEMES)
        bound[sink.name] = _bind(sink, uri, default.absolute())
        place = _place(sink, uri)
        other = owners.setdefault(place, sink.name) if place else sink.name
        if other != sink.name:
            raise ConfigurationError(
                f"The sinks {other} and {sink.name} both write to {place}: give each a place of its own."
            )
    return bound


def _bind(sink: Sink, uri: Uri, default: Path) -> BoundSink:
    path = Path(uri.place).expanduser().absolute()
    lines = SinkFiles(sink.name, "jsonl", str(default))
    rows = SinkFiles(sink.name, "parquet", str(default))
    match uri.scheme:
        case "jsonl":
            return Directory(SinkFiles(sink.name, "jsonl", str(path)), sink.stream.event_type)
        case "parquet":
            return Directory(SinkFiles(sink.name, "parquet", str(path)), sink.stream.event_type)
        case "console":
            return Console(lines, sink.stream.event_type)
        case "memory":
            return Memory(lines, sink.stream.event_type, uri.place)
        case "log":
            if isinstance(sink.stream, Source):
                raise ConfigurationError(f"Sink {sink.name}: a source's own events cannot leave into the embedded log.")
            return LogSink(sink, path, lines)
        case "kafka":
            return KafkaSink(sink, uri, default.parent, lines)
        case "sqlite":
            return TableSink(sink, Sqlite(path), uri.options.get("table"), rows)
        case _:
            text_only = SinkFiles(sink.name, "parquet", str(default), refuses_nul=True)
            return TableSink(sink, postgres.Postgres(uri), uri.options.get("table"), text_only)


def _place(sink: Sink, uri: Uri) -> str:
    """What no two sinks may share; empty where they may."""
    if uri.scheme in ("jsonl", "parquet"):
        return str(Path(uri.place).expanduser().absolute())
    if uri.scheme == "log":
        return f"stream {sink.stream.name} of {uri.place}"
    if uri.scheme in ("sqlite", "postgresql"):
        return f"table {uri.options.get('table') or sink.name} of {uri.scheme}:{uri.place}"
    return ""


__all__ = ["MEMORY", "BoundSink", "Directory", "KafkaSink", "bind_sinks"]
