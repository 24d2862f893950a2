"""How often ``auto`` finds the optimum of small graphs, how far off it is otherwise, and how long it takes.

python benchmarks/optima.py [--graphs 150] [--tasks 8,12,14,16,18,20,22] [--limit 10] [--output FILE.md]

Random graphs of all families and weights, transfers free or up to six times as dear as a task's work, two to eight
resources, of unequal capacity for three in ten. The optimum is proved by branch and bound ("exact", with a limit of seconds per
graph); where that is not complete, the best of it and of a search with another seed and the same limit stands for it.
"""

import argparse
import random
from collections import defaultdict
from pathlib import Path
from statistics import mean
from time import perf_counter

from penstock.allocation import FAMILIES, allocate, random_graph
from penstock.allocation.generate import WEIGHTS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=150)
    parser.add_argument("--tasks", default="8,12,14,16,18,20,22")
    parser.add_argument("--limit", type=float, default=10.0)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    sizes = [int(size) for size in given.tasks.split(",")]
    choose = random.Random(7)
    allocate(random_graph("dag", 9, transfer=1.0), 3)  # compiles
    allocate(random_graph("dag", 9), {"a": 1, "b": 2})
    found = defaultdict(list)
    for number in range(given.graphs):
        size = sizes[number % len(sizes)]
        graph = random_graph(
            choose.choice(FAMILIES),
            size,
            weights=choose.choice(WEIGHTS),
            transfer=choose.choice([0, 0, 0.5, 2, 6]),
            seed=number,
        )
        count = choose.randint(2, min(size, 8))
        capacities = {f"m{i}": choose.choice([0.5, 1, 2, 4]) for i in range(count)}
        resources = capacities if choose.random() < 0.3 else count
        begun = perf_counter()
        auto = allocate(graph, resources)
        seconds = perf_counter() - begun
        best, proved = auto.cost, auto.optimal
        if not proved:
            exact = allocate(graph, resources, "exact", time_limit=given.limit)
            best, proved = min(best, exact.cost), exact.optimal
        if not proved:
            best = min(best, allocate(graph, resources, "search", time_limit=given.limit, seed=1).cost)
        assert auto.lower_bound <= best * (1 + 1e-9), "a lower bound above an allocation"
        found[size].append((auto.cost / best, proved, auto.optimal, seconds))
        print(f"{number + 1} of {given.graphs}", end="\r", flush=True)
    lines = [
        "| tasks | graphs | optimum proved | by auto itself | auto optimal | worst ratio | seconds: mean | most |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for size, rows in sorted(found.items()):
        ratios, proofs, own, times = zip(*rows, strict=True)
        optimal = sum(ratio <= 1 + 1e-9 for ratio in ratios)
        lines.append(
            f"| {size} | {len(rows)} | {sum(proofs)} | {sum(own)} | {optimal} | {max(ratios):.4f} | {mean(times):.2f} "
            f"| {max(times):.2f} |"
        )
    print("\n".join(lines))
    if given.output:
        given.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
