"""What more nodes bring: measured on one to three, and by a model, which one node gives its costs, on ten and a hundred.

A node is half a core here, the driver has what it takes of the machine.

    python benchmarks/nodes.py [--cpu 0.5] [--output FILE.md]

A sum per key of 100,000 keys in the event dialect, from Parquet files, on a standalone cluster whose nodes have a network
namespace and a share of the processor each (`penstock.bench.cluster`), with one task at a time. It needs root.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import median

import numpy as np
from harness import HERE, tell
from numpy.typing import NDArray
from partitions import WARM_UP, readings, splitting
from schedule import MicroBatch, micro_batches
from scipy.optimize import nnls

from penstock.bench.cluster import Cluster

WORK = Path("data/benchmarks/nodes")
EVERY_S = 0.5
MEMORY_MB = 1536
LEARNED = [(200_000, 1), (20_000, 2), (200_000, 2), (200_000, 8), (20_000, 32), (200_000, 32)]
"""Rows of a micro-batch, and partitions, of the runs on one node to which the model is fitted."""
CHECKED = [(1, 200_000, 12), (2, 200_000, 12), (3, 200_000, 12), (2, 200_000, 2), (3, 200_000, 3), (3, 60_000, 6)]
"""Nodes, rows and partitions of the runs that it is checked with; none of them was learned from."""
LARGER = [1, 3, 10, 30, 100, 300]
ROWS_OF_NODE = 200_000


@dataclass(frozen=True)
class Run:
    """The warm micro-batches of a run.

    Args:
        driver: processor seconds that the driver uses for a micro-batch.
    """

    rows: int
    partitions: int
    batches: Sequence[MicroBatch]
    driver: float

    @property
    def seconds(self) -> float:
        """Of a micro-batch, the median."""
        return median(batch.seconds for batch in self.batches)

    def tasks(self, stage: int) -> float:
        """Seconds of a task of the first stage (0), which reads, or of the second, which has state; the mean."""
        return float(np.mean([task for batch in self.batches for task in _stages(batch)[stage]]))

    @property
    def readers(self) -> int:
        """The number of tasks of the first stage."""
        return len(_stages(self.batches[0])[0])

    @property
    def spread(self) -> float:
        """The standard deviation of a stage's tasks over their mean; the median over stages and micro-batches."""
        stages = [tasks for batch in self.batches for tasks in _stages(batch)]
        return median(float(np.std(tasks, ddof=1) / np.mean(tasks)) for tasks in stages if len(tasks) > 1)

    @property
    def besides(self) -> float:
        """Seconds of a micro-batch in which no task runs; the median. One node runs one task at a time."""
        return median(batch.seconds - sum(map(sum, _stages(batch))) for batch in self.batches)


def _stages(batch: MicroBatch) -> list[list[float]]:
    return [stage.tasks for job in batch.jobs for _, stage in sorted(job.stages.items()) if stage.tasks]


