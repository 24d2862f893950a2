"""The registry of connectors: Penstock's own, and those that other packages register.

A package registers a connector by an entry point of the group ``penstock.sources`` or ``penstock.sinks``, which
has the scheme as its name, and refers to the `SourceConnector` or `SinkConnector`.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal, overload

from penstock.app.spelling import did_you_mean
from penstock.app.stream import Connection, Sink, Source
from penstock.connectors.admission import ADMISSION
from penstock.connectors.declaration import Connector, Jars, SinkConnector, SinkContext, SourceConnector, SourceContext
from penstock.connectors.files import format_of
from penstock.connectors.sink import BoundSink
from penstock.connectors.source import BoundSource
from penstock.connectors.uri import Uri
from penstock.errors import ConfigurationError, SourceError
from penstock.masked import masked
from penstock.storage.place import STORES, absolute

Side = Literal["sources", "sinks"]

HERE = "penstock.connectors"
ROWS: dict[Side, dict[str, str]] = {
    "sources": {
        "jsonl": f"{HERE}.files.source:JSONL",
        "csv": f"{HERE}.files.source:CSV",
        "parquet": f"{HERE}.files.source:PARQUET",
        "text": f"{HERE}.files.source:TEXT",
        "log": f"{HERE}.log.source:LOG",
        "kafka": f"{HERE}.kafka.source:KAFKA",
        "replay": f"{HERE}.replay:REPLAY",
        "generator": f"{HERE}.generator:GENERATOR",
        "delta": f"{HERE}.tables.delta_source:DELTA",
    },
    "sinks": {
        "jsonl": f"{HERE}.files.sink:JSONL",
        "parquet": f"{HERE}.files.sink:PARQUET",
        "console": f"{HERE}.files.sink:CONSOLE",
        "memory": f"{HERE}.files.sink:MEMORY",
        "log": f"{HERE}.log.sink:LOG",
        "kafka": f"{HERE}.kafka.sink:KAFKA",
        "sqlite": f"{HERE}.tables.sqlite:SQLITE",
        "postgresql": f"{HERE}.tables.postgresql:POSTGRESQL",
        "delta": f"{HERE}.tables.delta:DELTA",
        "iceberg": f"{HERE}.tables.iceberg:ICEBERG",
    },
}


@overload
def connector(side: Literal["sources"], scheme: str) -> SourceConnector: ...
@overload
def connector(side: Literal["sinks"], scheme: str) -> SinkConnector: ...
@overload
def connector(side: Side, scheme: str) -> Connector: ...
def connector(side: Side, scheme: str) -> Any:
    """Return the connector of a scheme.

    Raises:
        ConfigurationError: there is none, or it cannot be loaded.
    """
    row = ROWS[side].get(scheme)
    if row is not None:
        module, _, name = row.partition(":")
        return getattr(import_module(module), name)
    entry = _registered(side).get(scheme)
    if entry is None:
        raise ConfigurationError(f"There is no connector {scheme} for {side}; there are {', '.join(schemes(side))}.")
    try:
        declared = entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"The entry point {entry.value} for {scheme} cannot be loaded: {error}.") from error
    if not isinstance(declared, SourceConnector if side == "sources" else SinkConnector):
        raise ConfigurationError(
            f"The entry point {entry.value} for {scheme} is no connector for {side}: it must be a SourceConnector for sources, "
            "a SinkConnector for sinks."
        )
    return declared


def schemes(side: Side) -> list[str]:
    """Return the schemes that have a connector, Penstock's own first."""
    return [*ROWS[side], *(name for name in _registered(side) if name not in ROWS[side])]


def read_uri(text: str, side: Side) -> Uri:
    """Parse a URI whose scheme must be known. A bare path, or a URI of a store, gets the scheme of the files' format.

    Raises:
        ConfigurationError: the scheme is unknown.
    """
    uri, known = Uri.parse(text), schemes(side)
    if not uri.scheme and uri.place in known and not connector(side, uri.place).place:
        return Uri(uri.place, "", uri.options)
    if uri.scheme in ("", "file"):
        place = uri.place.removeprefix("//") if uri.scheme else uri.place
        return Uri(format_of(place), place, uri.options)
    if uri.scheme in STORES:
        place = f"{uri.scheme}:{uri.place}"
        return Uri(format_of(place), place, uri.options)
    if uri.scheme not in known:
        ways = ", ".join(f"{scheme}:..." for scheme in known)
        meant = did_you_mean(uri.scheme, known)
        raise ConfigurationError(f"{masked(text)!r} has no known scheme{meant or ';'} write one of {ways}, or ./PATH.")
    return uri


