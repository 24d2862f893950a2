"""The wiring of a group: what every stage of it must know: codecs, who listens to what, where sinks lie."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from penstock.app.earlier import EarlierForm
from penstock.app.element import Element
from penstock.app.loader import AppReference
from penstock.app.stream import Source, Stream
from penstock.app.topology import Topology
from penstock.kinds.event import Event
from penstock.runtime.codec import Codec
from penstock.runtime.key import KeyReader
from penstock.runtime.key_columns import KeyColumns
from penstock.runtime.log import LogLevel
from penstock.runtime.output import SinkFiles, label


class WiringReference(msgspec.Struct, frozen=True):
    """How a worker that can import the application gets the wiring of a group."""

    application: AppReference
    elements: tuple[str, ...]
    hops: tuple[str, ...]
    """Streams that leave for another group, each at a sink that is a hop."""
    sources: tuple[str, ...]
    """Sources that the group reads itself."""
    partitions: int
    sinks: tuple[SinkFiles, ...]
    on_error: Literal["dead-letter", "stop"]
    log_level: LogLevel = "info"
    """The least that is kept of what elements log."""
    earlier: tuple[tuple[str, tuple[EarlierForm, ...]], ...] = ()
    """Of elements that migrate state, the forms in which it may lie."""

    def resolve(self) -> "Wiring":
        """The wiring, made once a process."""
        return _resolve(self)


@lru_cache(maxsize=16)
def _resolve(reference: WiringReference) -> "Wiring":
    topology = reference.application.load().topology().subset(reference.elements, reference.hops, reference.sources)
    return Wiring(topology, reference.partitions, reference.sinks, reference.on_error, dict(reference.earlier))


class Wiring:
    """A topology made ready to be run in partitions.

    Parameters
    ----------
    topology: all of it in one group, or the part that makes up a group.
    partitions: in how many partitions each keyed hop is divided.
    sinks: where each sink of the topology lies, and the dead letters.
    on_error: what becomes of an event that fails.
    earlier: of elements that migrate state, the forms in which it may lie.
    """

    def __init__(
        self,
        topology: Topology,
        partitions: int,
        sinks: tuple[SinkFiles, ...],
        on_error: Literal["dead-letter", "stop"],
        earlier: Mapping[str, tuple[EarlierForm, ...]] | None = None,
    ) -> None:
        self.topology = topology
        self.partitions = partitions
        self.sinks = sinks
        self.on_error = on_error
        self.earlier = earlier or {}
        self.hops = topology.hops
        self.keyed = [element for element in topology.elements if element.keyed]
        self.deliveries = [(element, stream) for element in self.keyed for stream in element.inputs]
        """The edges into keyed elements; a row's target on the wire is an index into them."""
        self.targets = {edge: number for number, edge in enumerate(self.deliveries)}
        self.keys = {element.name: KeyReader(element.key, element.inputs[0].event_type, partitions) for element in self.keyed}
        self._codecs: dict[type[Event], Codec] = {}
        self.key_columns = {
            element.name: KeyColumns(self.keys[element.name], element.key, self.codec(element.inputs[0].event_type))
            for element in self.keyed
            if element.dialect == "batch"
        }
        self._keyless = {
            stream: [element for element in topology.consumers(stream) if not element.keyed] for stream in topology.streams
        }
        self._keyed = {
            stream: [element for element in topology.consumers(stream) if element.keyed] for stream in topology.streams
        }
        self._sinks_of = {
            stream: [label(sink.name, "hop" if sink.hop else "sink") for sink in topology.sinks_of(stream)]
            for stream in topology.streams
        }

    def codec(self, event_type: type[Event]) -> Codec:
        """The codec of an event type, made once."""
        if event_type not in self._codecs:
            self._codecs[event_type] = Codec(event_type)
        return self._codecs[event_type]

    def keyless(self, stream: Stream[Any]) -> list[Element]:
        """Elements that handle a stream on the spot."""
        return self._keyless[stream]

    def keyed_by(self, stream: Stream[Any]) -> list[Element]:
        """Elements to which a stream is sent by key."""
        return self._keyed[stream]

    def sinks_of(self, stream: Stream[Any]) -> list[str]:
        """Labels of the sinks at which a stream leaves."""
        return self._sinks_of[stream]

    def hop(self, number: int) -> list[Element]:
        """The keyed elements whose containers make up a hop, counted from 1."""
        return [element for element in self.keyed if self.topology.depths[element.name] == number]

    def source(self, name: str) -> Source[Any]:
        """The source of a name."""
        return next(source for source in self.topology.sources if source.name == name)
