"""Pictures of a graph, with resources as colours and the worst path marked, and of a decomposition tree."""

import itertools
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from penstock.allocation.allocation import Allocation
from penstock.allocation.graph import StreamGraph, Task
from penstock.allocation.series_parallel import SpdTree
from penstock.errors import ConfigurationError, SinkError

INK, LINE = "#1f2d3a", "#8a949e"
PALETTE = ("#a6cee3", "#fdd49e", "#b8dfb0", "#e5c3e8", "#f4e285", "#f6b5a7", "#cfd6de", "#9fd8d0")
"""Light colours that colour-blind readers tell apart in this order; more resources repeat them."""
STYLE: Any = {"svg.hashsalt": "penstock", "text.parse_math": False}  # equal data makes equal files; a $ is not markup
LEGIBLE = 60
"""Most tasks of a graph whose tasks are all named; in a larger one, only those of the worst path are."""
FONT, CHARACTER = 9, 0.078
"""Size of the text in points, and the approximate width of a character in inches."""
LEGEND_ENTRY = 2.2
"""Width of a legend's entry in inches."""


@matplotlib.rc_context(STYLE)
def draw_graph(path: Path, graph: StreamGraph, allocation: Allocation | None = None) -> None:
    """Write a picture of a graph, tasks in columns from sources to sinks, to ``path``, which ends in .svg or .png.

    With an allocation, tasks have the colour of their resource and show their cost on it, the worst path has thick lines,
    and transfers between resources are labelled with their cost; transfers within a resource are dotted.

    Raises:
        ConfigurationError: the path has another ending.
        SinkError: the file cannot be written.
    """
    place = _layout(graph)
    texts = {task: f"{task}\n{_cost(graph, allocation, task)}" for task in graph.tasks}
    if len(graph.tasks) > LEGIBLE:
        named = set() if allocation is None else set(allocation.worst_path)
        texts = {task: text if task in named else "" for task, text in texts.items()}
    widest = max(max(map(len, text.split("\n"))) for text in texts.values())
    columns, rows = (int(max(position[axis] for position in place.values())) + 1 for axis in (0, 1))
    across = (0.7 if len(graph.tasks) <= LEGIBLE else 0.3) + CHARACTER * widest
    height = 0.75 if len(graph.tasks) <= LEGIBLE else 0.3
    figure = Figure(
        figsize=(min(40, max(9, 0.4 + across * columns)), min(40, max(2.6, 1.2 + height * rows))), layout="constrained"
    )
    axes = figure.subplots()
    colour = {} if allocation is None else colours(allocation)
    worst = () if allocation is None else allocation.worst_path
    boxes = {}
    for task, (x, y) in place.items():
        fill = "#eef1f5" if allocation is None else colour[allocation.assignment[task]]
        outline = {"edgecolor": INK, "linewidth": 2.6 if task in worst else 0.7}
        if texts[task]:
            box = {"boxstyle": "round,pad=0.35", "facecolor": fill, **outline}
            boxes[task] = axes.text(x, -y, texts[task], ha="center", va="center", fontsize=FONT, color=INK, bbox=box, zorder=3)
        else:
            axes.plot(x, -y, "o", markersize=9, markerfacecolor=fill, markeredgecolor=INK, markeredgewidth=0.7, zorder=2)
    _frame(axes, columns, rows)
    figure.canvas.draw()  # computes the sizes of the boxes, at which the arrows end
    path_steps = set(itertools.pairwise(worst))
    for (start, end), cost in graph.transfers.items():
        moved = allocation is None or allocation.assignment[start] != allocation.assignment[end]
        label = f"{cost:.3g}" if moved and len(graph.tasks) <= LEGIBLE else ""
        patches = {side: boxes[task].get_bbox_patch() for side, task in (("patchA", start), ("patchB", end)) if task in boxes}
        _arrow(axes, place[start], place[end], (start, end) in path_steps, moved, label, patches)
    if allocation is not None:
        _legend(figure, axes, allocation, colour)
        axes.set_title(_title(allocation), fontsize=FONT + 2, loc="left")
    save_picture(figure, path)


def _cost(graph: StreamGraph, allocation: Allocation | None, task: Task) -> str:
    """A task's weight and, if other tasks slow it down, its cost on its resource, as text."""
    weight = f"{graph.tasks[task]:.3g}"
    if allocation is None:
        return weight
    cost = allocation.processing[task]
    times = cost / graph.tasks[task] if graph.tasks[task] else 1.0
    return weight if np.isclose(times, 1.0) else f"{weight} x {times:.3g} = {cost:.3g}"


def _title(allocation: Allocation) -> str:
    proof = "optimal" if allocation.optimal else f"at most {allocation.gap:.1%} above the optimum"
    return f"The worst path costs {allocation.cost:.4g}, {proof} (predicted, in the unit of the tasks' weights)"


def _legend(figure: Figure, axes: Axes, allocation: Allocation, colour: Mapping[Any, Any]) -> None:
    """Add a legend of the colours and the lines."""
    tasks = Counter(allocation.assignment.values())
    for name in [name for name in allocation.resources.names if tasks[name]][:24]:
        number = f"{tasks[name]} task{'s' * (tasks[name] > 1)}"
        axes.plot([], [], "s", color=colour[name], markeredgecolor=INK, label=f"{name}: {number}")
    axes.plot([], [], "-", color=INK, linewidth=2.6, label="worst path")
    axes.plot([], [], "-", color=LINE, label="to another resource, with its cost")
    axes.plot([], [], ":", color=LINE, label="within a resource, free")
    columns = int(figure.get_size_inches()[0] / LEGEND_ENTRY)
    figure.legend(frameon=False, fontsize=FONT, ncols=columns, loc="outside lower center", handlelength=1.6)


