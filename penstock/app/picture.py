"""A topology as an SVG picture: columns from the sources on the left to the sinks on the right.

An arrow that crosses a column has a place of its own there, so that it does not run behind a box. Arrows leave a box one below
the other. Each has its stream's name above its straight start, and bends only after the name.
"""

from collections import defaultdict
from html import escape
from typing import NamedTuple

from penstock.app.drawing import DrawnNode, Edge, nodes_and_edges
from penstock.app.topology import Topology

TITLE, NOTE, LABEL = 15, 12, 12
"""Sizes of text, in pixels."""
BOX_HEIGHT, PORT, PAD, MARGIN = 50, 20, 16, 16
BEND, GAP_Y, PASSING = 44, 22, 8
COLOURS = {"source": "#dbe9f8", "element": "#ffffff", "keyed": "#fbe9c6", "sink": "#dcefe0"}
KINDS = {"source": "source", "element": "element", "keyed": "element with an instance per key", "sink": "sink"}
INK, FAINT, LINE = "#1f2d3a", "#52606d", "#66788a"


class BoxPosition(NamedTuple):
    """The top left corner and the size of a box, in pixels."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def svg(topology: Topology) -> str:
    """Draw a topology as an SVG picture."""
    return drawn(*nodes_and_edges(topology.describe()), topology.application)


def drawn(nodes: list[DrawnNode], edges: list[Edge], application: str) -> str:
    """Draw boxes and arrows as an SVG picture; ``data-node`` and ``data-stream`` name the element or stream of each."""
    titles = {node.identity: node.title for node in nodes}
    edges = [edge if edge.label != titles[edge.start] else edge._replace(label="") for edge in edges]
    routes = _routes(nodes, _merged(edges))
    places = _placed(nodes, routes)
    boxes = {node.identity: places[node.identity] for node in nodes}
    legend_y = max(place.y + place.height for place in places.values()) + GAP_Y
    legend, legend_width = _legend({node.kind for node in nodes}, legend_y)
    width = round(max(max(place.x + place.width for place in boxes.values()), legend_width) + MARGIN)
    height = round(legend_y + 2 * LABEL + MARGIN / 2)
    groups = {node.identity: node.group for node in nodes}
    parts = [_arrows(routes, places, groups), *(_box(node, boxes[node.identity]) for node in nodes), legend]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, sans-serif">\n'
        f"<title>Topology of {escape(application)}</title>\n"
        '<rect width="100%" height="100%" fill="#ffffff"/>\n'
        '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="9" markerHeight="9" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L10 5 L0 10 z" fill="{LINE}"/></marker></defs>\n'
        f"{''.join(parts)}</svg>\n"
    )


class ArrowRoute(NamedTuple):
    """An arrow, and the names of its places in the columns that it crosses."""

    edge: Edge
    passing: tuple[str, ...]

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.edge.start, *self.passing, self.edge.end)


def _merged(edges: list[Edge]) -> list[Edge]:
    """Return one arrow for all streams between the same two boxes."""
    labels = defaultdict[tuple[str, str], list[str]](list)
    for edge in edges:
        labels[edge.start, edge.end].append(edge.label)
    return [Edge(start, end, ", ".join(names)) for (start, end), names in labels.items()]


def _routes(nodes: list[DrawnNode], edges: list[Edge]) -> list[ArrowRoute]:
    column = _columns(nodes, edges)
    return [
        ArrowRoute(edge, tuple(f"{edge.start}>{edge.end}>{at}" for at in range(column[edge.start] + 1, column[edge.end])))
        for edge in edges
    ]


def _columns(nodes: list[DrawnNode], edges: list[Edge]) -> dict[str, int]:
    """Return the column of each box: the length of the longest path to it."""
    column = {node.identity: 0 for node in nodes}
    for _ in nodes:
        for edge in edges:
            column[edge.end] = max(column[edge.end], column[edge.start] + 1)
    return column


def _placed(nodes: list[DrawnNode], routes: list[ArrowRoute]) -> dict[str, BoxPosition]:
    """Place boxes and crossing arrows; in a column they are sorted by the mean height of their feeders, so that few cross."""
    column = _columns(nodes, [route.edge for route in routes])
    column |= {name: column[route.edge.start] + 1 + i for route in routes for i, name in enumerate(route.passing)}
    sizes = {name: (0.0, float(PASSING)) for name in column} | {node.identity: _size(node, routes) for node in nodes}
    feeders = defaultdict[str, list[str]](list)
    for route in routes:
        for start, end in zip(route.stops, route.stops[1:], strict=False):
            feeders[end].append(start)
    stacks = [[name for name in column if column[name] == at] for at in range(max(column.values()) + 1)]
    tallest = max(sum(sizes[name][1] + GAP_Y for name in stack) for stack in stacks)
    places: dict[str, BoxPosition] = {}
    x = float(MARGIN)
    for stack in stacks:
        stack.sort(key=lambda name: sum(places[f].middle for f in feeders[name]) / max(1, len(feeders[name])))
        y = MARGIN + (tallest - sum(sizes[name][1] + GAP_Y for name in stack)) / 2
        widest = max(sizes[name][0] for name in stack)
        for name in stack:
            width, height = sizes[name]
            places[name] = BoxPosition(x, y, width or widest, height)
            y += height + GAP_Y
        # The arrows' names have to fit between the widest box of this column and the bend before the next.
        labels = [
            places[name].width + _width(route.edge.label, LABEL)
            for route in routes
            for name in stack
            if name == route.edge.start
        ]
        x += max([widest, *labels]) + PAD + BEND
    return places


def _size(node: DrawnNode, routes: list[ArrowRoute]) -> tuple[float, float]:
    leaving = len({route.edge.label for route in routes if route.edge.start == node.identity})
    wide = max(_width(node.title, TITLE), _width(node.note, NOTE))
    return wide + 2 * PAD, float(max(BOX_HEIGHT, PORT * leaving))


def _width(text: str, size: int) -> float:
    """Estimate the width of a text in a sans-serif font, rather too wide; pixels."""
    em = sum(0.34 if c in "iljtfr.,:;'|!()[] " else 0.95 if c in "mwMW@" else 0.74 if c.isupper() else 0.6 for c in text)
    return em * size


def _arrows(routes: list[ArrowRoute], places: dict[str, BoxPosition], groups: dict[str, str]) -> str:
    """Draw the arrows and their names; an arrow from one group to another is dashed."""
    by_box = defaultdict[str, list[ArrowRoute]](list)
    for route in routes:
        by_box[route.edge.start].append(route)
    leaving: dict[tuple[str, str], float] = {}
    for box, starting in by_box.items():  # a stream leaves its box at one place, however many consumers it has
        starting.sort(key=lambda route: places[route.stops[1]].middle)
        labels = list(dict.fromkeys(route.edge.label for route in starting))
        middle = places[box].middle
        leaving |= {(box, label): middle + PORT * (i - (len(labels) - 1) / 2) for i, label in enumerate(labels)}
    # Each path runs straight past its name, then bends to each column that it crosses, and to the end.
    lines = []
    for route in routes:
        start, end = places[route.edge.start], places[route.edge.end]
        y = leaving[route.edge.start, route.edge.label]
        bends = start.x + start.width + _width(route.edge.label, LABEL) + PAD / 2
        path = f"M{start.x + start.width:.0f} {y:.0f} H{bends:.0f}"
        for name in route.passing:
            path += _curve(bends, y, places[name].x, places[name].middle) + f" h{places[name].width:.0f}"
            bends, y = places[name].x + places[name].width, places[name].middle
        path += _curve(bends, y, end.x - 1, end.middle)
        from_group, to_group = groups[route.edge.start], groups[route.edge.end]
        hop = ' stroke-dasharray="6 4"' if from_group and to_group and from_group != to_group else ""
        lines.append(
            f'<path d="{path}"{hop} data-stream="{escape(route.edge.label)}" fill="none" stroke="{LINE}" stroke-width="1.5" '
            'marker-end="url(#tip)"/>\n'
        )
    for (box, label), y in leaving.items():
        x = places[box].x + places[box].width + PAD / 4
        lines.append(
            f'<text x="{x:.0f}" y="{y - 5:.0f}" data-stream="{escape(label)}" font-size="{LABEL}" '
            f'fill="{INK}">{escape(label)}</text>\n'
        )
    return "".join(lines)


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    middle = (x1 + x2) / 2
    return f" C{middle:.0f} {y1:.0f} {middle:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"


def _box(node: DrawnNode, place: BoxPosition) -> str:
    x, middle = place.x + place.width / 2, place.middle
    text = f'<text x="{x:.0f}" text-anchor="middle"'
    group = (
        f'<text x="{place.x:.0f}" y="{place.y - 4:.0f}" font-size="{NOTE}" fill="{FAINT}">{escape(node.group)}</text>\n'
        if node.group
        else ""
    )
    return (
        f'<g data-node="{escape(node.identity)}" class="{node.kind}">{_shape(node.kind, place)}\n{text} y="{middle - 3:.0f}" '
        f'font-size="{TITLE}" fill="{INK}">{escape(node.title)}</text>\n{text} y="{middle + 16:.0f}" font-size="{NOTE}" '
        f'fill="{FAINT}">{escape(node.note)}</text>{group}</g>\n'
    )


def _shape(kind: str, place: BoxPosition) -> str:
    round_by = {"source": place.height / 2, "sink": 8}.get(kind, 2)
    return (
        f'<rect x="{place.x:.0f}" y="{place.y:.0f}" width="{place.width:.0f}" height="{place.height:.0f}" rx="{round_by:.0f}" '
        f'fill="{COLOURS[kind]}" stroke="{INK}"/>'
    )


def _legend(kinds: set[str], y: float) -> tuple[str, float]:
    """Draw a legend of the shapes; returns it with the x of its right end."""
    x, parts = float(MARGIN), []
    for kind, meaning in KINDS.items():
        if kind in kinds:
            shape = f'<g class="{kind}">{_shape(kind, BoxPosition(x, y, 24, 14))}</g>'
            parts.append(
                f'{shape}<text x="{x + 30:.0f}" y="{y + 12:.0f}" font-size="{NOTE}" fill="{FAINT}">{escape(meaning)}</text>\n'
            )
            x += 30 + _width(meaning, NOTE) + PAD
    return "".join(parts), x
