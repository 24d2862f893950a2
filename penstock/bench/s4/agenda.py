"""The order of measurements: by cluster size, first cells of the grid, then trials of searches, then faults."""

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
    """Cells and searches, and a directory with a file per result; a cell with a result is not measured again.

    A cell that failed in an earlier campaign is measured once more; a failed trial is not, because its rate was too high.

    Args:
        directory: the directory of cells/, which must exist.
    """

    def __init__(self, cells: Sequence[Cell], searches: Sequence[Search], directory: Path) -> None:
        self._cells, self._searches, self._directory = cells, searches, directory / "cells"
        self.failed: list[str] = []
        self._sizes = sorted({cell.nodes for cell in cells} | {search.nodes for search in searches})

    def next(self) -> Cell | None:
        """The next cell to measure; None if all have been."""
        results = read_cells(self._directory.parent)
        finished = {cell["name"] for cell in results if "error" not in cell} | set(self.failed)
        for nodes in self._sizes:
            for kind in ("grid", "trial", "faults"):
                if kind == "trial":
                    trials = (search.next(results) for search in self._searches if search.nodes == nodes)
                    if trial := next((trial for trial in trials if trial is not None), None):
                        return trial
                    continue
                for cell in self._cells:
                    if (cell.nodes, cell.kind) == (nodes, kind) and cell.name not in finished:
                        return cell
        return None

    @property
    def left(self) -> int:
        """The largest number of cells still to be measured."""
        results = read_cells(self._directory.parent)
        finished = {cell["name"] for cell in results if "error" not in cell} | set(self.failed)
        trials = len([cell for cell in results if cell["kind"] == "grid" and cell["trial"]])
        return sum(cell.name not in finished for cell in self._cells) + sum(s.trials for s in self._searches) - trials

    def record(self, cell: Cell, result: dict[str, Any]) -> None:
        """Write a cell's result; a cell of the grid also gives a result of the kind resources."""
        if cell.kind == "grid":
            name = cell.name.replace(cell.kind, "resources", 1)
            self._write(name, {field: result[field] for field in USAGE} | {"kind": "resources"})
        self._write(cell.name, result)

    def fail(self, cell: Cell, error: str) -> None:
        """Write the error of a cell that could not be measured."""
        self._write(cell.name, {**msgspec.to_builtins(cell), "error": error})
        self.failed.append(cell.name)

    def _write(self, name: str, result: dict[str, Any]) -> None:
        path = self._directory / f"{name}.json"
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(result | {"name": name}, indent=1) + "\n")
        draft.rename(path)


def read_cells(directory: Path) -> list[dict[str, Any]]:
    """Read the results of all cells that were measured or failed."""
    return [json.loads(path.read_text()) for path in sorted((directory / "cells").glob("*.json"))]
