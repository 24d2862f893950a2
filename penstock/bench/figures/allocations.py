"""All allocation algorithms over families of graphs, and statements of the allocation paper beside our results."""

from collections.abc import Sequence
from statistics import mean

from penstock.allocation import (
    FAMILIES,
    METHODS,
    allocate,
    average_trap,
    continuous_shares,
    greedy_trap,
    parallel,
    random_graph,
    series,
)
from penstock.allocation.heuristics import lemma_shares
from penstock.allocation.shares import shares_cost
from penstock.bench.figures.figure import Comparison, FigureData
from penstock.bench.figures.plots import Curve, PlotContents

SIZES = (10, 30, 100, 300)
WEIGHTS = ("uniform", "lognormal", "heavy")
SHOWN = {
    "auto": "auto",
    "min-k": "min-K by optimal shares",
    "average": "A_avg, balanced weights",
    "round-robin": "round robin (Storm)",
    "heron": "first fit decreasing (Heron)",
    "r-storm": "R-Storm",
    "cola": "min-cut fusion (COLA)",
    "disc": "A_disc, mended",
}


def allocation() -> FigureData:
    """Ratios of cost to lower bound, with free transfers, and the paper's statements on shares."""
    return _compared("allocation", 0.0, "transfers free", _statements())


def allocation_transfers() -> FigureData:
    """Ratios of cost to lower bound, with mean transfer costs of twice the mean weight, and the paper's trap graphs."""
    return _compared("allocation-transfers", 2.0, "mean transfer cost twice the mean weight", _traps())


def _compared(name: str, transfer: float, setting: str, stated: Sequence[Comparison]) -> FigureData:
    ratios: dict[tuple[str, int], list[float]] = {}
    for size in SIZES:
        for family in FAMILIES:
            for weights in WEIGHTS:
                graph = random_graph(family, size, weights=weights, transfer=transfer, seed=1)
                resources = max(2, size // 10) if size > 10 else 3
                costs, bound = {}, 0.0
                for method in METHODS:
                    if method in ("exact", "search") or (method.startswith("greedy") and size > 30):
                        continue
                    result = allocate(graph, resources, method)
                    costs[method], bound = result.cost, max(bound, result.lower_bound)
                for method, cost in costs.items():
                    ratios.setdefault((method, size), []).append(cost / bound)
    curves = [
        Curve(
            label, SIZES, [mean(ratios[method, size]) for size in SIZES], ("o-", "s-", "--", "--", "--", "--", ":", ":")[number]
        )
        for number, (method, label) in enumerate(SHOWN.items())
    ]
    rows = [
        Comparison(
            f"{method}: mean, worst ratio to the bound",
            "",
            "; ".join(
                f"n={size}: {mean(ratios[method, size]):.3f}, {max(ratios[method, size]):.3g}"
                for size in SIZES
                if (method, size) in ratios
            ),
        )
        for method in METHODS
        if (method, SIZES[0]) in ratios
    ]
    return FigureData(
        name,
        PlotContents(
            f"The search stays near the certified lower bound; {setting}",
            "number of tasks",
            "streaming cost over the lower bound (mean)",
            curves,
            "Six families of random graphs, three kinds of weights; a tenth as many resources as tasks, at least two.",
            log_x=True,
            highest=6.5,
        ),
        (*stated, *rows),
    )


def _statements() -> list[Comparison]:
    rows = []
    dropped = parallel(series(0, 1), *range(2, 22)).graph({0: 1000, 1: 10} | dict.fromkeys(range(2, 22), 100))
    shares = lemma_shares(dropped, 3, printed=False)
    lemma = shares_cost(dropped.free_network, 0 * dropped.weights, dropped.weights, shares)
    best = continuous_shares(dropped, 3, cap=1.0)
    rows.append(
        Comparison(
            "Lemma III.6's shares, p(s(0,1), 2..21), c = 3",
            "optimal",
            f"{lemma:.2f}; best {best.cost:.2f}",
            "fixing the largest share first is not optimal",
        )
    )
    trap = allocate(average_trap(60), 2)
    why = "the optimum gives v1 a companion at no cost"
    return [*rows, Comparison("A_avg's example, n = 60, c = 2: optimum", "59 (n - 1)", f"{trap.cost:g}", why)]


def _traps() -> list[Comparison]:
    graph, resources = greedy_trap(16)
    best, greedy = allocate(graph, resources), allocate(graph, resources, "greedy-equal")
    return [
        Comparison(
            "Theorem III.8's graph, n = 16: optimum",
            "65 (4n + 1)",
            f"{best.cost:g}",
            "4n - 1; the figure is reconstructed from the proof",
        ),
        Comparison("Theorem III.8's graph, n = 16: greedy strategy S", "order n^2", f"{greedy.cost:g}"),
    ]
