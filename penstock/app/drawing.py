"""A topology as boxes and arrows, and as a Mermaid flowchart of them."""

from typing import NamedTuple

from penstock.app.description import Description
from penstock.app.topology import Topology


class DrawnNode(NamedTuple):
    """A box of the drawing; ``group`` names the query that an element runs in, or is empty if that is not shown."""

    identity: str
    kind: str
    title: str
    note: str
    group: str = ""


class Edge(NamedTuple):
    """An arrow of the drawing, labelled with the stream it carries."""

    start: str
    end: str
    label: str


def nodes_and_edges(topology: Description) -> tuple[list[DrawnNode], list[Edge]]:
    """Return a box for each source, element and sink, and an arrow for each stream between two of them."""
    elements, sinks = topology.elements, topology.sinks
    nodes = [DrawnNode(f"source_{source.name}", "source", source.name, source.event) for source in topology.sources]
    for element in elements:
        note = f"key: {', '.join(element.key)}" if element.key else element.dialect
        note += f"; {element.note}" if element.note else ""
        nodes.append(DrawnNode(f"element_{element.name}", "keyed" if element.key else "element", element.name, note))
    nodes += [DrawnNode(f"sink_{sink.name}", "sink", sink.name, "sink") for sink in sinks]
    edges = []
    for stream in topology.streams:
        makers = [f"element_{element.name}" for element in elements if stream.name in element.emits]
        ends = [f"element_{element.name}" for element in elements if stream.name in element.inputs]
        ends += [f"sink_{sink.name}" for sink in sinks if sink.stream == stream.name]
        starts = [f"source_{stream.name}"] if stream.source else makers
        edges += [Edge(start, end, stream.name) for start in starts for end in ends]
    return nodes, edges


def mermaid(topology: Topology) -> str:
    """Return a topology as a Mermaid flowchart."""
    nodes, edges = nodes_and_edges(topology.describe())
    shape = {"source": ("([", "])"), "sink": ("[(", ")]"), "element": ("[", "]"), "keyed": ("[[", "]]")}
    lines = ["flowchart LR"]
    for node in nodes:
        opening, closing = shape[node.kind]
        lines.append(f'    {_safe(node.identity)}{opening}"{node.title}<br/><small>{node.note}</small>"{closing}')
    lines += [f"    {_safe(edge.start)} -->|{edge.label}| {_safe(edge.end)}" for edge in edges]
    return "\n".join(lines) + "\n"


def _safe(identity: str) -> str:
    return identity.replace("-", "_").replace(".", "_")
