"""Figures 2 to 7 of "A Stream-Processing Server with an Internal and an External Queue", and its section 4 note."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np

from penstock.bench.figures.allocations import allocation, allocation_transfers
from penstock.bench.figures.figure import Comparison, FigureData
from penstock.bench.figures.plots import Curve, Mark, PlotContents
from penstock.queueing import StreamServer, optimize, solve
from penstock.queueing.iterative import solve_iterative
from penstock.queueing.matrix_analytic import solve_matrix_analytic
from penstock.queueing.moments import moments

ARRIVALS, SERVICES = 750.0, 1000.0
TIMERS = tuple(np.geomspace(10, 10_000, 61))
SIZES = (*range(1, 41), 50, 60, 80, 100)
SERVER = "750 jobs arrive and 1,000 could be served per second"
COSTS = "a job present costs 1 per second, a transfer c2"


def figure_2() -> FigureData:
    """Cost over the timer rate, exact and with the internal queue truncated at 25 jobs."""

    def cost(timer: float, method: str = "auto") -> float:
        server = StreamServer(ARRIVALS, SERVICES, 25, timer)
        return solve(server, method, truncation=25).cost(1, 0.05)

    exact = [cost(timer) for timer in TIMERS]
    cut = [cost(timer, "iterative") for timer in TIMERS]
    error = max(abs(b / a - 1) for a, b in zip(exact, cut, strict=True))
    best = optimize(StreamServer(ARRIVALS, SERVICES, 1, 0), 1, 0.05, batch_sizes=(25,))
    return FigureData(
        "fig2",
        PlotContents(
            f"Figure 2. A timer of {best.timer_rate:.0f} per second costs least; cutting the queue off errs by {error:.1%}",
            "timer rate tau (per second)",
            "cost (per second)",
            (Curve("exact", TIMERS, exact), Curve("internal queue cut off at m = 25 jobs", TIMERS, cut, "--")),
            f"Instantaneous transfers of up to K = 25 jobs. {SERVER}; {COSTS} = 0.05.",
            log_x=True,
            marks=(
                Mark(f"least: tau = {best.timer_rate:.0f}", best.timer_rate, best.cost),
                Mark("paper: around 600", 600, stated=True, curve=1),
            ),
        ),
        (
            Comparison("best tau", "around 600", f"{best.timer_rate:.0f}"),
            Comparison("least cost", "", f"{best.cost:.3f}"),
            Comparison("largest error at m = 25", "about 2%", f"{error:.1%}"),
        ),
    )


def figure_3() -> FigureData:
    """Cost over the timer rate, for batches of up to 100 jobs and three transfer costs."""
    curves, comparisons, marks = [], [], list[Mark]()
    for number, (transfer, printed, about) in enumerate(((0.05, "14.6", "600"), (0.10, "20", "400"), (0.15, "23", "300"))):
        costs = [solve(StreamServer(ARRIVALS, SERVICES, 100, timer)).cost(1, transfer) for timer in TIMERS]
        best = optimize(StreamServer(ARRIVALS, SERVICES, 1, 0), 1, transfer, batch_sizes=(100,))
        curves.append(Curve(f"c2 = {transfer:.2f}", TIMERS, costs))
        comparisons.append(Comparison(f"best tau, c2 = {transfer:.2f}", about, f"{best.timer_rate:.1f}"))
        why = "the paper's 23 is 23.955 cut off" if printed == "23" else ""
        comparisons.append(Comparison(f"least cost, c2 = {transfer:.2f}", printed, f"{best.cost:.3f}", why))
        marks.append(Mark(f"least: {best.timer_rate:.0f}", best.timer_rate, best.cost, curve=number))
        marks.append(Mark("", float(about), float(printed), stated=True, curve=number))
    return FigureData(
        "fig3",
        PlotContents(
            "Figure 3. The dearer a transfer, the slower the best timer",
            "timer rate tau (per second)",
            "cost (per second)",
            curves,
            f"Instantaneous transfers of up to K = 100 jobs. {SERVER}; {COSTS}.",
            log_x=True,
            log_y=True,
            marks=marks,
        ),
        comparisons,
    )


def _over_sizes(server: StreamServer, transfer_cost: float) -> tuple[Curve, "tuple[float, float, float]"]:
    """The curve of least cost over the batch size, and the best batch size, its timer rate and cost."""
    best = optimize(server, 1, transfer_cost)
    least = server.min_batch_size or 1
    sizes = tuple(size for size in SIZES if size >= least)
    profile = optimize(server, 1, transfer_cost, batch_sizes=sizes).profile
    curve = Curve("", [s.batch_size for s in profile], [s.cost for s in profile], "o")
    return curve, (best.batch_size, best.timer_rate, best.cost)


def figure_4() -> FigureData:
    """Cost with the best timer over the batch size, for three transfer costs."""
    curves, comparisons, marks = [], [], list[Mark]()
    for number, (transfer, printed, stated) in enumerate(
        ((0.05, "(6, 10), 13.3", (6, 13.3)), (0.10, "(8, 10), 17.4", (8, 17.4)), (0.15, "(12, 10), 21", (12, 21)))
    ):
        curve, (size, timer, cost) = _over_sizes(StreamServer(ARRIVALS, SERVICES, 1, 0), transfer)
        curves.append(replace(curve, label=f"c2 = {transfer:.2f}"))
        why = (
            "the paper's timers end at tau = 10, and without one it is cheaper still; why its K differ there, too, is not known"
        )
        ours = f"({size:g}, {timer:g}), {cost:.3f}"
        comparisons.append(Comparison(f"best (K, tau) and cost, c2 = {transfer:.2f}", printed, ours, why))
        marks.append(Mark(f"least: K = {size:g}", size, cost, curve=number))
        marks.append(Mark("", *stated, stated=True, curve=number))
    return FigureData(
        "fig4",
        PlotContents(
            "Figure 4. With the best timer, batches larger than the best cost little more",
            "batch size K (jobs)",
            "cost (per second)",
            curves,
            f"Instantaneous transfers. {SERVER}; {COSTS}. The paper's timers end at tau = 10.",
            log_x=True,
            log_y=True,
            highest=60,
            marks=marks,
        ),
        comparisons,
    )


def figure_5() -> FigureData:
    """Cost by exact and truncated solutions over the arrival rate, for transfers that take time."""
    server = StreamServer(600, SERVICES, 15, 1000, 600)
    rates = tuple(np.linspace(600, 870, 28))

    def cost(rate: float, truncation: int | None) -> float:
        changed = replace(server, arrival_rate=float(rate))
        if truncation is None:
            return solve(changed).cost(1, 0.1)
        means = moments(changed, solve_iterative(changed, 1e-9, truncation))
        return means.mean_jobs + 0.1 * means.transfers_per_second

    limit = server.max_arrival_rate
    return FigureData(
        "fig5",
        PlotContents(
            "Figure 5. Near its limit the server holds more jobs than a short cut-off queue shows",
            "arrival rate lambda (jobs per second)",
            "cost (per second)",
            (
                Curve("exact", rates, [cost(rate, None) for rate in rates]),
                Curve("queue cut off at m = 15 jobs", rates, [cost(rate, 15) for rate in rates], "--"),
                Curve("at m = 45", rates, [cost(rate, 45) for rate in rates], ":"),
            ),
            f"Transfers of up to K = 15 jobs take time: gamma = 600 per second. {SERVICES:,.0f} jobs could be served per "
            f"second, tau = 1,000; {COSTS} = 0.1. The server is unstable from {limit:.0f} jobs per second on.",
            log_y=True,
        ),
        (
            Comparison("unstable from lambda =", "941", f"{limit:.2f}", "(26) gives this; 941 does not satisfy it"),
            Comparison("loads shown", "64% to 92%", f"{600 / limit:.0%} to {870 / limit:.0%}", "as a consequence"),
        ),
    )


def figure_6() -> FigureData:
    """Cost over the timer rate for three transfer rates, for transfers that take time."""
    curves, comparisons, marks = [], [], list[Mark]()
    for number, gamma in enumerate((900, 600, 300)):
        server = StreamServer(ARRIVALS, SERVICES, 25, 0, gamma)
        costs = [solve(replace(server, timer_rate=timer)).cost(1, 0.1) for timer in TIMERS]
        best = optimize(server, 1, 0.1, batch_sizes=(25,))
        curves.append(Curve(f"gamma = {gamma}", TIMERS, costs))
        printed = "infinity" if gamma == 300 else ""
        comparisons.append(Comparison(f"best tau, gamma = {gamma}", printed, f"{best.timer_rate:.0f}"))
        if math.isfinite(best.timer_rate):
            marks.append(Mark(f"least: {best.timer_rate:.0f}", best.timer_rate, best.cost, curve=number))
    return FigureData(
        "fig6",
        PlotContents(
            "Figure 6. The slower the transfers, the faster the best timer",
            "timer rate tau (per second)",
            "cost (per second)",
            curves,
            f"Transfers of up to K = 25 jobs take time: gamma of them per second. {SERVER}; {COSTS} = 0.1.",
            log_x=True,
            log_y=True,
            marks=marks,
        ),
        comparisons,
    )


def figure_7() -> FigureData:
    """Cost with the best timer over the batch size, for transfers that take time."""
    curves, comparisons, marks = [], [], list[Mark]()
    stated = {900: ("4", "(12, 250)"), 600: ("5", "(17, 650)"), 300: ("9", "(inf, inf)")}
    for number, (gamma, (least, printed)) in enumerate(stated.items()):
        server = StreamServer(ARRIVALS, SERVICES, 1, 0, gamma)
        curve, (size, timer, cost) = _over_sizes(server, 0.1)
        curves.append(replace(curve, label=f"gamma = {gamma}"))
        ours = f"{server.min_batch_size:g}"
        comparisons.append(Comparison(f"least stable K, gamma = {gamma}", least, ours, "(26) gives this"))
        ours = f"({size:g}, {timer:.0f}), {cost:.3f}"
        comparisons.append(Comparison(f"best (K, tau) and cost, gamma = {gamma}", printed, ours))
        if math.isfinite(size):
            marks.append(Mark(f"least: K = {size:g}", size, cost, curve=number))
    return FigureData(
        "fig7",
        PlotContents(
            "Figure 7. The slower the transfers, the larger the best batch",
            "batch size K (jobs)",
            "cost (per second)",
            curves,
            f"With the best timer. Transfers take time: gamma of them per second. {SERVER}; {COSTS} = 0.1. "
            "The paper's best: K = 12, 17 and infinity.",
            log_x=True,
            log_y=True,
            highest=60,
            marks=marks,
        ),
        comparisons,
    )


def _jobs(server: StreamServer, method: str) -> float:
    return solve(server, method, 1e-10).mean_jobs


def _matrix_analytic_jobs(server: StreamServer) -> float:
    return moments(server, solve_matrix_analytic(server).boundary).mean_jobs


def matrix_analytic() -> FigureData:
    """Section 4's note: solution times of the matrix-analytic method, the iteration and ``auto``."""
    sizes = (2, 5, 10, 25, 50, 100)
    times: dict[str, list[float]] = {"matrix-analytic": [], "iteration (section 4)": [], "auto": []}
    comparisons = []
    for size in sizes:
        server = StreamServer(ARRIVALS, SERVICES, size, 600)
        solve(server)  # compiles, so that the timings below do not
        tasks: dict[str, Callable[[], float]] = {
            "matrix-analytic": partial(_matrix_analytic_jobs, server),
            "iteration (section 4)": partial(_jobs, server, "iterative"),
            "auto": partial(_jobs, server, "auto"),
        }
        jobs = {}
        for name, task in tasks.items():
            lasted = []
            for _ in range(3):
                started = perf_counter()
                jobs[name] = task()
                lasted.append(perf_counter() - started)
            times[name].append(1000 * sorted(lasted)[1])
        difference = abs(jobs["matrix-analytic"] / jobs["auto"] - 1)
        steps = solve_matrix_analytic(server).steps
        comparisons.append(
            Comparison(
                f"K = {size}: {steps} steps for G",
                "O(K^5) per step",
                f"L differs by {difference:.0e}; {times['matrix-analytic'][-1]:.1f} ms, auto {times['auto'][-1]:.1f} ms",
                "one block of rank one: O(K^3) per step" if size == 2 else "",
            )
        )
    return FigureData(
        "matrix-analytic",
        PlotContents(
            "Section 4's note. The time to solve grows with the batch; that of auto hardly",
            "batch size K (jobs)",
            "time to solve (ms, median of 3, measured here)",
            [Curve(name, sizes, values, "o-") for name, values in times.items()],
            f"Instantaneous transfers, tau = 600. {SERVER}.",
            log_x=True,
            log_y=True,
        ),
        comparisons,
    )


FIGURES: dict[str, Callable[[], FigureData]] = {
    "fig2": figure_2,
    "fig3": figure_3,
    "fig4": figure_4,
    "fig5": figure_5,
    "fig6": figure_6,
    "fig7": figure_7,
    "matrix-analytic": matrix_analytic,
    "allocation": allocation,
    "allocation-transfers": allocation_transfers,
}
