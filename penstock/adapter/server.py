"""The adapter as a process: opens the streams' stores, serves the API, and stops without losing what it holds."""

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
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvloop

from penstock.adapter.api import Api
from penstock.adapter.metrics import Metrics
from penstock.adapter.store import LogStore, Store
from penstock.adapter.streams import Input, Limits, Output, outputs_of
from penstock.app.topology import Topology
from penstock.connectors.kafka.place import KafkaPlace
from penstock.connectors.log.log import EventLog
from penstock.errors import ConfigurationError
from penstock.runs.gate import Gate
from penstock.web.access import Access
from penstock.web.exposure import LOOPBACK, check_exposure
from penstock.web.guard import Guard
from penstock.web.server import Certificate, Port, Server

if TYPE_CHECKING:
    from penstock.adapter.mirror import KafkaMirror

PORT = 8470
LARGEST_MESSAGE = 950_000
"""Bytes of an event that fits into a message by Kafka's own settings."""
LEAST_MEMORY = 160 << 20
"""Bytes below which the adapter could do nothing: it starts with some 100 MB."""
GRACE_S = 10
"""How long what is under way may take when the adapter is told to stop."""
ANSWERED_WITHIN_S = 0.5
"""How long the requests take to be answered that are given up then."""
SWITCH_S = 0.0002
"""How long the loop may keep a thread that has come back from the disk waiting; Python's own 5 ms outlast a transfer."""
KAFKA_NAMES = "kafka-names"
"""The directory of the spool in which the names of events are noted that topics hold."""
NOTED_EVERY_S = 10.0
"""How often the arrivals are written down."""
EXPIRED_EVERY_S = 600.0
"""How often old events and ids are forgotten, for which all ids are looked through."""


@dataclass(frozen=True)
class AdapterOptions:
    """Options of an adapter.

    Parameters
    ----------
    spool: the directory of the embedded log.
    kafka: for each stream that is a Kafka topic where that is; the others are in the spool.
    host, port: where to listen.
    tls: what TLS is served with, if it is.
    behind_proxy: whether a proxy on the way keeps what is sent secret.
    access: who may do what.
    limits: what one client may ask.
    gates: by stream; the others get the default gate.
    retain: seconds for which events that every reader has passed are kept.
    remember: seconds for which ids are known.
    origins: web origins whose pages may use the API.
    hosts: names by which the adapter may be asked without tokens, besides addresses and ``host``.
    leash: whether to stop when standard input closes, as it does when the parent dies.
    """

    spool: Path
    kafka: Mapping[str, KafkaPlace] = field(default_factory=dict)
    host: str = LOOPBACK
    port: int = PORT
    tls: Certificate | None = None
    behind_proxy: bool = False
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    gates: Mapping[str, Gate] = field(default_factory=dict)
    retain: float = 7 * 86400.0
    remember: float = 86400.0
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    leash: bool = False

    @property
    def url(self) -> str:
        """Where clients find it."""
        return f"{'http' if self.tls is None else 'https'}://{self.host}:{self.port}"


class Adapter:
    """The door of one application.

    Raises
    ------
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
        """Serve until a signal says to stop; then answer what is under way, and end.

        Parameters
        ----------
        ready: called when requests are taken.
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
                options.gates.get(source.name, Gate()),
                self._limits(source.name),
                metrics,
            )
            for source in self._topology.sources
        }
        outputs = {
            name: Output(name, event_type, LogStore(self._outputs[name]), key)
            for name, (event_type, key) in outputs_of(self._topology).items()
        }
        guard = Guard(options.access, (options.host, *options.hosts), options.origins)
        api = Api(self._topology.application, inputs, outputs, guard, options.limits, metrics, options.origins)
        told, at_once = _told_to_stop(leash=options.leash)
        mirrors = [threading.Thread(target=mirror.run, daemon=True) for mirror in self._mirrors]
        for thread in mirrors:
            thread.start()
        besides = [asyncio.create_task(self._keep_up(inputs)), asyncio.create_task(api.sockets.make_room())]
        self._port.open()
        ready()
        try:
            server = Server(api.application, self._port, options.tls)
            if not await server.serve(told, api.stop, GRACE_S, at_once):
                for stream in inputs.values():
                    stream.door.give_up("The adapter stops before the store has answered.")
                await asyncio.sleep(ANSWERED_WITHIN_S)
        finally:
            for task in besides:
                task.cancel()
            for stream in inputs.values():
                await stream.door.close(GRACE_S)
                stream.store.close()
            for mirror in self._mirrors:
                mirror.stop()
            for thread in mirrors:
                await asyncio.to_thread(thread.join, GRACE_S)
            self._spool.close()
            self._names_in_kafka.close()

    async def _keep_up(self, inputs: Mapping[str, Input]) -> None:
        """Note how events arrive, for the planner, and let go of old ones."""
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
                with suppress(OSError):  # a full disk is for the next request to complain of
                    await asyncio.to_thread(store.expire, now - self._options.retain, now - self._options.remember)


def _told_to_stop(*, leash: bool) -> tuple[asyncio.Event, asyncio.Event]:
    """The first is set when a signal comes, or standard input closes on a leash; the second when another signal comes."""
    told, at_once, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: (at_once if told.is_set() else told).set())

    def look_up() -> None:
        if not os.read(0, 1024):
            loop.remove_reader(0)
            told.set()

    if leash:
        loop.add_reader(0, look_up)
    return told, at_once


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
        if name not in inputs and (name not in outputs or name in options.gates):
            raise ConfigurationError(f"There is no such stream here as {name}; there are {', '.join((*inputs, *outputs))}.")
    for name, gate in options.gates.items():
        options.limits.check(name, gate.flush_timer)


def _append_line(path: Path, line: bytes) -> None:
    with suppress(OSError), path.open("ab") as file:
        file.write(line + b"\n")
