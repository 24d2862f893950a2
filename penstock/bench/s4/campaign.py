"""A campaign: measures cells and searches one after another, except those that have results already."""

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
from penstock.bench.s4.report import CellReport, write_parquet
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
    """Measure cells without results, and write the report; return the number of cells that failed.

    Args:
        directory: for cells/, the report and the logs.
        cpu, memory, isolated: limits of each node; see `Cluster`.
        master: URL of an existing cluster to use instead.
        say: called with lines about the progress.

    Raises:
        ConfigurationError: the examples are missing, or the directory has cells that were measured with other settings.
        ClusterError: two testbeds in a row do not start.
        SinkError: the directory cannot be written.
    """
    require_example()
    try:
        (directory / "cells").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SinkError(f"{directory} cannot be made ({error.strerror}); choose another --output.") from error
    _keep_setting(directory, {"cpu": cpu, "memory": memory, "isolated": isolated, "master": master})
    if master is not None:
        most_nodes = max(cell.nodes for cell in cells)
        usable = [cell for cell in cells if cell.kind == "grid" and cell.nodes == most_nodes]
        say(f"{len(cells) - len(usable)} cells are left out: the nodes of a given cluster can be neither counted nor killed.")
        cells, searches = usable, [search for search in searches if search.nodes == most_nodes]
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
        except ClusterError as error:  # record the failure, and measure the next cells on a new testbed
            if not came_up:
                raise  # twice in a row: another testbed would not start either
            came_up = False
            assert cell is not None
            agenda.fail(cell, str(error))
            progress.note(str(error))
            cell = agenda.next()
    shutil.rmtree(directory / "testbed", ignore_errors=True)
    results = read_cells(directory)
    write_parquet(directory, results)
    CellReport(results, command).write(directory)
    return len(agenda.failed)


class Progress:
    """Reports the number of cells to come, and an estimate of the time that they will take."""

    def __init__(self, agenda: Agenda, say: Callable[[str], None]) -> None:
        self._agenda, self._say, self._over, self._began = agenda, say, 0, time.monotonic()

    def note(self, what: str) -> None:
        """Report the end of a cell, with a summary."""
        self._over += 1
        cells_left = self._agenda.left
        minutes = cells_left * (time.monotonic() - self._began) / self._over / 60
        self._say(f"    {what}" + (f"; {cells_left} cells left, about {minutes:.0f} minutes" if cells_left else ""))


def _keep_setting(directory: Path, setting: dict[str, Any]) -> None:
    """Write the settings of the campaign, or raise if the directory has cells with other settings."""
    path = directory / "setting.json"
    if path.exists() and json.loads(path.read_text()) != setting:
        raise ConfigurationError(
            f"{directory} has cells that were measured with {path.read_text().strip()}; choose another --output."
        )
    path.write_text(json.dumps(setting) + "\n")
