"""An adapter beside a run: which of the run's sources and sinks it serves, and its process."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from penstock.adapter.process import AdapterProcess
from penstock.app.loader import AppReference
from penstock.app.topology import Topology
from penstock.engine.running.options import RunOptions
from penstock.errors import ConfigurationError
from penstock.launch.words import Companions
from penstock.storage import durable


@contextmanager
def adapter(
    topology: Topology, reference: AppReference, options: RunOptions, companions: Companions, say: Callable[[str], None]
) -> Iterator[None]:
    """Within the block an adapter of the application listens."""
    if "." in reference.module:
        raise ConfigurationError(
            f"An adapter loads the application from a file of its own, and {reference.module} is a module of a package: start "
            "`penstock adapter` beside the run, or move the application to a file outside."
        )
    module = sys.modules[reference.module].__file__
    given = [f"--{name}={value}" for name, value in reference.parameters]
    place = ["--spool", str(companions.spool), "--port", str(companions.port)]
    durable.make(companions.spool, 0o700)
    command = [f"{module}:{reference.name}", *given, *place, *topics(topology, options)]
    with AdapterProcess(command, "127.0.0.1", companions.port, companions.spool / "adapter.log", say):
        say(f"The adapter listens on http://127.0.0.1:{companions.port}.")
        yield


def with_spool(topology: Topology, options: RunOptions, spool: Path) -> RunOptions:
    """The options with the adapter's log for all sources and sinks that have no URI."""
    log = f"log:{spool.absolute()}"
    free = [source.name for source in topology.sources if source.uri is None and source.name not in options.sources]
    sinks: dict[str, str] = {}  # by stream, of which one copy is enough
    for sink in topology.sinks:
        if sink.uri is None and sink.name not in options.sinks:
            sinks.setdefault(sink.stream.name, sink.name)
    return replace(
        options,
        sources={**options.sources, **dict.fromkeys(free, log)},
        sinks={**options.sinks, **dict.fromkeys(sinks.values(), log)},
    )


def topics(topology: Topology, options: RunOptions) -> list[str]:
    """The adapter's options for the streams that are topics."""
    from penstock.connectors.kafka.place import KAFKA  # which needs the extra for Kafka

    uris = {source.name: options.sources.get(source.name) or source.uri for source in topology.sources}
    uris |= {sink.stream.name: options.sinks.get(sink.name) or sink.uri for sink in topology.sinks}
    places = {}
    for name, uri in uris.items():
        if isinstance(uri, str) and uri.startswith("kafka:"):
            place, _, query = uri.partition("?")
            settings = "&".join(option for option in query.split("&") if option.startswith(KAFKA))
            places[name] = f"{place}?{settings}" if settings else place
    return [part for name, place in places.items() for part in ("--stream", f"{name}={place}")]
