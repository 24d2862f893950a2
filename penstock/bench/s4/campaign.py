"""A grid of cells, measured one after another; what has been measured is not measured again."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from penstock.bench.cluster import Cluster
from penstock.bench.s4.cells import Cell
from penstock.bench.s4.given import GivenCluster
from penstock.bench.s4.report import Report, read_cells, write_parquet
from penstock.bench.s4.testbed import AGEING, WARM_UP, Testbed, summary
from penstock.bench.s4.workload import require_example, write_words
from penstock.errors import ClusterError, ConfigurationError, SinkError

USAGE = ("usage", "isolated", "notes", "version", "at", "nodes", "keys", "rate", "events", "words", "repetition", "throughput", "seconds",
         "lost", "duplicated")  # fmt: skip


def campaign(
    cells: Sequence[Cell], directory: Path, *, cpu: float | None, memory: int, isolated: bool | None, master: str | None,
    command: str, say: Callable[[str], None],
) -> int:  # fmt: skip
    """Measure what is missing, and write the report; returns how many cells failed.

    Parameters
    ----------
    directory: of cells/, the report and the parts' logs.
    cpu, memory, isolated: of each node; see `Cluster`. master: a cluster that exists, instead.
    say: is told of progress.

    Raises
    ------
    ConfigurationError: this is no clone, or the directory has cells that were measured otherwise.
    ClusterError: two testbeds in a row do not come up. SinkError: the directory cannot be written.
    """
    require_example()
    try:
        (directory / "cells").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SinkError(f"{directory} cannot be made ({error.strerror}); choose another --output.") from error
    _keep_setting(directory, {"cpu": cpu, "memory": memory, "isolated": isolated, "master": master})
    if master is not None:
        most = max(cell.nodes for cell in cells)
        kept = [cell for cell in cells if cell.kind == "grid" and cell.nodes == most]
        say(
            f"{len(cells) - len(kept)} cells are left out: the nodes of a given cluster can be neither counted nor killed."
        )
        cells = kept
    missing = [cell for cell in cells if not _measured(directory, cell)]
    progress = Progress(len(missing), say)
    started = True
    for nodes, group in groupby(missing, key=lambda cell: cell.nodes):
        left = list(group)
        most = max(AGEING, *(cell.words for cell in left))
        words = directory / f"words-{most}.txt"
        write_words(words, most + WARM_UP)
        while left:
            say(f"Starting a cluster of {nodes} nodes ...")
            place = directory / "testbed"
            cluster = (
                Cluster(nodes, cpu=cpu, memory=memory, isolated=isolated, directory=place / "cluster")
                if master is None
                else GivenCluster(master)
            )
            try:
                with Testbed(cluster, nodes, place, words) as testbed:
                    started = True
                    while left:
                        say(f"{left[0].name} ...")
                        result = testbed.measure(left[0])
                        _record(directory, left.pop(0), result)
                        progress.note(summary(result))
            except ClusterError as error:  # it is recorded, and the next cells get a testbed of their own
                if not started:
                    raise  # twice in a row: the next would not start either
                started = False
                cell = left.pop(0)
                _write(
                    _path(directory, cell.kind, cell),
                    {**msgspec.to_builtins(cell), "name": cell.name, "error": str(error)},
                )
                progress.note(str(error), failed=True)
    shutil.rmtree(directory / "testbed", ignore_errors=True)
    found = read_cells(directory)
    write_parquet(directory, found)
    Report(found, command).write(directory)
    return progress.failed


class Progress:
    """How many cells are over, and how long the others will take."""

    def __init__(self, cells: int, say: Callable[[str], None]) -> None:
        self.failed = 0
        self._cells, self._say, self._over, self._began = cells, say, 0, time.monotonic()

    def note(self, what: str, *, failed: bool = False) -> None:
        """A cell is over."""
        self._over += 1
        self.failed += failed
        left = self._cells - self._over
        minutes = left * (time.monotonic() - self._began) / self._over / 60
        self._say(f"    {what}" + (f"; {left} cells left, about {minutes:.0f} minutes" if left else ""))


def _keep_setting(directory: Path, setting: dict[str, Any]) -> None:
    """Note how cells are measured, and refuse to mix them with others."""
    path = directory / "setting.json"
    if path.exists() and json.loads(path.read_text()) != setting:
        raise ConfigurationError(
            f"{directory} has cells that were measured with {path.read_text().strip()}; choose another --output."
        )
    path.write_text(json.dumps(setting) + "\n")


def _measured(directory: Path, cell: Cell) -> bool:
    """Whether a cell has been measured, and not failed."""
    path = _path(directory, cell.kind, cell)
    return path.exists() and "error" not in json.loads(path.read_text())


def _record(directory: Path, cell: Cell, result: dict[str, Any]) -> None:
    """Write a cell's result; a cell of the grid is one of resources, too."""
    if cell.kind == "grid":
        usage = {name: result[name] for name in USAGE} | {"kind": "resources"}
        path = _path(directory, "resources", cell)
        _write(path, usage | {"name": path.stem})
    _write(_path(directory, cell.kind, cell), result)


def _path(directory: Path, kind: str, cell: Cell) -> Path:
    return directory / "cells" / f"{cell.name.replace(cell.kind, kind, 1)}.json"


def _write(path: Path, result: dict[str, Any]) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(result, indent=1) + "\n")
    draft.rename(path)
