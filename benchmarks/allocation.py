"""How far every allocation algorithm is from the lower bound, and how long it takes, over families of random graphs.

python benchmarks/allocation.py [--sizes 10,100,1000,10000] [--transfers 0,10] [--families spd,...] [--methods auto,...]
                                [--output FILE.md] [--results FILE.jsonl]

Families: spd, chain, fork, stages, layered, dag; weights: equal, uniform, lognormal, heavy (see penstock.allocation.
random_graph); transfer costs uniform with the mean given, in units of the mean weight; n / 10 resources for up to 100
tasks and n / 20 beyond. Greedy strategies run up to 100 tasks, since they group once per transfer. Results are appended
as they come: a run that was stopped goes on where it was.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean
from time import perf_counter

from penstock.allocation import FAMILIES, METHODS, StreamGraph, allocate, random_graph, streaming_cost
from penstock.allocation.allocation import HEURISTICS, PLACING
from penstock.allocation.generate import WEIGHTS
from penstock.allocation.resources import Resources

LIMITS = {10: None, 100: None, 1000: 2.0, 10_000: 5.0}


def measure(graph: StreamGraph, resources: int, limit: float | None, methods: list[str]) -> dict[str, tuple[float, float]]:
    """Method to its cost and seconds; "bound" to the best bound."""
    found: dict[str, tuple[float, float]] = {}
    greedy = [method for method in PLACING if method.startswith("greedy")]
    bound = 0.0
    for method in ("min-k", "auto", *(greedy if len(graph.tasks) <= 100 else ())):
        if method not in methods:
            continue
        begun = perf_counter()
        result = allocate(graph, resources, method, time_limit=limit if method == "auto" else None)
        found[method] = (result.cost, perf_counter() - begun)
        bound = max(bound, result.lower_bound)
    where = Resources.of(resources)
    for method, heuristic in HEURISTICS.items():
        if method not in methods:
            continue
        begun = perf_counter()
        place = heuristic(graph, where)
        seconds = perf_counter() - begun
        assignment = {task: where.names[p] for task, p in zip(graph.tasks, place, strict=True)}
        found[method] = (streaming_cost(graph, assignment, where), seconds)
    return found | {"bound": (bound, 0.0)}


def table(rows: list[dict], sizes: list[int], transfers: list[float]) -> list[str]:
    """Mean and worst ratio to the bound and mean seconds, method by size, one table per transfer cost."""
    lines = []
    for transfer in transfers:
        lines += [f"\nMean transfer cost {transfer:g} (mean weight 1); mean ratio to the bound, worst, mean seconds:\n"]
        lines += ["| method | " + " | ".join(f"n = {size:,}" for size in sizes) + " |", "| --- |" + " --- |" * len(sizes)]
        cells: dict[str, dict[int, str]] = defaultdict(dict)
        firsts: dict[str, float] = {}
        for size in sizes:
            chosen = [row for row in rows if row["tasks"] == size and row["transfer"] == transfer]
            for method in {method for row in chosen for method in row["found"] if method != "bound"}:
                ratios = [row["found"][method][0] / row["found"]["bound"][0] for row in chosen if method in row["found"]]
                firsts.setdefault(method, mean(ratios))
                seconds = mean(row["found"][method][1] for row in chosen)
                cells[method][size] = f"{mean(ratios):.3f}, {max(ratios):.3g}, {seconds:.2g} s"
        order = sorted(cells, key=lambda method: firsts[method])
        lines += [f"| {m} | " + " | ".join(cells[m].get(size, "") for size in sizes) + " |" for m in order]
    return lines


def worst_families(rows: list[dict], sizes: list[int], transfers: list[float]) -> list[str]:
    """The mean ratio of "auto" to the bound, family by family."""
    lines = ["\nMean ratio of auto to the bound by family:\n"]
    heads = [(size, transfer) for transfer in transfers for size in sizes]
    lines += ["| family | " + " | ".join(f"n = {s:,}, b = {t:g}" for s, t in heads) + " |", "| --- |" + " --- |" * len(heads)]
    for family in FAMILIES:
        cells = []
        for size, transfer in heads:
            ratios = [
                row["found"]["auto"][0] / row["found"]["bound"][0]
                for row in rows
                if (row["family"], row["tasks"], row["transfer"]) == (family, size, transfer)
            ]
            cells.append(f"{mean(ratios):.3f}" if ratios else "")
        lines.append(f"| {family} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10,100,1000,10000")
    parser.add_argument("--transfers", default="0,10")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--output", type=Path)
    parser.add_argument("--results", type=Path, default=Path("allocation.jsonl"))
    given = parser.parse_args()
    sizes = [int(size) for size in given.sizes.split(",")]
    transfers = [float(cost) for cost in given.transfers.split(",")]
    families, methods = given.families.split(","), given.methods.split(",")
    allocate(random_graph("dag", 20, transfer=1.0), 3)  # compiles
    rows = [json.loads(line) for line in given.results.read_text().splitlines()] if given.results.exists() else []
    known = {(row["family"], row["weights"], row["tasks"], row["transfer"]) for row in rows}
    wanted = [
        (family, weights, size, transfer)
        for size in sizes
        for transfer in transfers
        for family in families
        for weights in WEIGHTS
        if size <= 1000 or weights in ("lognormal", "heavy")
    ]
    with given.results.open("a") as results:
        for number, (family, weights, size, transfer) in enumerate(wanted, 1):
            if (family, weights, size, transfer) in known:
                continue
            graph = random_graph(family, size, weights=weights, transfer=transfer, seed=1)
            resources = max(2, size // (10 if size <= 100 else 20))
            found = measure(graph, resources, LIMITS.get(size, 5.0), methods)
            row = {"family": family, "weights": weights, "tasks": size, "transfer": transfer, "found": found}
            rows.append(row)
            results.write(json.dumps(row) + "\n")
            results.flush()
            print(f"{number} of {len(wanted)}: {family} {weights} n={size} b={transfer:g}", flush=True)
    lines = [*table(rows, sizes, transfers), *worst_families(rows, sizes, transfers)]
    print("\n".join(lines))
    if given.output:
        given.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
