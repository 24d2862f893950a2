"""The adapter's process: opens the streams' stores, serves the API, and stops without losing events."""

import asyncio
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from penstock.adapter.api import Api
from penstock.adapter.metrics import Metrics
from penstock.adapter.store import LogStore, Store
from penstock.adapter.streams import Input, Limits, OutputStream, outputs_of
from penstock.app.topology import Topology
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.log.log import EventLog
from penstock.errors import ConfigurationError
from penstock.runs.gate import TransferGate
from penstock.web.access import Access
from penstock.web.exposure import LOOPBACK, check_exposure
from penstock.web.guard import Guard
from penstock.web.server import Certificate, Port, Server, url_of

if TYPE_CHECKING:
    from penstock.adapter.mirror import KafkaMirror

PORT = 8470
LARGEST_MESSAGE = 950_000
"""The most bytes of an event that fits into a message with Kafka's default settings."""
LEAST_MEMORY = 160 << 20
"""The least --max-memory in bytes: the process takes some 100 MB when it starts."""
GRACE_S = 10
"""How long requests under way may take when the adapter stops."""
ANSWERED_WITHIN_S = 0.5
"""Time to send the answers of requests that are given up after `GRACE_S`."""
SWITCH_S = 0.0002
"""How long a thread that returns from the disk waits for the interpreter; Python's default of 5 ms outlasts a transfer."""
KAFKA_NAMES = "kafka-names"
"""The directory within the spool that records the ids of events in Kafka topics."""
NOTED_EVERY_S = 10.0
"""How often measured arrivals are written to a file."""
EXPIRED_EVERY_S = 600.0
"""How often old events and ids are deleted; rarely, as this scans all ids."""


@dataclass(frozen=True)
class AdapterOptions:
    """Options of an adapter.

    Args:
        spool: the directory of the embedded log.
        kafka: the Kafka topics of streams, by stream; all other streams are in the spool.
        host, port: the address to listen on.
        tls: the certificate to serve TLS with; None for plain HTTP.
        behind_proxy: whether a proxy in front of the adapter encrypts the traffic.
        access: which client may do what.
        limits: the limits of a client's requests.
        gates: by stream; other streams get the default gate.
        retain: seconds for which events are kept after every reader has passed them.
        remember: seconds for which ids are known.
        origins: web origins whose pages may use the API.
        hosts: names by which clients without tokens may address the adapter, besides IP addresses and ``host``.
        leash: whether to stop when standard input closes, as it does when the parent process dies.
    """

    spool: Path
    kafka: Mapping[str, KafkaPlace] = field(default_factory=dict)
    host: str = LOOPBACK
    port: int = PORT
    tls: Certificate | None = None
    behind_proxy: bool = False
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    gates: Mapping[str, TransferGate] = field(default_factory=dict)
    retain: float = 7 * 86400.0
    remember: float = 86400.0
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    leash: bool = False

    @property
    def url(self) -> str:
        """The adapter's URL for clients."""
        return url_of(self.host, self.port, self.tls)


