"""The cells of a campaign, each a run of the paper's application at one setting, and the grids of cells."""

from collections.abc import Iterator
from itertools import product
from typing import Literal

import msgspec

from penstock.errors import ConfigurationError

Kind = Literal["grid", "faults"]
Scale = Literal["quick", "standard", "full"]
Kill = Literal["", "1 of 2", "1 of 3", "2 of 3", "1 of 2, back again", "driver"]

SMALL, LARGE = 200_000, 2_000_000
"""Numbers of words in the paper's "10 MB" and "100 MB"."""


class Cell(msgspec.Struct, frozen=True):
    """The setting of one run.

    Args:
        nodes: number of workers.
        keys: keys of each receiver, by which events are multiplied.
        rate: words injected per second; None for as fast as the broker takes them, which shows the cluster's capacity.
        words: number of words, injected and measured.
        repetition: from 1.
        kill: what is killed when half of the words are acknowledged.
        trial: whether the cell belongs to a search.
    """

    kind: Kind
    nodes: int
    keys: int
    rate: float | None
    words: int
    repetition: int = 1
    kill: Kill = ""
    trial: bool = False

    @property
    def name(self) -> str:
        """The cell's name, also of its file of results."""
        rate = "max" if self.rate is None else f"{self.rate:g}"
        kill = f"-kill-{self.kill.replace(', ', '-').replace(' ', '-')}" if self.kill else ""
        kind = f"{self.kind}-trial" if self.trial else self.kind
        return f"{kind}-nodes{self.nodes}-keys{self.keys}-rate{rate}-words{self.words}{kill}-{self.repetition}"


KILLS: tuple[tuple[int, Kill], ...] = ((2, "1 of 2"), (3, "1 of 3"), (3, "2 of 3"), (2, "1 of 2, back again"), (2, "driver"))


def cells_of(scale: Scale) -> list[Cell]:
    """The cells of a scale, sorted by cluster size.

    Raises:
        ConfigurationError: the scale is unknown.
    """
    makers = {"quick": _quick, "standard": _standard, "full": _full}
    if scale not in makers:
        raise ConfigurationError(f"There is no scale {scale!r}; choose {', '.join(makers)}.")
    return sorted(makers[scale](), key=lambda cell: (cell.nodes, cell.kind == "faults"))


def _quick() -> Iterator[Cell]:
    """Each kind of cell once, with few words."""
    for nodes in (1, 2, 3):
        yield Cell("grid", nodes, 8, 500, 7_500)
        yield Cell("grid", nodes, 8, None, 30_000)
    for nodes, kill in KILLS:
        yield Cell("faults", nodes, 4, 500, 15_000, kill=kill)


def _standard() -> Iterator[Cell]:
    """The paper's grid with a twentieth of its words, so that a cell takes seconds instead of minutes."""
    for nodes, keys in product((1, 2, 3), (1, 2, 4, 8)):
        for rate in (500, 1000):
            yield Cell("grid", nodes, keys, rate, 10_000)
        for repetition in range(1, 4 if keys == 8 else 2):
            yield Cell("grid", nodes, keys, None, 40_000, repetition)
    for repetition, (nodes, kill) in product((1, 2), KILLS):
        yield Cell("faults", nodes, 4, 1000, 30_000, repetition, kill)


def _full() -> Iterator[Cell]:
    """The paper's grid: both sizes, both rates, five repetitions."""
    for nodes, keys, repetition in product((1, 2, 3), (1, 2, 4, 8), range(1, 6)):
        for rate, words in product((500, 1000), (SMALL, LARGE)):
            yield Cell("grid", nodes, keys, rate, words, repetition)
        yield Cell("grid", nodes, keys, None, SMALL, repetition)
    for repetition, (nodes, kill) in product(range(1, 6), KILLS):
        yield Cell("faults", nodes, 4, 1000, SMALL, repetition, kill)
