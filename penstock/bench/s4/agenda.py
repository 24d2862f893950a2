"""What is still to be measured: cells of the grid, then trials of searches, then faults, those of a cluster size together."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from penstock.bench.s4.cells import Cell
from penstock.bench.s4.search import Search

USAGE = (
    "usage",
    "isolated",
    "notes",
    "version",
    "at",
    "nodes",
    "keys",
    "rate",
    "events",
    "words",
    "repetition",
    "trial",
    "throughput",
    "seconds",
    "lost",
    "duplicated",
)


class Agenda:
    """Cells and searches over a directory of results, each cell a file; what has been measured is not measured again.

    A cell that failed before is measured again, once each time; a trial that did is over, for its rate was too high.

    Parameters
    ----------
    directory: of cells/, which exists.
    """

    def __init__(self, cells: Sequence[Cell], searches: Sequence[Search], directory: Path) -> None:
        self._cells, self._searches, self._directory = cells, searches, directory / "cells"
        self.failed: list[str] = []
        self._sizes = sorted({cell.nodes for cell in cells} | {search.nodes for search in searches})

    def next(self) -> Cell | None:
        """The next cell; None where all is measured."""
        found = read_cells(self._directory.parent)
        over = {cell["name"] for cell in found if "error" not in cell} | set(self.failed)
        for nodes in self._sizes:
            for kind in ("grid", "trial", "faults"):
                if kind == "trial":
                    trials = (search.next(found) for search in self._searches if search.nodes == nodes)
                    if trial := next((trial for trial in trials if trial is not None), None):
                        return trial
                    continue
                for cell in self._cells:
                    if (cell.nodes, cell.kind) == (nodes, kind) and cell.name not in over:
                        return cell
        return None

    @property
    def left(self) -> int:
        """How many cells are to come, at most."""
        found = read_cells(self._directory.parent)
        over = {cell["name"] for cell in found if "error" not in cell} | set(self.failed)
        tried = len([cell for cell in found if cell["kind"] == "grid" and cell["trial"]])
        return sum(cell.name not in over for cell in self._cells) + sum(s.trials for s in self._searches) - tried

    def record(self, cell: Cell, result: dict[str, Any]) -> None:
        """Write a cell's result; a cell of the grid is one of resources, too."""
        if cell.kind == "grid":
            name = cell.name.replace(cell.kind, "resources", 1)
            self._write(name, {field: result[field] for field in USAGE} | {"kind": "resources"})
        self._write(cell.name, result)

    def fail(self, cell: Cell, error: str) -> None:
        """Write that a cell could not be measured."""
        self._write(cell.name, {**msgspec.to_builtins(cell), "error": error})
        self.failed.append(cell.name)

    def _write(self, name: str, result: dict[str, Any]) -> None:
        path = self._directory / f"{name}.json"
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(result | {"name": name}, indent=1) + "\n")
        draft.rename(path)


def read_cells(directory: Path) -> list[dict[str, Any]]:
    """The cells that have been measured, or have failed."""
    return [json.loads(path.read_text()) for path in sorted((directory / "cells").glob("*.json"))]
