"""Plots that show themselves in a notebook, and are saved with `savefig`."""

from collections.abc import Callable
from io import StringIO

import matplotlib
import numpy as np
from matplotlib.figure import Figure

POINTS = (0.01, *np.arange(0.05, 0.95, 0.05).round(2).tolist(), 0.95, 0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 0.999)
MARKED = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#444444"
"""Of Okabe and Ito's palette, which the colour-blind can tell apart."""


class Plot(Figure):
    """A figure of matplotlib's that a notebook draws as SVG."""

    def __init__(self, width: float = 7.0, height: float = 3.6) -> None:
        super().__init__(figsize=(width, height), layout="constrained")

    def svg(self) -> str:
        """As an element of HTML."""
        drawn = StringIO()
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "penstock"}):
            self.savefig(drawn, format="svg", metadata={"Date": None})
        return drawn.getvalue()[drawn.getvalue().index("<svg") :]

    _repr_svg_ = svg


def exceedance(quantile: Callable[[float], float], mean: float, of: str) -> Plot:
    """How many stay longer than how long, on a logarithmic scale, with the mean and the usual quantiles.

    Parameters
    ----------
    quantile: seconds by probability. of: what stays, for the axis.
    """
    figure = Plot()
    axes = figure.add_subplot()
    axes.plot([quantile(p) for p in POINTS], [1 - p for p in POINTS], color=BLUE)
    for name, p in MARKED.items():
        at = quantile(p)
        axes.plot([at], [1 - p], color=BLUE, marker="o")
        axes.annotate(f"{name} {at:.3g} s", (at, 1 - p), xytext=(6, 4), textcoords="offset points", fontsize=9)
    axes.axvline(mean, color=ORANGE, linestyle="--", linewidth=1)
    axes.annotate(f"mean {mean:.3g} s", (mean, 0.0012), xytext=(4, 0), textcoords="offset points", fontsize=9, color=ORANGE)
    axes.set(yscale="log", ylim=(0.001, 1.2), xlim=(0, None), xlabel="seconds", ylabel=f"share of {of} that stay longer")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
