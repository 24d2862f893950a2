"""Pictures: a graph coloured by resource with its worst path marked, and a decomposition tree."""

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

WORST, FAINT, INK = "#c0392b", "#8a8f98", "#22262b"
STYLE: Any = {"svg.hashsalt": "penstock", "text.parse_math": False}  # equal data, equal file; a $ is a $
MANY = 150
"""Tasks beyond which names and costs would not be legible, and are left out."""


@matplotlib.rc_context(STYLE)
def draw_graph(path: Path, graph: StreamGraph, allocation: Allocation | None = None) -> None:
    """Write a picture of a graph, tasks in columns from sources to sinks, to ``path``, which ends in .svg or .png.

    With an allocation, tasks have the colour of their resource, the worst path is drawn thick and red, and transfers
    between resources are solid and labelled with their cost, those within one dotted.

    Raises
    ------
    ConfigurationError: another ending.
    SinkError: the file cannot be written.
    """
    place = _layout(graph)
    names = len(graph.tasks) <= MANY
    columns, rows = (int(max(position[axis] for position in place.values())) + 1 for axis in (0, 1))
    figure = Figure(figsize=(min(40, 1.6 + 1.9 * columns), min(40, 1.4 + 0.95 * rows)), layout="constrained")
    axes = figure.subplots()
    worst = set() if allocation is None else set(zip(allocation.worst_path, allocation.worst_path[1:], strict=False))
    for (start, end), cost in graph.transfers.items():
        moved = allocation is None or allocation.assignment[start] != allocation.assignment[end]
        _arrow(axes, place[start], place[end], (start, end) in worst, moved, f"{cost:.3g}" if moved and names else "")
    colour = {} if allocation is None else colours(allocation)
    for task, (x, y) in place.items():
        on_worst = allocation is not None and task in allocation.worst_path
        axes.text(
            x, -y, f"{task}\n{graph.tasks[task]:.3g}" if names else " ", ha="center", va="center", fontsize=8, color=INK,
            bbox={
                "boxstyle": "round,pad=0.4",
                "facecolor": colour[allocation.assignment[task]] if allocation is not None else "#eef1f5",
                "edgecolor": WORST if on_worst else INK,
                "linewidth": 2.2 if on_worst else 0.8,
            },
        )  # fmt: skip
    if allocation is not None:
        used = [name for name in allocation.resources.names if name in set(allocation.assignment.values())]
        for name in used[:24]:
            axes.plot([], [], "s", color=colour[name], markeredgecolor=INK, label=f" {name}")
        axes.plot([], [], "-", color=WORST, linewidth=2.2, label="worst path")
        axes.legend(frameon=False, fontsize=8, ncols=8, loc="upper center", bbox_to_anchor=(0.5, 0.0))
        axes.set_title(_title(allocation), fontsize=10)
    _frame(axes, columns, rows)
    _save(figure, path)


def _title(allocation: Allocation) -> str:
    proof = "optimal" if allocation.optimal else f"at most {allocation.gap:.1%} above the optimum"
    return f"streaming cost {allocation.cost:.6g} (predicted), {proof}"


def colours(allocation: Allocation) -> dict[Any, Any]:
    """A light colour for every resource."""
    palette = [*matplotlib.colormaps["Pastel1"](range(9)), *matplotlib.colormaps["Set3"](range(12))]
    return {name: palette[number % len(palette)] for number, name in enumerate(allocation.resources.names)}


@matplotlib.rc_context(STYLE)
def draw_tree(path: Path, tree: SpdTree) -> None:
    """Write a picture of a decomposition tree to ``path``, which ends in .svg or .png.

    Raises
    ------
    ConfigurationError: another ending.
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
            axes.plot([x, place[id(child)][0]], [-y, -place[id(child)][1]], "-", color=FAINT, linewidth=1, zorder=1)
        axes.text(
            x, -y, str(node.task) if node.kind == "task" else node.kind, ha="center", va="center", fontsize=8,
            bbox={"boxstyle": "round,pad=0.35", "facecolor": {"task": "#eef1f5", "series": "#fde3cf",
                  "parallel": "#cfe8d5"}[node.kind], "edgecolor": INK, "linewidth": 0.8},
        )  # fmt: skip
    _frame(axes, leaves, height)
    _save(figure, path)


def _layout(graph: StreamGraph) -> Mapping[Task, tuple[float, float]]:
    """A column per step from the sources; within it, tasks near the mean row of what feeds them."""
    before: dict[Task, list[Task]] = {task: [] for task in graph.tasks}
    for start, end in graph.transfers:
        before[end].append(start)
    column: dict[Task, int] = {}
    names = list(graph.tasks)
    network = graph.free_network
    for arc in range(len(network.task)):  # arcs are in topological order, and with them the tasks
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
    axes: Axes, start: tuple[float, float], end: tuple[float, float], worst: bool, moved: bool, label: str
) -> None:
    colour, width = (WORST, 2.2) if worst else (FAINT, 1.0)
    bend = 0.0 if end[0] - start[0] <= 1 else 0.15  # past the columns between
    style = {"color": colour, "linewidth": width, "linestyle": "-" if moved else ":", "shrinkA": 20, "shrinkB": 20}
    axes.annotate(
        "", xy=(end[0], -end[1]), xytext=(start[0], -start[1]),
        arrowprops={"arrowstyle": "-|>", "connectionstyle": f"arc3,rad={bend}", **style},
    )  # fmt: skip
    if label:
        x, y = (start[0] + end[0]) / 2, -(start[1] + end[1]) / 2
        axes.text(x, y + 0.12 + bend, label, fontsize=7, color=colour, ha="center", va="center")


def _frame(axes: Axes, columns: int, rows: int) -> None:
    axes.set_xlim(-0.6, columns - 0.4)
    axes.set_ylim(-rows + 0.4, 0.6)
    axes.axis("off")


def require_picture(path: Path) -> None:
    """Raise ``ConfigurationError`` unless the path ends in .svg or .png."""
    if path.suffix not in (".svg", ".png"):
        raise ConfigurationError(f"{path} is no picture; give a path that ends in .svg or .png.")


def _save(figure: Figure, path: Path) -> None:
    require_picture(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {})
    except OSError as error:
        raise SinkError(f"{path} cannot be written ({error.strerror}); choose another place.") from error
