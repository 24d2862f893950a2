"""The topology: the directed acyclic graph of elements and streams, checked before a run."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from penstock.app.description import Description, ElementDescription, EventTimeDescription, SinkDescription, StreamDescription
from penstock.app.element import Element, check_cases
from penstock.app.spelling import check_name
from penstock.app.stream import Sink, Source, Stream
from penstock.errors import CyclicTopologyError, TopologyError
from penstock.kinds.event import field_types


@dataclass(frozen=True)
class Topology:
    """Sources, streams, elements and sinks that fit together.

    Raises:
        TopologyError: for example two elements of one name, a stream that nothing feeds, or a key that is not a field.
        CyclicTopologyError: the elements form a cycle; the text names them.
    """

    application: str
    streams: tuple[Stream[Any], ...]
    elements: tuple[Element, ...]
    sinks: tuple[Sink, ...]

    def __post_init__(self) -> None:
        _check_names("element", [element.name for element in self.elements])
        _check_names("stream", [stream.name for stream in self.streams])
        _check_names("sink", [sink.name for sink in self.sinks if not sink.hop])
        if not self.sources:
            raise TopologyError(f"Application {self.application} has no source: declare one with app.source(...).")
        if not self.elements and not self.sinks:
            raise TopologyError(f"Application {self.application} has no element: declare one with @app.element(...).")
        for element in self.elements:
            self._check_element(element)
            self._check_window(element)
            if element.dialect == "query":
                check_cases(element)
        for sink in self.sinks:
            self._check_known(sink.stream, f"Sink {sink.name}")
            for field in sink.key:
                if field not in field_types(sink.stream.event_type):
                    raise TopologyError(
                        f"Sink {sink.name} has the key {field!r}, which is no field of {sink.stream.event_type.__name__}."
                    )
        self._check_cycles()
        self._check_fed()

    @cached_property
    def sources(self) -> tuple[Source[Any], ...]:
        """The streams whose events come from outside."""
        return tuple(stream for stream in self.streams if isinstance(stream, Source))

    @cached_property
    def _by_name(self) -> dict[str, Element]:
        return {element.name: element for element in self.elements}

    def element(self, name: str) -> Element:
        """Return the element of a name."""
        return self._by_name[name]

    def stream(self, name: str) -> Stream[Any]:
        """Return the stream of a name."""
        return next(stream for stream in self.streams if stream.name == name)

    def consumers(self, stream: Stream[Any]) -> tuple[Element, ...]:
        """Return the elements that consume a stream, in the order of declaration."""
        return tuple(element for element in self.elements if stream in element.inputs)

    def producers(self, stream: Stream[Any]) -> tuple[Element, ...]:
        """Return the elements that emit into a stream, in the order of declaration."""
        return tuple(element for element in self.elements if stream in element.emits)

    def sinks_of(self, stream: Stream[Any]) -> tuple[Sink, ...]:
        """Return the sinks that write a stream."""
        return tuple(sink for sink in self.sinks if sink.stream is stream)

    @cached_property
    def depths(self) -> dict[str, int]:
        """The number of keyed hops up to each element, itself included, by element name.

        A keyless element of depth d runs in the tasks of hop d, fused behind its keyed elements, or with 0 behind the source.
        """
        depth: dict[str, int] = {}
        for element in self.in_order:
            before = (depth[producer.name] for stream in element.inputs for producer in self.producers(stream))
            depth[element.name] = max(before, default=0) + element.keyed
        return depth

    @property
    def hops(self) -> int:
        """The greatest number of keyed hops on a path through the topology."""
        return max((self.depths[element.name] for element in self.elements if element.keyed), default=0)

    @property
    def in_order(self) -> tuple[Element, ...]:
        """The elements in topological order: each after those that feed it."""
        return tuple(map(self.element, self._order))

    @cached_property
    def _order(self) -> tuple[str, ...]:
        before = {
            element.name: [producer.name for stream in element.inputs for producer in self.producers(stream)]
            for element in self.elements
        }
        return tuple(TopologicalSorter(before).static_order())

    def subset(self, names: Iterable[str], hops: Iterable[str], sources: Iterable[str]) -> "Topology":
        """Return the part of this topology that consists of some of its elements.

        Args:
            names: the elements of the part.
            hops: streams of the part that another part consumes; each gets a sink of its name that is a hop.
            sources: the sources that the part reads itself, or counts.

        A stream that another part produces or reads becomes a source of this part.
        """
        chosen, leaving, owned = set(names), set(hops), set(sources)
        inside = tuple(element for element in self.elements if element.name in chosen)
        made = {stream for element in inside for stream in element.emits}
        read = {stream for element in inside for stream in element.inputs}
        present: dict[Stream[Any], Stream[Any]] = {}
        for stream in self.streams:
            if stream in made or (isinstance(stream, Source) and stream.name in owned):
                present[stream] = stream
            elif stream in read or stream.name in owned:
                entering = Source(stream.name, stream.event_type)
                entering.event_time = stream.event_time if isinstance(stream, Source) else None
                present[stream] = entering
        sinks = tuple(sink for sink in self.sinks if present.get(sink.stream) is sink.stream)
        away = tuple(Sink(stream.name, stream, None, hop=True) for stream in present.values() if stream.name in leaving)
        return Topology(
            self.application,
            tuple(present.values()),
            tuple(replace(element, inputs=tuple(present[stream] for stream in element.inputs)) for element in inside),
            (*sinks, *away),
        )

    def describe(self) -> Description:
        """Return the topology as plain data, for recordings and drawings."""
        return Description(
            self.application,
            [
                StreamDescription(
                    stream.name,
                    stream.event_type.__name__,
                    {name: _spell(kind) for name, kind in field_types(stream.event_type).items()},
                    isinstance(stream, Source),
                    _event_time(stream),
                )
                for stream in self.streams
            ],
            [
                ElementDescription(
                    element.name,
                    element.dialect,
                    list(element.key),
                    [stream.name for stream in element.inputs],
                    [stream.name for stream in element.emits],
                    self.depths[element.name],
                    element.every,
                    element.expires,
                    element.timers,
                    element.note,
                )
                for element in self.elements
            ],
            [SinkDescription(sink.name, sink.stream.name) for sink in self.sinks],
        )

    def to_json(self) -> dict[str, Any]:
        """Return the description in the types of JSON, for other tools."""
        described: dict[str, Any] = msgspec.to_builtins(self.describe())
        return described

    def _check_element(self, element: Element) -> None:
        for stream in (*element.inputs, *element.emits):
            self._check_known(stream, f"Element {element.name}")
        for stream in element.emits:
            if isinstance(stream, Source):
                raise TopologyError(
                    f"Element {element.name} emits into {stream.name}, which is a source: only the outside feeds a "
                    "source; declare another stream with app.stream(...)."
                )
        for stream in element.inputs:
            fields = stream.event_type.__struct_fields__
            for part in element.key:
                if part not in fields:
                    raise TopologyError(
                        f"Element {element.name} is keyed by {part!r}, but {stream.event_type.__name__} (stream "
                        f"{stream.name}) has only {', '.join(fields)}."
                    )

        kinds = {tuple(field_types(stream.event_type)[part] for part in element.key): stream.name for stream in element.inputs}
        if len(kinds) > 1:
            raise TopologyError(
                f"Element {element.name} is keyed by {', '.join(element.key)}, whose types differ between the streams "
                f"{', '.join(kinds.values())}: give them the same types."
            )

    def _check_window(self, element: Element) -> None:
        timed = [source.event_time for source in self.sources if source.event_time is not None]
        if element.waits_for_watermark and not timed:
            raise TopologyError(
                f"Element {element.name} ({element.note or 'timers on event time'}) waits for a watermark, which would never "
                "come: declare a source with event_time='field'."
            )
        if element.judges_lateness and any(event_time.late == "process" for event_time in timed):
            longer = ", and keep its windows for longer, as allowed='1 minute'" if element.window is not None else ""
            raise TopologyError(
                f"Element {element.name} ({element.note}) cannot process late events, as a source with late='process' asks: "
                f"set late='dead-letter' or 'drop'{longer}."
            )

    def _check_known(self, stream: Stream[Any], who: str) -> None:
        if stream not in self.streams:
            known = ", ".join(known.name for known in self.streams)
            raise TopologyError(
                f"{who} names stream {stream.name}, which is not of application {self.application}; its streams are {known}."
            )

    def _check_cycles(self) -> None:
        try:
            self._order  # noqa: B018 - computing it is the check
        except CycleError as error:
            path = " -> ".join(reversed(error.args[1]))
            raise CyclicTopologyError(
                f"The elements {path} form a cycle; a topology is acyclic: break it by emitting into a stream that "
                "none of them listens to."
            ) from None

    def _check_fed(self) -> None:
        for stream in self.streams:
            used = self.consumers(stream) or self.sinks_of(stream)
            if not used and isinstance(stream, Source):
                raise TopologyError(f"Nothing listens to source {stream.name}: add an element or a sink for it, or drop it.")
            if used and not isinstance(stream, Source) and not self.producers(stream):
                reader = used[0].name
                raise TopologyError(
                    f"Stream {stream.name}, which {reader} listens to, is fed by no element and is no source: add it to "
                    "an element's emits=, or declare it with app.source(...)."
                )


def _check_names(kind: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise TopologyError(f"Two {kind}s are named {name}: give one of them another name=.")
        check_name(kind, name)


def _event_time(stream: Stream[Any]) -> EventTimeDescription | None:
    own = stream.event_time if isinstance(stream, Source) else None
    return None if own is None else EventTimeDescription(own.field, own.lateness, own.late, own.idle)


def _spell(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")
