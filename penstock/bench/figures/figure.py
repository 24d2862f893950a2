"""A reproduced figure of a paper: its curves, and the paper's stated values beside ours."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.bench.figures.plots import PlotContents, draw
from penstock.errors import SinkError


@dataclass(frozen=True)
class Comparison:
    """A value that the paper states, beside ours.

    Args:
        what: the quantity.
        stated: the value as printed in the paper, or "".
        ours: the value computed here.
        why: the reason for the difference, if there is one.
    """

    what: str
    stated: str
    ours: str
    why: str = ""


@dataclass(frozen=True)
class FigureData:
    """One reproduced figure: its plot and its comparisons with the paper."""

    name: str
    plot: PlotContents
    comparisons: Sequence[Comparison]

    def write(self, directory: Path) -> None:
        """Write NAME.json, NAME.svg and NAME.png.

        Raises:
            SinkError: the directory cannot be written.
        """
        plot = self.plot
        data = {
            "figure": self.name,
            "title": plot.title,
            "note": plot.note,
            "curves": [{"label": c.label, plot.x_label: list(c.x), plot.y_label: list(c.y)} for c in plot.curves],
            "comparisons": [vars(c) for c in self.comparisons],
        }
        for ending in (".svg", ".png"):
            draw(directory / f"{self.name}{ending}", plot)
        path = directory / f"{self.name}.json"
        try:
            path.write_text(json.dumps(data, indent=1) + "\n")
        except OSError as error:
            raise SinkError(f"{path} cannot be written ({error.strerror}); choose another place.") from error
