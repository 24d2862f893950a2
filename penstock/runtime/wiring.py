"""The wiring of a group: what each of its stages must know, such as codecs, the consumers of streams, and the sinks' files."""

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal

import msgspec

from penstock.app.earlier import EarlierForm
from penstock.app.element import Element
from penstock.app.loader import AppReference
from penstock.app.stream import Source
from penstock.app.topology import Topology
from penstock.kinds.event import Event
from penstock.runtime.codec import Codec
from penstock.runtime.compiling.function import CompiledFunction, compile_function
from penstock.runtime.compiling.source import NotCompiledError
from penstock.runtime.key import KeyReader
from penstock.runtime.key_columns import KeyColumns
from penstock.runtime.log import LogLevel
from penstock.runtime.output import SinkFiles, label
from penstock.runtime.partitioner import PRESENT, Partitioner
from penstock.runtime.together.reading import Reads, reads_of


class WiringReference(msgspec.Struct, frozen=True):
    """A serialisable description of a group's wiring, from which workers that can import the application make it."""

    application: AppReference
    elements: tuple[str, ...]
    hops: tuple[str, ...]
    """Streams that go to another group, each through a sink with the role of a hop."""
    sources: tuple[str, ...]
    """Sources that this group reads itself."""
    partitions: int
    sinks: tuple[SinkFiles, ...]
    on_error: Literal["dead-letter", "stop"]
    log_level: LogLevel = "info"
    """The lowest level of the elements' log records that are kept."""
    earlier: tuple[tuple[str, tuple[EarlierForm, ...]], ...] = ()
    """For elements that migrate state, the earlier forms in which it may be stored."""
    partitioner: Partitioner = PRESENT

    def resolve(self) -> "Wiring":
        """Return the wiring, which is made once per process."""
        return _resolve(self)


@lru_cache(maxsize=16)
def _resolve(reference: WiringReference) -> "Wiring":
    topology = reference.application.load().topology().subset(reference.elements, reference.hops, reference.sources)
    grouped = bool(reference.hops) or any(source.name not in reference.sources for source in topology.sources)
    return Wiring(
        topology,
        reference.partitions,
        reference.sinks,
        reference.on_error,
        dict(reference.earlier),
        reference.partitioner,
        grouped=grouped,
    )


class Wiring:
    """A topology made ready to be run in partitions.

    Args:
        topology: the application's topology, or the part of it that makes up a group.
        partitions: the number of partitions of each keyed hop.
        sinks: where each sink, and the dead letters, are staged.
        on_error: whether an event that fails becomes a dead letter, or stops the run.
        earlier: for elements that migrate state, the earlier forms in which it may be stored.
        partitioner: the rule by which integers that are keys are assigned to partitions.
        grouped: whether streams come from other groups, or go to them.
    """

    def __init__(
        self,
        topology: Topology,
        partitions: int,
        sinks: tuple[SinkFiles, ...],
        on_error: Literal["dead-letter", "stop"],
        earlier: Mapping[str, tuple[EarlierForm, ...]] | None = None,
        partitioner: Partitioner = PRESENT,
        *,
        grouped: bool = False,
    ) -> None:
        self.topology = topology
        self.grouped = grouped
        self.partitions = partitions
        self.sinks = sinks
        self.on_error = on_error
        self.earlier = earlier or {}
        self.hops = topology.hops
        self.keyed = [element for element in topology.elements if element.keyed]
        self.deliveries = [(element, stream) for element in self.keyed for stream in element.inputs]
        """The edges into keyed elements; `Block.target` is an index into this list."""
        self.targets = {edge: number for number, edge in enumerate(self.deliveries)}
        self.keys = {
            element.name: KeyReader(element.key, element.inputs[0].event_type, partitions, partitioner)
            for element in self.keyed
        }
        self._codecs: dict[type[Event], Codec] = {}
        self.key_columns = {
            element.name: KeyColumns(self.keys[element.name], element.key, self.codec(element.inputs[0].event_type))
            for element in self.keyed
            if element.dialect == "batch"
        }
        self.keyless = {
            stream: [element for element in topology.consumers(stream) if not element.keyed] for stream in topology.streams
        }
        self.keyed_by = {
            stream: [element for element in topology.consumers(stream) if element.keyed] for stream in topology.streams
        }
        self.compiles = True
        """Whether functions of the application are compiled from their source."""
        self._compiled: dict[str, CompiledFunction | None] = {}
        self._reads: dict[str, Reads | None] = {}
        self.sinks_of = {
            stream: [label(sink.name, "hop" if sink.hop else "sink") for sink in topology.sinks_of(stream)]
            for stream in topology.streams
        }

    def codec(self, event_type: type[Event]) -> Codec:
        """Return the codec of an event type, which is made once."""
        if event_type not in self._codecs:
            self._codecs[event_type] = Codec(event_type)
        return self._codecs[event_type]

    def compiled(self, element: Element) -> CompiledFunction | None:
        """Return the compiled function of a keyless element, which is made once; None where it runs as it is."""
        if element.name not in self._compiled:
            self._compiled[element.name] = None
            with suppress(NotCompiledError):
                self._compiled[element.name] = compile_function(element)
        return self._compiled[element.name] if self.compiles else None

    def reads(self, element: Element) -> Reads | None:
        """Return what a keyed element reads of its events, which is found once; None where it needs the events."""
        if element.name not in self._reads:
            self._reads[element.name] = None
            with suppress(NotCompiledError):
                self._reads[element.name] = reads_of(element, self.keys[element.name])
        return self._reads[element.name] if self.compiles else None

    def hop(self, number: int) -> list[Element]:
        """Return the keyed elements of a hop; hops are counted from 1."""
        return [element for element in self.keyed if self.topology.depths[element.name] == number]

    def source(self, name: str) -> Source[Any]:
        """Return a source by its name."""
        return next(source for source in self.topology.sources if source.name == name)
