"""``penstock allocate``: put the tasks of a graph on resources, and say how far from the optimum the result can be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.arguments import WRITTEN
from penstock.cli.bar import Bar
from penstock.cli.command import command
from penstock.cli.echo import echo
from penstock.errors import ConfigurationError
from penstock.visible import line, visible

if TYPE_CHECKING:
    from penstock.allocation import Allocation, Constraints, Resources, StreamGraph
    from penstock.allocation.strategy import Progress

WAYS = (
    "auto",
    "exact",
    "search",
    "min-k",
    "one",
    "round-robin",
    "average",
    "disc",
    "disc-printed",
    "heron",
    "r-storm",
    "cola",
    "greedy-reduce",
    "greedy-equal",
    "greedy-path",
)
"""A copy of `penstock.allocation.METHODS`, which saves the import; a test compares the two."""
KINDS = {"seconds": "measured", "cost": "predicted", "objective": "predicted", "bound": "certified"}
"""What kind of figure each is that --compare prints."""
_EXTRA = ("resources", "bandwidths", "pinned", "together", "apart")


@command()
@click.argument("graph", type=click.Path(path_type=Path))
@click.option("--resources", "-r", help='How many, or capacities, as "8" or "big=4,small=1"; or in the file.')
@click.option("--for-cost", type=float, help="Find the least number of resources for this streaming cost instead.")
@click.option("--method", "-m", type=click.Choice(WAYS), default="auto", show_default=True)
@click.option("--compare", is_flag=True, help='Allocate with every method and compare; "exact" up to 16 tasks.')
@click.option("--time-limit", type=float, help="Seconds; by default a fixed number of steps.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the search.")
@click.option(
    "--sharing",
    type=click.Choice(["count", "load"]),
    default="count",
    show_default=True,
    help="What slows a task: the number of tasks beside it, or how busy they are.",
)
@click.option("--pin", multiple=True, metavar="TASK=RESOURCE", help="A task's resource; repeatable.")
@click.option("--together", multiple=True, metavar="TASK,TASK", help="Tasks on one resource; repeatable.")
@click.option("--apart", multiple=True, metavar="TASK,TASK", help="Tasks on different resources; repeatable.")
@click.option("--present", type=click.Path(path_type=Path), help="Where tasks are now: what --json printed before.")
@click.option("--move-price", type=float, default=0.0, show_default=True, help="The cost that moving a task is worth.")
@click.option("--draw", type=WRITTEN, help="Draw the allocation: .svg or .png.")
@click.option("--explain", is_flag=True, help="Say what the worst path consists of.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def allocate(
    graph: Path,
    resources: str | None,
    for_cost: float | None,
    method: str,
    compare: bool,
    draw: Path | None,
    explain: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Allocate the tasks of GRAPH to resources, so that the worst path from a source to a sink costs least.

    GRAPH is the directory of a run, whose elements are the tasks, as they were measured; what `penstock graph -o FILE.json`
    writes, with equal weights; or a JSON file: {"tasks": {name: weight}, "transfers": [[from, to, cost]]}, and if wanted
    "loads", "resources", "bandwidths" [[resource, resource, bandwidth]], "pinned" {task: resource}, and "together" and "apart"
    [[task, task]]. Ctrl-C ends the search and prints the best allocation so far.

    \b
    Example:
      penstock allocate graph.json --resources 8 --draw allocation.svg
      penstock allocate runs/divisibility --resources 2
    """
    from penstock.allocation import allocate as allocated

    if draw is not None:  # refuse an unknown format before the search
        from penstock.allocation.drawing import draw_graph, require_picture

        require_picture(draw)
    shape, extra = _graph(graph)
    options: dict[str, Any] = {
        "time_limit": given["time_limit"],
        "seed": given["seed"],
        "sharing": given["sharing"],
        "constraints": _constraints(extra, given),
    }
    if compare and (method != "auto" or draw is not None or explain):
        raise ConfigurationError("--compare prints a table of all methods; leave out --method, --draw and --explain.")
    if for_cost is not None:
        ignored = [name for name in ("resources", "bandwidths") if extra.get(name)]
        if ignored:
            raise ConfigurationError(
                f"--for-cost finds the number of equal resources; leave {' and '.join(map(repr, ignored))} out of {graph}."
            )
        if resources is not None or compare or given["present"] or given["move_price"]:
            raise ConfigurationError(
                "--for-cost finds the number of resources; give no --resources, --compare, --present or --move-price."
            )
        chosen, headline, answer = _fewest(shape, for_cost, method, options)
    else:
        where = _resources(resources, extra)
        options["move_price"] = given["move_price"]
        if given["present"]:
            options["present"] = _assignment(given["present"])
        if compare:
            _compare(shape, where, options, as_json)
            return
        with _bar() as advance:
            chosen = allocated(shape, where, method, progress=advance, **options)
        headline, answer = "", chosen.to_json()
    if draw is not None:
        draw_graph(draw, shape, chosen)
    if as_json:
        echo(json.dumps(answer, default=str))
        return
    _show(chosen, headline, explain)
    if draw is not None:
        echo(f"Wrote {draw}.")