@dataclass(frozen=True)
class Costs:
    """What a micro-batch is made of, in seconds.

    Args:
        alone: what the driver does besides, whatever the tasks.
        pause: between two tasks on one core.
        stages: by stage what a node takes once, what a task takes as such, for each row, and for each block that it sends or
            gets.
        driver: processor time of the driver for each task.
        spread: of a stage's tasks, the standard deviation over the mean.
    """

    alone: float
    pause: float
    stages: tuple[tuple[float, float, float, float], tuple[float, float, float, float]]
    driver: float
    spread: float

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "Costs":
        """Fit the costs to runs on one node, by least squares of which none is negative."""
        read = _stage_costs(runs, [run.readers for run in runs], 0)
        fold = _stage_costs(runs, [run.partitions for run in runs], 1)
        alone, pause = _fitted([[1.0, run.readers + run.partitions] for run in runs], [run.besides for run in runs])
        driver = _fitted([[1.0, run.readers + run.partitions] for run in runs], [run.driver for run in runs])[1]
        spread = median(run.spread for run in runs if run.partitions > 1)
        return cls(alone, pause, (read, fold), driver, spread)

    def seconds(self, rows: float, partitions: int, nodes: int, readers: int) -> float:
        """Of a micro-batch: each stage takes as long as the node with the most work, or as the driver to start all tasks.

        The most of n normal numbers is some sqrt(2 ln n) standard deviations above the mean.
        """
        total = self.alone
        for tasks, (once, task, row, block) in zip((readers, partitions), self.stages, strict=True):
            waves = -(-tasks // nodes)
            one = task + row * rows / tasks + block * partitions
            slowest = self.spread * one * (2 * waves * log(min(nodes, tasks))) ** 0.5
            total += once + max(waves * (one + self.pause) + slowest, self.driver * tasks + one)
        return total


def _stage_costs(runs: Sequence[Run], tasks: Sequence[int], stage: int) -> tuple[float, float, float, float]:
    """Fit what a stage takes once, for a task, for a row and for a block; given its number of tasks in each run."""
    given = [[1 / n, 1.0, run.rows / n, run.partitions] for run, n in zip(runs, tasks, strict=True)]
    once, task, row, block = _fitted(given, [run.tasks(stage) for run in runs])
    return once, task, row, block


def _fitted(given: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Least squares of relative errors."""
    weight: NDArray[np.float64] = 1 / np.asarray(seconds)
    found, _ = nnls(np.asarray(given) * weight[:, None], np.ones(len(seconds)))
    return [float(value) for value in found]


def measure(nodes: int, rows: int, partitions: int, cpu: float) -> Run:
    """Run the application on a cluster."""
    place = (WORK / f"{nodes}-{rows}-{partitions}").absolute()
    shutil.rmtree(place, ignore_errors=True)
    (place / "events").mkdir(parents=True)
    source = readings(rows)
    with Cluster(nodes, cpu=cpu, memory=MEMORY_MB, directory=place / "cluster", isolated=True) as cluster:
        settings = {**cluster.conf, **splitting(source, partitions, place / "events")}
        command = [sys.executable, "-m", "penstock", "run", HERE / "apps" / "sums.py", "--until-idle", "--name", "run"]
        command += ["--runs", place, "--master", cluster.master, "--partitions", str(partitions)]
        command += ["--source", f"Words=parquet:{source}?max_files=1"]
        command += [f"--conf={name}={value}" for name, value in settings.items()]
        path = {"PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])}
        running = cluster.driver.spawn(command, place / "said.log", path)
        used: list[tuple[float, float]] = []
        while running.poll() is None:
            used.append((time.time(), cluster.driver.usage().processor_seconds))
            time.sleep(EVERY_S)
        if running.returncode:
            sys.exit(f"The run on {nodes} nodes has failed; {place / 'said.log'} has the reason.")
    recorded = next(path for path in (place / "events").iterdir() if path.is_file())
    batches = list(micro_batches(recorded, place / "run" / "progress.jsonl"))[WARM_UP:]
    begun, ended = batches[0].jobs[0].began, batches[-1].jobs[-1].ended
    first, last = np.interp([begun, ended], *zip(*used, strict=True))
    run = Run(rows, partitions, batches, float(last - first) / len(batches))
    print(f"    {nodes} nodes, {rows:,} rows, {partitions} partitions: {run.seconds:.2f} s", file=sys.stderr, flush=True)
    return run


def checks(costs: Costs, cpu: float) -> Iterator[tuple[str, ...]]:
    """Seconds of a micro-batch on one to three nodes, as the model has them and as they are."""
    for nodes, rows, partitions in CHECKED:
        run = measure(nodes, rows, partitions, cpu)
        expected = costs.seconds(rows, partitions, nodes, run.readers)
        error = expected / run.seconds - 1
        yield f"{nodes}", f"{rows:,}", f"{partitions}", f"{run.seconds:.2f}", f"{expected:.2f}", f"{error:+.0%}"


def larger(costs: Costs) -> Iterator[tuple[str, ...]]:
    """What the model says of more nodes, each with as many rows and keys: with a task a node and stage, and with sixteen."""
    for tasks in (1, 16):
        alone = costs.seconds(ROWS_OF_NODE * tasks, tasks, tasks, tasks)
        for nodes in LARGER:
            cores = nodes * tasks
            took = costs.seconds(ROWS_OF_NODE * cores, cores, cores, cores)
            driver = 2 * cores * costs.driver
            yield (
                f"{nodes}",
                f"{tasks}",
                f"{took:.1f}",
                f"{alone / took:.0%}",
                f"{cores * ROWS_OF_NODE / took:,.0f}",
                f"{driver:.1f}",
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", type=float, default=0.5, help="of a node, in cores")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    costs = Costs.of([measure(1, rows, partitions, options.cpu) for rows, partitions in LEARNED])
    print(costs)
    columns = ("nodes", "rows", "partitions", "s a micro-batch, measured", "predicted", "error")
    tell(f"{options.cpu} of a core a node", columns, checks(costs, options.cpu), options.output)
    columns = ("nodes", "tasks of each", "s a micro-batch, predicted", "efficiency", "rows/s", "the driver's part (s)")
    more = None if options.output is None else options.output.with_stem(f"{options.output.stem}-larger")
    tell(f"{ROWS_OF_NODE:,} rows a task and micro-batch, {options.cpu} of a core a task", columns, larger(costs), more)


if __name__ == "__main__":
    main()