class Adapter:
    """The adapter of one application.

    Raises:
        PenstockError: the spool cannot be written, Kafka cannot be reached, or the port is in use.
    """

    def __init__(self, topology: Topology, options: AdapterOptions) -> None:
        self._topology, self._options = topology, options
        _check(topology, options)
        self._port = Port(options.host, options.port)
        try:
            self._spool = EventLog(options.spool)
            self._names_in_kafka = EventLog(options.spool / KAFKA_NAMES)
            self._inputs = {source.name: self._input_store(source.name) for source in topology.sources}
            self._outputs = {name: self._spool.stream(name) for name in outputs_of(topology)}
            self._mirrors = self._mirrors_of_results() if options.kafka else []
        except BaseException:
            self._port.close()
            raise

    def _mirrors_of_results(self) -> "list[KafkaMirror]":
        from penstock.adapter.mirror import KafkaMirror  # needs an extra

        return [
            KafkaMirror(place, self._outputs[name], event_type, key)
            for name, (event_type, key) in outputs_of(self._topology).items()
            if (place := self._options.kafka.get(name)) is not None
        ]

    def _limits(self, name: str) -> Limits:
        limits = self._options.limits
        return replace(limits, event=min(limits.event, LARGEST_MESSAGE)) if name in self._options.kafka else limits

    def _input_store(self, name: str) -> Store:
        place = self._options.kafka.get(name)
        if place is None:
            return LogStore(self._spool.stream(name), keep_unread=True)
        from penstock.adapter.kafka_store import KafkaStore  # needs an extra

        return KafkaStore(place, self._names_in_kafka.stream(name), self._options.remember)

    def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until a signal or the leash says to stop; then answer the requests under way, and return.

        Args:
            ready: called once requests are accepted.
        """
        sys.setswitchinterval(SWITCH_S)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        uvloop.run(self._serve(ready))

    async def _serve(self, ready: Callable[[], None]) -> None:
        options, metrics = self._options, Metrics()
        inputs = {
            source.name: Input(
                source.name,
                source.event_type,
                self._inputs[source.name],
                options.gates.get(source.name, TransferGate()),
                self._limits(source.name),
                metrics,
            )
            for source in self._topology.sources
        }
        outputs = {
            name: OutputStream(name, event_type, LogStore(self._outputs[name]), key)
            for name, (event_type, key) in outputs_of(self._topology).items()
        }
        guard = Guard(options.access, (options.host, *options.hosts), options.origins)
        api = Api(self._topology.application, inputs, outputs, guard, options.limits, metrics, options.origins)
        stop, at_once = _told_to_stop(leash=options.leash)
        mirrors = [threading.Thread(target=mirror.run, daemon=True) for mirror in self._mirrors]
        for thread in mirrors:
            thread.start()
        besides = [asyncio.create_task(self._keep_up(inputs)), asyncio.create_task(api.sockets.make_room())]
        self._port.open()
        ready()
        try:
            server = Server(api.application, self._port, options.tls)
            all_answered = await server.serve(stop, partial(_finish, inputs, api), GRACE_S, at_once)
            if not all_answered:  # fail those that are left, so that clients know
                for stream in inputs.values():
                    stream.door.give_up("The adapter stops before the store has answered.")
                await asyncio.sleep(ANSWERED_WITHIN_S)
        finally:
            for task in besides:
                task.cancel()
            for stream in inputs.values():  # queued events are still written, before the spool is closed
                await stream.door.close(GRACE_S)
                stream.store.close()
            for mirror in self._mirrors:
                mirror.stop()
            for thread in mirrors:
                await asyncio.to_thread(thread.join, GRACE_S)
            self._spool.close()
            self._names_in_kafka.close()

    async def _keep_up(self, inputs: Mapping[str, Input]) -> None:
        """Periodically record how events arrive, for the planner, and delete old events and ids."""
        path = self._options.spool / "arrivals.jsonl"
        expired = 0.0
        while True:
            await asyncio.sleep(NOTED_EVERY_S)
            now = time.time()
            for name, stream in inputs.items():
                measured = stream.arrivals.measured()
                if measured.events:
                    line = {"time": now, "stream": name, **msgspec.to_builtins(measured)}
                    await asyncio.to_thread(_append_line, path, msgspec.json.encode(line))
            if now - expired < EXPIRED_EVERY_S:
                continue
            expired = now
            for store in (*self._inputs.values(), *map(LogStore, self._outputs.values())):
                with suppress(OSError):  # the next request reports a full disk
                    await asyncio.to_thread(store.expire, now - self._options.retain, now - self._options.remember)


async def _finish(inputs: Mapping[str, Input], api: Api) -> None:
    """Have the requests under way answered: open the gates, as no more events will come that theirs could wait for."""
    for stream in inputs.values():
        stream.door.set_gate(TransferGate(stream.door.gate.batch_size))
    await api.stop()


def _told_to_stop(*, leash: bool) -> tuple[asyncio.Event, asyncio.Event]:
    """Return two flags: the first is set by a signal, or, on a leash, when stdin closes; the second by a further signal."""
    stop, at_once, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: (at_once if stop.is_set() else stop).set())

    def look_up() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            stop.set()

    if leash:
        loop.add_reader(0, look_up)
    return stop, at_once


def _check(topology: Topology, options: AdapterOptions) -> None:
    check_exposure(
        "the adapter", options.host, tokens=not options.access.open, secret=options.tls is not None or options.behind_proxy
    )
    limits = options.limits
    if limits.memory < LEAST_MEMORY or limits.held >= limits.memory:
        raise ConfigurationError(
            f"--max-memory {limits.memory} is too little: the adapter starts with some 100 MB, so give at least "
            f"{LEAST_MEMORY}, and more than --max-held ({limits.held})."
        )
    inputs, outputs = [source.name for source in topology.sources], list(outputs_of(topology))
    for name in (*options.kafka, *options.gates):
        if name in outputs and name not in inputs and name in options.gates:
            raise ConfigurationError(
                f"Stream {name} takes no events from clients, so it has no gate; there are gates for {', '.join(inputs)}."
            )
        if name not in inputs and name not in outputs:
            raise ConfigurationError(f"There is no such stream here as {name}; there are {', '.join((*inputs, *outputs))}.")
    for name, gate in options.gates.items():
        options.limits.check(name, gate.flush_timer)


def _append_line(path: Path, line: bytes) -> None:
    with suppress(OSError), path.open("ab") as file:
        file.write(line + b"\n")
