"""Drawings of a topology: Mermaid for documents, SVG for people."""

from collections.abc import Iterable
from html import escape
from typing import Any, NamedTuple

from penstock.app.stream import Source, Stream
from penstock.app.topology import Topology

BOX_WIDTH, BOX_HEIGHT = 170, 46
GAP_X, GAP_Y, MARGIN = 140, 28, 24
COLOURS = {"source": "#e8f1fb", "element": "#ffffff", "keyed": "#fdf3dc", "sink": "#e9f6ec"}
INK, FAINT = "#23313f", "#7b8a99"


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


def svg(topology: Topology) -> str:
    """The topology as an SVG picture: columns from the sources on the left to the sinks on the right."""
    nodes, edges = nodes_and_edges(topology)
    column = _columns(nodes, edges)
    position = _positions(nodes, edges, column)
    width = MARGIN * 2 + (max(column.values()) + 1) * (BOX_WIDTH + GAP_X) - GAP_X
    height = MARGIN + max(y for _, y in position.values()) + BOX_HEIGHT
    arrows = "".join(_arrow(edge, position) for edge in _merged(edges))
    boxes = "".join(_box(node, *position[node.identity]) for node in nodes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, sans-serif">\n'
        f"<title>Topology of {escape(topology.application)}</title>\n"
        '<rect width="100%" height="100%" fill="#ffffff"/>\n'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{FAINT}"/></marker></defs>\n{arrows}{boxes}</svg>\n'
    )


def _columns(nodes: list[Node], edges: list[Edge]) -> dict[str, int]:
    """The longest path from a source to each box."""
    column = {node.identity: 0 for node in nodes}
    for _ in nodes:
        for edge in edges:
            column[edge.end] = max(column[edge.end], column[edge.start] + 1)
    return column


def _positions(nodes: list[Node], edges: list[Edge], column: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Rows within columns follow the mean row of what feeds them, so that arrows seldom cross."""
    row: dict[str, float] = {}
    position: dict[str, tuple[int, int]] = {}
    tallest = max(sum(column[node.identity] == c for node in nodes) for c in set(column.values()))
    for place in sorted(set(column.values())):
        here = [node.identity for node in nodes if column[node.identity] == place]
        feeders = {identity: [row[e.start] for e in edges if e.end == identity and e.start in row] for identity in here}
        here.sort(key=lambda identity: sum(feeders[identity]) / len(feeders[identity]) if feeders[identity] else 0)
        offset = (tallest - len(here)) / 2
        for index, identity in enumerate(here):
            row[identity] = offset + index
            x = MARGIN + place * (BOX_WIDTH + GAP_X)
            position[identity] = (x, round(MARGIN + row[identity] * (BOX_HEIGHT + GAP_Y)))
    return position


def _merged(edges: list[Edge]) -> list[Edge]:
    """One arrow for all streams between the same two boxes."""
    labels: dict[tuple[str, str], list[str]] = {}
    for edge in edges:
        labels.setdefault((edge.start, edge.end), []).append(edge.label)
    return [Edge(start, end, ", ".join(names)) for (start, end), names in labels.items()]


def _arrow(edge: Edge, position: dict[str, tuple[int, int]]) -> str:
    (x1, y1), (x2, y2) = position[edge.start], position[edge.end]
    x1, y1, y2 = x1 + BOX_WIDTH, y1 + BOX_HEIGHT // 2, y2 + BOX_HEIGHT // 2
    bend = GAP_X // 2
    place = f'x="{(x1 + x2) // 2}" y="{(y1 + y2) // 2 - 5}" font-size="11" text-anchor="middle"'
    label = escape(edge.label)
    return (
        f'<path d="M{x1} {y1} C{x1 + bend} {y1} {x2 - bend} {y2} {x2 - 2} {y2}" fill="none" stroke="{FAINT}" '
        'stroke-width="1.4" marker-end="url(#tip)"/>\n'
        f'<text {place} stroke="#ffffff" stroke-width="4">{label}</text>\n'
        f'<text {place} fill="{INK}">{label}</text>\n'
    )


def _box(node: Node, x: int, y: int) -> str:
    round_by = {"source": 23, "sink": 6}.get(node.kind, 3)
    middle = x + BOX_WIDTH // 2
    return (
        f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="{round_by}" fill="{COLOURS[node.kind]}" '
        f'stroke="{INK}"/>\n'
        f'<text x="{middle}" y="{y + 20}" font-size="13" fill="{INK}" text-anchor="middle">{escape(node.title)}</text>\n'
        f'<text x="{middle}" y="{y + 36}" font-size="11" fill="{FAINT}" text-anchor="middle">{escape(node.note)}</text>\n'
    )
