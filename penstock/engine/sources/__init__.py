"""Sources: what a run can read its events from."""

from pathlib import Path
from typing import Any

from penstock.app.loader import AppReference
from penstock.app.stream import Source
from penstock.app.uri import KafkaPlace, parse_uri
from penstock.engine.sources.base import BoundSource
from penstock.engine.sources.files import FileSource, HopSource
from penstock.engine.sources.follow import FollowedSource
from penstock.engine.sources.kafka import KafkaSource
from penstock.errors import SourceError

GATE = ("min_rows", "max_delay", "max_rows")
FILES = ("jsonl", "csv", "parquet", "text")
OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(FILES, ("max_files",)),
    "log": GATE,
    "generator": (*GATE, "rate", "count", "seed", "scv", "times", "speed"),
    "replay": (*GATE, "time", "speed"),
    "kafka": (*GATE, "start", "key", "header.NAME", "kafka.NAME"),
}


def bind(source: Source[Any], uri: str | None, application: AppReference) -> BoundSource:
    """The source of a run behind a declared one.

    Raises
    ------
    SourceError: there is no URI, or what it names is missing or unreadable.
    ConfigurationError: the URI is not understood.
    """
    text = uri or source.uri
    if text is None:
        raise SourceError(
            f"Source {source.name} has no URI: pass --source {source.name}=jsonl:PATH (or csv:, parquet:, text:, log:, "
            "kafka:, replay:, generator:), or declare one with uri=."
        )
    parsed = parse_uri(text, tuple(OPTIONS), OPTIONS)
    if parsed.scheme == "kafka":
        return KafkaSource(source, parsed)
    if parsed.scheme in FILES:
        return FileSource(source, parsed)
    return FollowedSource(source, parsed, application)


def bind_hop(source: Source[Any], directory: Path, topic: KafkaPlace | None = None) -> BoundSource:
    """The source of a group that another group feeds, by files or a topic."""
    if topic is None:
        return HopSource(source, directory)
    return KafkaSource(source, topic.uri())


__all__ = ["BoundSource", "KafkaSource", "bind", "bind_hop"]