def _fewest(shape: StreamGraph, cost: float, method: str, options: Mapping[str, Any]) -> tuple[Allocation, str, dict[str, Any]]:
    """The allocation to the fewest equal resources that are enough for a cost, a sentence that says so, and both as JSON."""
    from penstock.allocation import least_resources

    with _bar() as advance:
        least = least_resources(shape, cost, method=method, progress=advance, **options)
    note = "" if least.optimal else f"; whether {least.fewest} could be enough is not known"
    headline = f"{least.resources} resources are enough for a cost of {cost:g}{note}."
    return least.allocation, headline, least.allocation.to_json() | {"resources": least.resources, "fewest": least.fewest}


def _graph(path: Path) -> tuple[StreamGraph, dict[str, Any]]:
    """The graph of tasks from a file, a topology or a recorded run, and the other fields of a file."""
    from penstock.allocation import StreamGraph
    from penstock.allocation.graph import read_json

    if path.is_dir():
        from penstock.planner import calibrate, observe
        from penstock.planner.parameters import stream_graph

        shape = stream_graph(calibrate(observe(path)))
        echo("Weights are measured, in seconds per micro-batch; a hop costs what a micro-batch does (fitted).", err=True)
        return shape, {}
    data = read_json(path)
    if "elements" in data and "streams" in data:
        try:
            weights = {element["name"]: 1.0 for element in data["elements"]}
            shape = StreamGraph.from_topology(data, weights)
        except (KeyError, TypeError) as error:
            raise ConfigurationError(f"{path} is no topology as `penstock graph -o FILE.json` writes it.") from error
        echo("A topology has no weights: each element counts 1 (assumed). A run's directory has them.", err=True)
        return shape, {}
    extra = {key: data.pop(key) for key in _EXTRA if key in data}
    return StreamGraph.from_json(data), extra


def _resources(text: str | None, extra: Mapping[str, Any]) -> Resources:
    """The resources, from ``--resources`` or else from the file, with the bandwidths of the file."""
    from penstock.allocation import Resources

    bandwidths = extra.get("bandwidths", [])
    if not isinstance(bandwidths, list) or not all(
        isinstance(row, list) and len(row) == 3 and isinstance(row[0], str) and isinstance(row[1], str) for row in bandwidths
    ):
        raise ConfigurationError('"bandwidths" in JSON is [[resource, resource, bandwidth]].')
    capacities: Any = extra.get("resources")
    if text is not None:
        capacities = _capacities(text)
    if capacities is None:
        raise ConfigurationError('Give --resources, as "8" or "big=4,small=1", or "resources" in the file.')
    return Resources(Resources.of(capacities).capacities, {(start, end): width for start, end, width in bandwidths})


def _capacities(text: str) -> float | dict[str, float]:
    try:
        if "=" not in text:
            return float(text)
        pairs = [part.split("=") for part in text.split(",")]
        capacities = {name.strip(): float(capacity) for name, capacity in pairs}
        if "" in capacities:
            raise ValueError("a resource without a name")
    except ValueError:
        raise ConfigurationError(f'--resources is {text!r}; give a number, or capacities as "big=4,small=1".') from None
    if len(capacities) < len(pairs):
        raise ConfigurationError(f"--resources names a resource twice: {text}; name each once.")
    return capacities


def _constraints(extra: Mapping[str, Any], given: Mapping[str, Any]) -> Constraints:
    from penstock.allocation import Constraints

    pinned = extra.get("pinned", {})
    if not isinstance(pinned, dict) or not all(isinstance(extra.get(key, []), list) for key in ("together", "apart")):
        raise ConfigurationError('In JSON "pinned" is {task: resource}; "together" and "apart" are [[task, task]].')
    for pin in given["pin"]:
        task, equals, place = pin.partition("=")
        if not (task and equals and place):
            raise ConfigurationError(f"--pin is {pin!r}; give TASK=RESOURCE.")
        if pinned.get(task, place) != place:
            raise ConfigurationError(f"--pin: {task} is pinned to {pinned[task]} and to {place}; pin it once.")
        pinned = {**pinned, task: place}
    for key in ("together", "apart"):
        for text in given[key]:
            if len(set(text.split(","))) < 2:
                raise ConfigurationError(f"--{key} is {text!r}, which is about one task; give two or more: TASK,TASK.")
    sets = {key: [*extra.get(key, []), *(text.split(",") for text in given[key])] for key in ("together", "apart")}
    return Constraints(pinned, **sets)


