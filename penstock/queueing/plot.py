"""Plots that a notebook shows as SVG, and that `savefig` saves."""

from collections.abc import Callable
from io import StringIO

import matplotlib
import numpy as np
from matplotlib.figure import Figure

POINTS = (0.01, *np.arange(0.05, 0.95, 0.05).round(2).tolist(), 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.999)
MARKED = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#444444"
"""Colours that colour-blind readers can tell apart; the first two are from the palette of Okabe and Ito."""


class Plot(Figure):
    """A matplotlib figure that a notebook draws as SVG."""

    def __init__(self, width: float = 7.0, height: float = 3.6) -> None:
        super().__init__(figsize=(width, height), layout="constrained")

    def svg(self) -> str:
        """Draw the figure as an ``<svg>`` element for HTML."""
        drawn = StringIO()
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "penstock"}):
            self.savefig(drawn, format="svg", metadata={"Date": None})
        return drawn.getvalue()[drawn.getvalue().index("<svg") :]

    _repr_svg_ = svg


def exceedance(quantile: Callable[[float], float], mean: float, of: str) -> Plot:
    """Plot the fraction of events that stay longer than t, on a logarithmic scale, with the mean, p50, p95 and p99.

    Args:
        quantile: gives seconds for a probability.
        mean: in seconds.
        of: plural noun for the axis, such as ``"jobs"``.
    """
    figure = Plot()
    axes = figure.add_subplot()
    axes.plot([quantile(p) for p in POINTS], [1 - p for p in POINTS], color=BLUE)
    for name, p in MARKED.items():
        seconds = quantile(p)
        axes.plot([seconds], [1 - p], color=BLUE, marker="o")
        axes.annotate(f"{name} {seconds:.3g} s", (seconds, 1 - p), xytext=(6, 4), textcoords="offset points", fontsize=9)
    axes.axvline(mean, color=ORANGE, linestyle="--", linewidth=1)
    axes.annotate(f"mean {mean:.3g} s", (mean, 0.0012), xytext=(4, 0), textcoords="offset points", fontsize=9, color=ORANGE)
    axes.set(yscale="log", ylim=(0.001, 1.2), xlim=(0, None), xlabel="seconds", ylabel=f"share of {of} that stay longer")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
