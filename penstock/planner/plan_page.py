"""A self-contained page on a plan: its settings, what limits the query, the expected figures, and the curve of choices."""

from html import escape
from typing import TYPE_CHECKING

import msgspec

from penstock.app.display import rounded
from penstock.planner.page import CHOSEN, CURVE, TODAY, assumed, figures, limits, settings
from penstock.planner.prediction import Prediction
from penstock.planner.prices import Prices
from penstock.web.document import document

if TYPE_CHECKING:
    from penstock.planner.planning import Planning

THRESHOLDS = "#cc79a7"


def plan_page(planning: "Planning", source: str) -> str:
    """The page as HTML that needs no other file."""
    plan, name = planning.plan, planning.plan.application or source
    goal = _goal(planning)
    held = "" if plan.holds_to is None else f" It is expected to hold up to {rounded(plan.holds_to)} rows per second."
    chosen = planning.chosen.setting.options() | ({} if plan.cores is None else {"cores": str(plan.cores)})
    file = msgspec.json.format(msgspec.json.encode(plan), indent=2).decode()
    parts = [
        f"<h1>{escape(name)}: a plan for {escape(goal)}</h1>",
        f"<p>{escape(plan.because + held)}</p>",
        "<h2>What it sets</h2>" + settings(chosen),
        limits(planning.verdicts),
        "" if planning.grouping is None else f"<h2>Queries</h2><p>{escape(planning.grouping.reason)}</p>",
        figures({}, planning.today, planning.chosen),
        f"<h2>{escape(_figure(planning)[0])}, by time between micro-batches</h2>" + _curve(planning),
        _map(planning),
        assumed(plan.assumed),
        f"<h2>The plan</h2><pre>{escape(file)}</pre>",
    ]
    return document(f"{name}: a plan for {goal}", parts)


def _goal(planning: "Planning") -> str:
    if isinstance(planning.goal, Prices):
        return f"the least cost at {planning.goal.holding:g} per row and second and {planning.goal.transfer:g} per micro-batch"
    return f"a {planning.goal.name} of {planning.goal.seconds:g} s"


def _figure(planning: "Planning") -> tuple[str, str]:
    """The figure that the goal is about, in words, and as the label of an axis with its unit."""
    if isinstance(planning.goal, Prices):
        return "Cost", "cost per second (predicted)"
    return f"{planning.goal.name} of the latency", f"{planning.goal.name} (s, predicted)"


def _value(planning: "Planning", one: Prediction) -> float:
    if isinstance(planning.goal, Prices):
        return planning.goal.per_second(one)
    return float(getattr(one, planning.goal.name))


def _between(one: Prediction) -> float:
    """Seconds between micro-batches."""
    return one.rows_per_batch / one.rate


def _map(planning: "Planning") -> str:
    """A map of the cost over thresholds and delays; empty unless gates were tried."""
    gates = [gate for gate in planning.tried if gate.setting.min_rows]
    if not gates:
        return ""
    from penstock.queueing.plot import Plot  # which needs matplotlib

    figure = Plot(8, 4.2)
    axes = figure.add_subplot()
    rows, delays = ([getattr(gate.setting, name) for gate in gates] for name in ("min_rows", "max_delay"))
    dots = axes.scatter(rows, delays, c=[_value(planning, gate) for gate in gates], cmap="cividis_r", marker="s", s=150)
    for label, marker, point in (("today", "X", planning.today), ("chosen", "o", planning.chosen)):
        if point is not None and point.setting.min_rows:
            axes.plot(
                [point.setting.min_rows],
                [point.setting.delay],
                marker=marker,
                markersize=18,
                markerfacecolor="none",
                markeredgecolor=CHOSEN,
                markeredgewidth=2.5,
                linestyle="none",
                label=label,
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}")
    axes.set_xlabel("threshold K (rows)")
    axes.set_ylabel("delay (s)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.colorbar(dots, label=_figure(planning)[1])
    if axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return f"<h2>{escape(_figure(planning)[0])}, by threshold and delay</h2>" + figure.svg()


def _curve(planning: "Planning") -> str:
    """The figure of the goal over the time between micro-batches, of all that was tried."""
    from penstock.queueing.plot import Plot  # which needs matplotlib

    figure = Plot(8, 4.2)
    axes = figure.add_subplot()
    kinds = (
        ("a trigger interval", CURVE, [tried for tried in planning.tried if not tried.setting.min_rows]),
        ("a threshold of rows", THRESHOLDS, [tried for tried in planning.tried if tried.setting.min_rows]),
    )
    for label, color, predictions in kinds:
        if predictions:
            ordered = sorted(predictions, key=_between)
            values = [_value(planning, tried) for tried in ordered]
            axes.plot([_between(tried) for tried in ordered], values, color=color, marker=".", label=f"with {label}")
    if not isinstance(planning.goal, Prices):
        axes.axhline(planning.goal.seconds, color="#444444", linestyle=":", linewidth=1, label="the target")
    for label, color, marker, point in (("today", TODAY, "s", planning.today), ("chosen", CHOSEN, "o", planning.chosen)):
        if point is not None:
            axes.plot([_between(point)], [_value(planning, point)], color=color, marker=marker, linestyle="none", label=label)
    axes.set_xlabel("time between micro-batches (s)")
    axes.set_ylabel(_figure(planning)[1])
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure.svg()