def _assignment(path: Path) -> dict[str, Any]:
    from penstock.allocation.graph import read_json

    data = read_json(path)
    present = data.get("assignment", data)
    if not isinstance(present, dict) or not all(isinstance(place, str) for place in present.values()):
        raise ConfigurationError(f"{path} holds no assignment; give what penstock allocate --json printed.")
    return present


def _show(chosen: Allocation, headline: str, explain: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from penstock.allocation import streaming_cost

    console = Console(width=110, highlight=False, markup=False)
    if headline:
        console.print(headline)
    table = Table(box=None, pad_edge=False, title_justify="left")
    table.add_column("resource", overflow="fold")
    for heading in ("capacity", "tasks", "weight"):
        table.add_column(heading, justify="right")
    table.add_column("", overflow="fold")
    on: dict[Any, list[Any]] = {name: [] for name in chosen.resources.names}
    for task, place in chosen.assignment.items():
        on[place].append(task)
    for name, tasks in on.items():
        shown = ", ".join(map(str, tasks[:12])) + (", ..." if len(tasks) > 12 else "")
        weight = sum(chosen.graph.tasks[task] for task in tasks)
        table.add_row(line(str(name)), f"{chosen.resources.capacities[name]:g}", str(len(tasks)), f"{weight:.4g}", line(shown))
    console.print(table)
    by = {way: streaming_cost(chosen.graph, chosen.assignment, chosen.resources, sharing=way) for way in ("count", "load")}
    other = f"; by load {by['load']:.6g}" if chosen.graph.loads else ""
    console.print(f"Streaming cost (predicted, in the unit of the weights): by count {by['count']:.6g}{other}.")
    path = [line(str(task)) for task in chosen.worst_path]
    console.print(f"Worst path: {' > '.join(path if len(path) <= 16 else [*path[:8], '...', *path[-7:]])}.")
    if chosen.objective != chosen.cost:
        console.print(f"Moved: {len(chosen.moved)} tasks; with the price of the moves {chosen.objective:.6g}.")
    if chosen.optimal:
        console.print("Proved optimal.")
    else:
        console.print(f"At most {chosen.gap:.2%} above the optimum: none is better than {chosen.lower_bound:.6g} (certified).")
    if chosen.interrupted:
        console.print("Interrupted: this is the best found so far.")
    if explain:
        console.print(visible(chosen.explain()))


def _compare(shape: StreamGraph, where: Resources, options: Mapping[str, Any], as_json: bool) -> None:
    """Print the results of all methods, the best first; with constraints, only of those that support them."""
    from rich.console import Console
    from rich.table import Table

    from penstock.allocation import allocate as allocated

    plain = not options["constraints"] and "present" not in options
    rows: list[dict[str, Any]] = []
    for method in WAYS if plain else ("auto", "search"):
        if method == "exact" and len(shape.tasks) > 16:
            continue
        begun = perf_counter()
        allocation = allocated(shape, where, method, **options)
        seconds = perf_counter() - begun
        figures = {"cost": allocation.cost, "objective": allocation.objective, "bound": allocation.lower_bound}
        rows.append({"method": method, "kind": KINDS, "seconds": seconds, **figures})
        if allocation.interrupted:
            break
    bound = max(row["bound"] for row in rows)
    rows.sort(key=lambda row: float(row["objective"]))
    if as_json:
        echo(json.dumps(rows))
        return
    name = "cost and moves" if "present" in options else "cost"
    table = Table("method", name, "over the bound", "seconds (measured)", box=None, pad_edge=False)
    for row in rows:
        over = f"{row['objective'] / bound:.3f}" if bound else "-"
        table.add_row(row["method"], f"{row['objective']:.6g}", over, f"{row['seconds']:.3f}")
    Console(width=110, highlight=False, markup=False).print(table)
    echo(f"None is better than {bound:.6g} (certified).")


@contextmanager
def _bar() -> Iterator[Progress]:
    """A progress bar that shows the best cost and the lower bound so far."""
    from rich.progress import TaskProgressColumn, TextColumn

    with Bar("allocating", TaskProgressColumn(), TextColumn("{task.description}")) as advance:
        yield lambda fraction, best, bound: advance(fraction, 1.0, f"best {best:.5g}, bound {bound:.5g}")