def colours(allocation: Allocation) -> dict[Any, Any]:
    """Give each resource a light colour."""
    return {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(allocation.resources.names)}


@matplotlib.rc_context(STYLE)
def draw_tree(path: Path, tree: SpdTree) -> None:
    """Write a picture of a decomposition tree to ``path``, which ends in .svg or .png.

    Raises:
        ConfigurationError: the path has another ending.
        SinkError: the file cannot be written.
    """
    place: dict[int, tuple[float, float]] = {}
    depth = {id(tree): 0}
    for node in reversed(list(tree.postorder())):
        depth |= {id(child): depth[id(node)] + 1 for child in node.children}
    leaves = 0
    for node in tree.postorder():
        if node.kind == "task":
            place[id(node)] = (leaves, depth[id(node)])
            leaves += 1
        else:
            across = [place[id(child)][0] for child in node.children]
            place[id(node)] = (float(np.mean([min(across), max(across)])), depth[id(node)])
    height = max(depth.values()) + 1
    figure = Figure(figsize=(min(40, 1 + 0.75 * leaves), min(40, 0.8 + 0.9 * height)), layout="constrained")
    axes = figure.subplots()
    for node in tree.postorder():
        x, y = place[id(node)]
        for child in node.children:
            axes.plot([x, place[id(child)][0]], [-y, -place[id(child)][1]], "-", color=LINE, linewidth=1, zorder=1)
        axes.text(
            x,
            -y,
            str(node.task) if node.kind == "task" else node.kind,
            ha="center",
            va="center",
            fontsize=8,
            bbox={
                "boxstyle": "round,pad=0.35",
                "facecolor": {"task": "#eef1f5", "series": "#fde3cf", "parallel": "#cfe8d5"}[node.kind],
                "edgecolor": INK,
                "linewidth": 0.8,
            },
        )
    _frame(axes, leaves, height)
    save_picture(figure, path)


def _layout(graph: StreamGraph) -> Mapping[Task, tuple[float, float]]:
    """Column and row of each task: a column per step from the sources, rows near the mean row of the predecessors."""
    before: dict[Task, list[Task]] = {task: [] for task in graph.tasks}
    for start, end in graph.transfers:
        before[end].append(start)
    column: dict[Task, int] = {}
    names = list(graph.tasks)
    network = graph.free_network
    for arc in range(len(network.task)):  # arcs, and so tasks, are in topological order
        if network.task[arc] >= 0:
            task = names[network.task[arc]]
            column[task] = max((column[start] + 1 for start in before[task]), default=0)
    columns = [[task for task in names if column[task] == number] for number in range(max(column.values()) + 1)]
    tallest = max(map(len, columns))
    place: dict[Task, tuple[float, float]] = {}
    for number, tasks in enumerate(columns):
        mean = {task: sum(place[start][1] for start in before[task]) / max(1, len(before[task])) for task in tasks}
        tasks.sort(key=mean.__getitem__)
        for row, task in enumerate(tasks):
            place[task] = (number, row + (tallest - len(tasks)) / 2)
    return place


def _arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    worst: bool,
    moved: bool,
    label: str,
    patches: Mapping[str, Any],
) -> None:
    colour, width = (INK, 2.2) if worst else (LINE, 1.0)
    bend = 0.0 if end[0] - start[0] <= 1 else 0.15  # bends the arrow past the columns in between
    style = {"color": colour, "linewidth": width, "linestyle": "-" if moved else ":", "shrinkA": 2, "shrinkB": 2}
    style["arrowstyle"] = "-|>,head_length=0.45,head_width=0.2"
    axes.annotate(
        "",
        xy=(end[0], -end[1]),
        xytext=(start[0], -start[1]),
        zorder=1,
        arrowprops={"connectionstyle": f"arc3,rad={bend}", "mutation_scale": 12, **style, **patches},
    )
    if label:
        x, y = (start[0] + end[0]) / 2, -(start[1] + end[1]) / 2 + bend
        behind = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none"}
        axes.text(x, y, label, fontsize=FONT - 1, color=INK, ha="center", va="center", bbox=behind, zorder=2)


def _frame(axes: Axes, columns: int, rows: int) -> None:
    axes.set_xlim(-0.6, columns - 0.4)
    axes.set_ylim(-rows + 0.4, 0.6)
    axes.axis("off")


def require_picture(path: Path) -> None:
    """Raise ``ConfigurationError`` unless the path ends in .svg or .png."""
    if path.suffix not in (".svg", ".png"):
        raise ConfigurationError(f"{path} is not a picture; give a path that ends in .svg or .png.")


def save_picture(figure: Figure, path: Path) -> None:
    """Write a figure as a picture.

    Raises:
        ConfigurationError: the path ends in neither .svg nor .png.
        SinkError: the file cannot be written.
    """
    require_picture(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {})
    except OSError as error:
        raise SinkError(f"{path} cannot be written ({error.strerror}); choose another place.") from error
