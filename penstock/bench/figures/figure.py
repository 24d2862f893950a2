"""A figure of a paper, as we get it: curves, and the values that the paper states beside ours."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.bench.figures.plots import Curve, draw
from penstock.errors import SinkError


@dataclass(frozen=True)
class Comparison:
    """A value that the paper states, beside ours.

    Parameters
    ----------
    what: the quantity.
    stated: as printed in the paper, or "".
    ours: computed here.
    why: where the difference comes from, if there is one.
    """

    what: str
    stated: str
    ours: str
    why: str = ""


@dataclass(frozen=True)
class FigureData:
    """One figure: its curves and its stated values."""

    name: str
    title: str
    x_label: str
    y_label: str
    curves: Sequence[Curve]
    comparisons: Sequence[Comparison]
    logarithmic: bool = False
    marks: dict[str, tuple[float, float]] = field(default_factory=dict)
    highest: float | None = None

    def write(self, directory: Path) -> None:
        """Write NAME.json, NAME.svg and NAME.png.

        Raises
        ------
        SinkError: the directory cannot be written.
        """
        data = {
            "figure": self.name,
            "title": self.title,
            "curves": [{"label": c.label, self.x_label: list(c.x), self.y_label: list(c.y)} for c in self.curves],
            "comparisons": [vars(c) for c in self.comparisons],
        }
        for ending in (".svg", ".png"):
            draw(
                directory / f"{self.name}{ending}",
                self.title,
                self.x_label,
                self.y_label,
                self.curves,
                logarithmic=self.logarithmic,
                marks=self.marks,
                highest=self.highest,
            )
        path = directory / f"{self.name}.json"
        try:
            path.write_text(json.dumps(data, indent=1) + "\n")
        except OSError as error:
            raise SinkError(f"{path} cannot be written ({error.strerror}); choose another place.") from error
