"""The same workloads on Spark itself, whose driver is killed before each step of the commit of a micro-batch, and of a move.

Usage, of a start alone: python -m crashpoints.on_spark WORKLOAD WORLD [NAME OCCURRENCE]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from crashpoints import runner
from crashpoints.points import Points, watch
from crashpoints.power import Power
from crashpoints.runner import OVER, Place, amiss
from crashpoints.workloads import SERVERS, WORKLOADS, Workload

from penstock.errors import ConfigurationError, PenstockError

TESTS = Path(__file__).parent.parent
MASTER = "local[2]"
PATIENCE_S = 300.0
SPARKS = ("checkpoint/", "checkpoint-", ".staging/", "mkdir ")
"""Parts of the names of points that are Spark's, or its workers'."""
SAID = "said.json"


class Step(NamedTuple):
    """A point: the n-th of a name, from 0."""

    name: str
    occurrence: int


class NamedPoints(Points):
    """Points of which one is told by its name: on Spark, several threads come to theirs in any order.

    Args:
        step: at which the process is killed, if at any.
    """

    def __init__(self, world: Path, step: Step | None) -> None:
        super().__init__(world, Power(str(world), ("",), 0))
        self._step, self._seen = step, Counter[str]()

    def come(self, name: str, torn: Callable[[], object] | None = None) -> None:
        if self._step == (name, self._seen[name]):
            self._at = len(self.names)
        self._seen[name] += 1
        super().come(name, torn)


def steps(names: list[str]) -> list[str]:
    """The points of a driver that are of commits, from the first on."""
    ours = ("runs/run/batches-", "runs/run/output/", "runs/run/dead-letters/", "runs/run/hops/")
    first = next(at for at, name in enumerate(names) if name.startswith("write runs/run/.batches-"))
    named = (
        name
        for name in names[first:]
        if any(part in name for part in ours) or name.startswith(("sql", "delta", "kafka", "s3", "hdfs"))
    )
    return [name for name in named if not any(part in name for part in SPARKS)]


def steps_of_moves(names: list[str]) -> list[Step]:
    """The points of a driver that are of a move: its new groups' ledgers, its manifest, its record, and what it removes."""
    if "write runs/run/moves.jsonl" not in names:
        return []
    moved = names.index("write runs/run/moves.jsonl")
    ours = re.compile(
        r"(mkdir|rmdir) runs/run/moving(/[\w*-]+)?(/\*|/pages)?|replace runs/run/batches-\w+@\d+\.jsonl|"
        r"write runs/run/moves\.jsonl|(unlink|rmdir) runs/run/checkpoint/\w+(/metadata|/state)?"
    )
    once = [Step(name, 0) for name in dict.fromkeys(names) if ours.fullmatch(name)]
    manifest = "replace runs/run/manifest.json"
    return [*once, Step(manifest, names[:moved].count(manifest) - 1)]


def started(workload: Workload, world: Path, step: Step | None = None) -> dict[str, Any] | None:
    """A start in a process of its own: what it has said, None where it was killed."""
    (world / SAID).unlink(missing_ok=True)
    command = [sys.executable, "-m", "crashpoints.on_spark", workload.name, str(world), *map(str, step or ())]
    path = os.pathsep.join((str(TESTS.parent), str(TESTS)))
    environment = {**os.environ, "PYTHONPATH": path, "CRASHPOINTS_SERVERS": json.dumps(SERVERS)}
    with (world.parent / "said").open("a") as said:
        subprocess.run(command, env=environment, stdout=said, stderr=said, start_new_session=True, timeout=PATIENCE_S)
    answer: dict[str, Any] | None = json.loads((world / SAID).read_text()) if (world / SAID).exists() else None
    return answer


def tried(place: Place, workload: Workload, step: Step) -> str:
    """What is wrong once a driver was killed at a step, and the run has gone on to its end; nothing, where all is right."""
    place.anew(workload)
    if started(workload, place.world, step) is not None:
        return "the step has not come"
    ended = started(workload, place.world)
    return "it was killed again" if ended is None else str(ended["error"])


def campaign(workloads: list[Workload], say: Callable[[str], None]) -> int:
    """All steps of the second micro-batch of each group, and of moves; returns how many tries have failed."""
    wrong = 0
    runner.PATIENCE_S = PATIENCE_S
    for workload in workloads:
        with tempfile.TemporaryDirectory(prefix="crashpoints-") as base:
            place = Place(Path(base))
            place.anew(workload)
            ended = started(workload, place.world)
            assert ended is not None
            assert not ended["error"], ended["error"]
            names = steps(ended["points"])
            points = [Step(name, 1) for name in dict.fromkeys(names) if names.count(name) > 1]
            points += steps_of_moves(ended["points"])
            failed = [(step, said) for step in points if (said := tried(place, workload, step))]
            for step, said in failed:
                say(f"{workload.name}, before {step.name} ({step.occurrence}): {said}")
            say(f"| {workload.name} | {len(points)} | {len(failed)} |")
            wrong += len(failed)
    return wrong


def half(name: str, world: Path) -> None:
    """A start in two partitions, of what input there is; more is to come."""
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    workload.start(world, None, master=MASTER, until_idle="pause", partitions=2)


def main(name: str, world: Path, step: Step | None) -> None:
    """A start, as the command would make it, and what is wrong then."""
    SERVERS.update(json.loads(os.environ.get("CRASHPOINTS_SERVERS", "{}")))
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    points = NamedPoints(world, step)
    watch(points)
    error = ""
    try:
        workload.start(world, None, master=MASTER)
    except ConfigurationError as refused:
        error = "" if OVER in str(refused) else str(refused)
    except PenstockError as refused:
        error = str(refused)
    error = error or amiss(workload, world)
    (world / SAID).write_text(json.dumps({"points": points.names, "error": error}))


if __name__ == "__main__" and sys.argv[1] == "--half":
    half(sys.argv[2], Path(sys.argv[3]))
elif __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Step(sys.argv[3], int(sys.argv[4])) if len(sys.argv) > 3 else None)
