"""The tasks of micro-batches by Spark's event log, and how long they take on other numbers of cores: a simulated schedule.

On one core everything is one after another, so that what is not a task is the driver's. The driver is taken to start one task
after another, each in its share of that time within jobs, and to be alone for the rest of the micro-batch. A task runs on the
first core that is free, once all stages before its own have ended, for as long as it took on one core. Networks, and cores that
disturb each other, are not in it.
"""

import heapq
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Stage:
    """Of a job.

    Args:
        parents: the ids of those that must have ended before.
        tasks: seconds each, in the order of their starts.
    """

    parents: Sequence[int]
    tasks: list[float] = field(default_factory=list)


@dataclass
class Job:
    """What Spark was asked to compute at once; `began` and `ended` in seconds."""

    began: float
    stages: dict[int, Stage]
    ended: float = 0.0


@dataclass
class MicroBatch:
    """A micro-batch as it went on one core.

    Args:
        rows: of its input.
        seconds: it took, from its trigger to its commit.
    """

    rows: int
    seconds: float
    jobs: Sequence[Job]

    def on(self, cores: int) -> float:
        """Seconds that it takes on so many cores."""
        within = sum(job.ended - job.began for job in self.jobs)
        tasks = [task for job in self.jobs for stage in job.stages.values() for task in stage.tasks]
        start = max(within - sum(tasks), 0.0) / max(len(tasks), 1)
        return self.seconds - within + sum(makespan(job.stages, cores, start) for job in self.jobs)


def makespan(stages: Mapping[int, Stage], cores: int, start: float) -> float:
    """When the last task of a job ends.

    Args:
        start: seconds that the driver takes for each task, one after another.
    """
    free = [0.0] * cores
    driver = 0.0
    ended: dict[int, float] = {}
    for number in sorted(stages):  # Spark numbers stages in the order of what they need
        ready = max((ended.get(parent, 0.0) for parent in stages[number].parents), default=0.0)
        ends = [ready]
        for seconds in stages[number].tasks:
            driver = max(driver, ready, free[0]) + start
            ends.append(driver + seconds)
            heapq.heapreplace(free, ends[-1])
        ended[number] = max(ends)
    return max(ended.values(), default=0.0)


def micro_batches(log: Path, progress: Path) -> Iterator[MicroBatch]:
    """Those with input, first to last.

    Args:
        log: Spark's, of its events.
        progress: of the run.
    """
    jobs: dict[int, list[Job]] = defaultdict(list)
    running: dict[int, Job] = {}
    for line in log.read_text().splitlines():
        event: dict[str, Any] = json.loads(line)
        kind = event["Event"]
        if kind == "SparkListenerJobStart" and "streaming.sql.batchId" in event["Properties"]:
            stages = {stage["Stage ID"]: Stage(stage["Parent IDs"]) for stage in event["Stage Infos"]}
            job = running[event["Job ID"]] = Job(event["Submission Time"] / 1e3, stages)
            jobs[int(event["Properties"]["streaming.sql.batchId"])].append(job)
        elif kind == "SparkListenerTaskEnd":
            info, stage = event["Task Info"], event["Stage ID"]
            for job in running.values():
                if stage in job.stages:
                    job.stages[stage].tasks.append((info["Finish Time"] - info["Launch Time"]) / 1e3)
        elif kind == "SparkListenerJobEnd" and event["Job ID"] in running:
            running.pop(event["Job ID"]).ended = event["Completion Time"] / 1e3
    for line in progress.read_text().splitlines():
        told = json.loads(line)
        if told["numInputRows"]:
            seconds = told["durationMs"]["triggerExecution"] / 1e3
            yield MicroBatch(told["numInputRows"], seconds, jobs[told["batchId"]])
