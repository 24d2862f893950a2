"""Plots of predicted cost or waiting over a parameter, as PNG or SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from penstock.allocation.drawing import STYLE, require_picture, save_picture

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8c6d00", "#56b4e9", "#333333", "#e69f00")
"""Colours that colour-blind readers tell apart (Okabe and Ito)."""
MARKERS = "osD^vPX*"
FAINT = "#52606d"


@dataclass(frozen=True)
class Curve:
    """One line of a plot.

    Args:
        label: label in the legend; an empty one is left out.
        x, y: equally many numbers.
        style: a matplotlib line style, such as ``"-"`` or ``"--"``; ``"o"`` for points without a line, such as at integers.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "-"


@dataclass(frozen=True)
class Mark:
    """A labelled point: an optimum that we computed, or one that a paper states.

    Args:
        y: None if only x is known.
        stated: whether it is a paper's; such a point is drawn hollow, without a label.
        curve: index of the curve whose colour it has.
    """

    label: str
    x: float
    y: float | None = None
    stated: bool = False
    curve: int = 0


@dataclass(frozen=True)
class PlotContents:
    """The contents of a plot.

    Args:
        title: the statement that the plot shows.
        note: the conditions, and the meaning of symbols.
        log_x, log_y: whether an axis is logarithmic.
        highest: upper limit of the vertical axis.
    """

    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    note: str = ""
    log_x: bool = False
    log_y: bool = False
    highest: float | None = None
    marks: Sequence[Mark] = ()


@matplotlib.rc_context(STYLE)
def draw(path: Path, plot: PlotContents) -> None:
    """Write a plot to ``path``, which ends in .png or .svg.

    Raises:
        ConfigurationError: the path has another ending.
        SinkError: the file cannot be written.
    """
    require_picture(path)
    figure = Figure(figsize=(7.6, 5.0), layout="constrained")
    axes = figure.subplots()
    for index, curve in enumerate(plot.curves):
        points = {"marker": MARKERS[index % len(MARKERS)], "markersize": 4, "linestyle": "none"}
        joined = {"linestyle": curve.style.strip("o") or "-", "marker": "o" if "o" in curve.style else None, "markersize": 4}
        style: Any = points if curve.style == "o" else joined
        axes.plot(curve.x, curve.y, label=curve.label, color=COLOURS[index % len(COLOURS)], **style)
    _scale(axes, plot)
    _mark(axes, plot.marks)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(alpha=0.25)
    axes.margins(y=0.09)
    axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(plot.title, fontsize=12, x=0.01, ha="left", wrap=True)
    if plot.note:
        axes.set_title(plot.note, fontsize=9, color=FAINT, loc="left", wrap=True)
    handles, labels = axes.get_legend_handles_labels()
    named = [(handle, label) for handle, label in zip(handles, labels, strict=True) if label]
    if named:
        figure.legend(*zip(*named, strict=True), frameon=False, fontsize=9, loc="outside lower center", ncols=4)
    save_picture(figure, path)


def _scale(axes: Axes, plot: PlotContents) -> None:
    for logarithmic, name in ((plot.log_x, "x"), (plot.log_y, "y")):
        if logarithmic:
            axis = getattr(axes, f"{name}axis")
            getattr(axes, f"set_{name}scale")("log")
            low, high = axis.get_view_interval()
            if high / low < 100:  # powers of ten alone would give only one or two labels
                axis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
            axis.set_minor_formatter(NullFormatter())
    if plot.highest is not None:
        axes.set_ylim(top=plot.highest)


def _mark(axes: Axes, marks: Sequence[Mark]) -> None:
    ours = [mark for mark in marks if not mark.stated]
    for mark in marks:
        colour = COLOURS[mark.curve % len(COLOURS)]
        if mark.y is None:
            axes.axvline(mark.x, color=colour, linestyle=":", linewidth=1)
            position: Any = {"xy": (mark.x, 0.98), "xycoords": axes.get_xaxis_transform(), "va": "top"}
            axes.annotate(mark.label, **position, textcoords="offset points", xytext=(4, 0), fontsize=8, color=colour)
            continue
        axes.plot(
            [mark.x],
            [mark.y],
            "D" if mark.stated else "o",
            color=colour,
            markersize=7 if mark.stated else 8,
            zorder=4,
            markerfacecolor="none" if mark.stated else colour,
            markeredgewidth=1.4,
        )
        if not mark.stated:  # the label goes below the point, where a minimum leaves room
            side = "center" if len(ours) == 1 else ("right", "left")[ours.index(mark) % 2]  # keeps neighbouring labels apart
            below: Any = {"textcoords": "offset points", "xytext": (0, -15), "ha": side}
            axes.annotate(mark.label, (mark.x, mark.y), fontsize=8, color=colour, **below)
    if any(mark.stated and mark.y is not None for mark in marks):
        axes.plot([], [], "D", color=FAINT, markerfacecolor="none", markeredgewidth=1.4, label="stated in the paper")
