"""A grid of cells and searches, measured one after another; what has been measured is not measured again."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.bench.cluster import Cluster
from penstock.bench.s4.agenda import Agenda, read_cells
from penstock.bench.s4.cells import Cell
from penstock.bench.s4.given import GivenCluster
from penstock.bench.s4.report import Report, write_parquet
from penstock.bench.s4.search import Search
from penstock.bench.s4.testbed import Testbed, summary
from penstock.bench.s4.workload import require_example
from penstock.errors import ClusterError, ConfigurationError, SinkError


def campaign(
    cells: Sequence[Cell],
    searches: Sequence[Search],
    directory: Path,
    *,
    cpu: float | None,
    memory: int,
    isolated: bool | None,
    master: str | None,
    command: str,
    say: Callable[[str], None],
) -> int:
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
        say(f"{len(cells) - len(kept)} cells are left out: the nodes of a given cluster can be neither counted nor killed.")
        cells, searches = kept, [search for search in searches if search.nodes == most]
    agenda = Agenda(cells, searches, directory)
    progress = Progress(agenda, say)
    came_up = True
    cell = agenda.next()
    while cell is not None:
        say("Starting a cluster ...")
        place = directory / "testbed"
        cluster = (
            Cluster(cell.nodes, cpu=cpu, memory=memory, isolated=isolated, directory=place / "cluster")
            if master is None
            else GivenCluster(master, memory)
        )
        try:
            with Testbed(cluster, cell.nodes, place) as testbed:
                came_up = True
                while cell is not None:
                    testbed.grow(cell.nodes)
                    say(f"{cell.name} ...")
                    result = testbed.measure(cell)
                    agenda.record(cell, result)
                    progress.note(summary(result))
                    cell = agenda.next()
        except ClusterError as error:  # it is recorded, and the next cells get a testbed of their own
            if not came_up:
                raise  # twice in a row: the next would not come up either
            came_up = False
            assert cell is not None
            agenda.fail(cell, str(error))
            progress.note(str(error))
            cell = agenda.next()
    shutil.rmtree(directory / "testbed", ignore_errors=True)
    found = read_cells(directory)
    write_parquet(directory, found)
    Report(found, command).write(directory)
    return len(agenda.failed)


class Progress:
    """How many cells are over, and how long the others will take."""

    def __init__(self, agenda: Agenda, say: Callable[[str], None]) -> None:
        self._agenda, self._say, self._over, self._began = agenda, say, 0, time.monotonic()

    def note(self, what: str) -> None:
        """A cell is over."""
        self._over += 1
        left = self._agenda.left
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
