"""Plots of settings and their predicted cost or waiting, as PNG or SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from penstock.errors import ConfigurationError, SinkError

matplotlib.rcParams["svg.hashsalt"] = "penstock"  # equal data, equal file
COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#8e5572", "#b58a2c", "#4a4e69")


@dataclass(frozen=True)
class Curve:
    """One line of a plot.

    Parameters
    ----------
    label: for the legend; none if empty.
    x, y: equally many numbers.
    style: a matplotlib line style, as ``"-"``, ``"--"`` or ``"o"``.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "-"


def draw(
    path: Path,
    title: str,
    x_label: str,
    y_label: str,
    curves: Sequence[Curve],
    *,
    logarithmic: bool = False,
    highest: float | None = None,
    marks: Mapping[str, tuple[float, float]] | None = None,
) -> None:
    """Write a plot of curves to ``path``, which ends in .png or .svg.

    ``highest`` cuts the vertical axis; ``marks`` are points with a label.

    Raises
    ------
    ConfigurationError: another ending.
    SinkError: the file cannot be written.
    """
    require_drawable(path)
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.subplots()
    for index, curve in enumerate(curves):
        axes.plot(curve.x, curve.y, curve.style, label=curve.label, color=COLOURS[index % len(COLOURS)], markersize=4)
    for index, (label, (x, y)) in enumerate((marks or {}).items()):
        axes.plot([x], [y], "o", color=COLOURS[index % len(COLOURS)], markersize=6)
        axes.annotate(label, (x, y), textcoords="offset points", xytext=(6, 8), fontsize=8)
    if logarithmic:
        axes.set_xscale("log")
    if highest is not None:
        axes.set_ylim(top=highest)
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if any(curve.label for curve in curves):
        axes.legend(frameon=False, fontsize=9)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(path, dpi=150, metadata=metadata)
    except OSError as error:
        raise SinkError(f"{path} cannot be written ({error.strerror}); choose another place.") from error


def require_drawable(path: Path) -> None:
    """Raise ``ConfigurationError`` unless the name ends in .png or .svg."""
    if path.suffix not in (".png", ".svg"):
        raise ConfigurationError(f"{path}: choose a name that ends in .png or .svg.")
