"""A topology as boxes and arrows, and as a Mermaid flowchart of them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.app.stream import Source, Stream
from penstock.app.topology import Topology


class Node(NamedTuple):
    """A box of the drawing."""

    identity: str
    kind: str
    title: str
    note: str


class Edge(NamedTuple):
    """An arrow of the drawing, labelled with the stream it carries."""

    start: str
    end: str
    label: str


def nodes_and_edges(topology: Topology) -> tuple[list[Node], list[Edge]]:
    """Boxes for sources, elements and sinks; arrows for the streams between them."""
    nodes = [Node(f"source_{s.name}", "source", s.name, s.event_type.__name__) for s in topology.sources]
    for element in topology.elements:
        note = f"key: {', '.join(element.key)}" if element.keyed else element.dialect
        note += f"; {element.note}" if element.note else ""
        nodes.append(Node(f"element_{element.name}", "keyed" if element.keyed else "element", element.name, note))
    nodes += [Node(f"sink_{sink.name}", "sink", sink.name, "sink") for sink in topology.sinks]
    edges = []
    for stream in topology.streams:
        ends = [f"element_{element.name}" for element in topology.consumers(stream)]
        ends += [f"sink_{sink.name}" for sink in topology.sinks_of(stream)]
        edges += [Edge(start, end, stream.name) for start in _starts(topology, stream) for end in ends]
    return nodes, edges


def _starts(topology: Topology, stream: Stream[Any]) -> Iterable[str]:
    if isinstance(stream, Source):
        return [f"source_{stream.name}"]
    return [f"element_{producer.name}" for producer in topology.producers(stream)]


def mermaid(topology: Topology) -> str:
    """The topology as a Mermaid flowchart."""
    nodes, edges = nodes_and_edges(topology)
    shape = {"source": ("([", "])"), "sink": ("[(", ")]"), "element": ("[", "]"), "keyed": ("[[", "]]")}
    lines = ["flowchart LR"]
    for node in nodes:
        opening, closing = shape[node.kind]
        lines.append(f'    {_safe(node.identity)}{opening}"{node.title}<br/><small>{node.note}</small>"{closing}')
    lines += [f"    {_safe(edge.start)} -->|{edge.label}| {_safe(edge.end)}" for edge in edges]
    return "\n".join(lines) + "\n"


def _safe(identity: str) -> str:
    return identity.replace("-", "_").replace(".", "_")