def is_gated(text: str) -> bool:
    """Whether the source of a URI has all options of `ADMISSION`, so that it can hold rows back until enough wait.

    False for an unknown scheme.
    """
    scheme = Uri.parse(text).scheme
    return scheme in schemes("sources") and set(ADMISSION) <= set(connector("sources", scheme).options)


def bind_source(source: Source[Any], given: str | None, context: SourceContext) -> BoundSource:
    """Bind a declared source: return the source that a run reads.

    Args:
        given: a URI to use in place of the declared one.

    Raises:
        SourceError: there is no URI, or its place is missing or unreadable.
        ConfigurationError: the URI is invalid.
    """
    wanted = given or source.uri
    if wanted is None:
        ways = ", ".join(f"{scheme}:" for scheme in schemes("sources"))
        raise SourceError(
            f"Source {source.name} has no URI: pass --source {source.name}=jsonl:PATH (or another of {ways}), or declare "
            "one with uri=."
        )
    if not isinstance(wanted, str):
        bound: BoundSource = wanted.bind(source, context)
        return bound
    uri = read_uri(wanted, "sources")
    declared = connector("sources", uri.scheme)
    return declared.bind(source, uri, declared.read(uri), context)


def bind_sinks(sinks: Iterable[Sink], uris: Mapping[str, str], output: Path) -> dict[str, BoundSink]:
    """Bind declared sinks: return the sinks that a run writes, by name. Sinks without a URI write JSON Lines below ``output``.

    Args:
        uris: URIs by sink's name, to use in place of the declared ones.

    Raises:
        ConfigurationError: a URI is invalid, or two sinks share a place.
        SinkError: a place cannot be written.
    """
    bound = {sink.name: _bind_sink(sink, uris.get(sink.name), SinkContext(absolute(output / sink.name))) for sink in sinks}
    refuse_shared(bound)
    return bound


def refuse_unknown(flag: str, given: Iterable[str], declared: Iterable[Source[Any] | Sink]) -> None:
    """Check that what is given for sources, or for sinks, names ones that the application declares.

    Raises:
        ConfigurationError: names the first that it does not, and those that it does.
    """
    known = [each.name for each in declared]
    for name in given:
        if name not in known:
            raise ConfigurationError(
                f"{flag} {name}=...: there is no {name}; the application has {', '.join(known) or 'none'}."
            )


def refuse_shared(sinks: Mapping[str, BoundSink]) -> None:
    """Refuse two sinks that share a place. What a place is called may be known only once it has been claimed.

    Raises:
        ConfigurationError: names the two.
    """
    owners: dict[str, str] = {}
    for name, sink in sinks.items():
        other = owners.setdefault(sink.spot, name) if sink.place else name
        if other != name:
            raise ConfigurationError(f"The sinks {other} and {name} both write to {sink.place}: give each a place of its own.")


def _bind_sink(sink: Sink, given: str | None, context: SinkContext) -> BoundSink:
    wanted = given or sink.uri
    if wanted is None:  # made, not parsed, as the path may have any characters
        return connector("sinks", "jsonl").bind(sink, Uri("jsonl", str(context.output)), {}, context)
    if not isinstance(wanted, str):
        bound: BoundSink = wanted.bind(sink, context)
        return bound
    uri = read_uri(wanted, "sinks")
    declared = connector("sinks", uri.scheme)
    return declared.bind(sink, uri, declared.read(uri), context)


def jars(side: Side, given: str | Connection | None) -> tuple[Jars, ...]:
    """Return the jars that Spark needs besides its own for a source or a sink, given as a URI or a connector object."""
    return connector(side, read_uri(given, side).scheme).jars if isinstance(given, str) else getattr(given, "jars", ())


@cache
def _registered(side: Side) -> dict[str, EntryPoint]:
    """Return the connectors of other packages by scheme. Cached, as packages do not change while a process lives."""
    return {entry.name: entry for entry in entry_points(group=f"penstock.{side}")}
