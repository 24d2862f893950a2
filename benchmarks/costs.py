"""What an event costs: the processor's time by part, of a run on Spark and of Penstock's own Python, and the memory of a run.

    python benchmarks/costs.py [--only words|counter|tumbling|sliding|join] [--keys 100000] [--conf KEY=VALUE]
                               [--output FILE.md]

Each workload runs on Spark (local[2]) from files of JSON, one a micro-batch. Processor time is that of all processes, and of
Java's threads by what they are for, from the fourth micro-batch to the last. Memory is the greatest sum over all processes,
pages that several share divided among them. Then the same micro-batches run in memory, with the time of each step of the way.
"""

import argparse
import datetime
import json
import random
import runpy
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import wraps
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from harness import HERE, MASTER, tell
from timed import HELD, MINUTES, WORK, line, minutes, write

from penstock.engine.session.descendants import descendants

sys.path.append(str(HERE / "peers"))

from tree import TICKS, memory_of

EVERY_S = 0.1
WARM = 3
"""Micro-batches that are left out."""
THREADS = {"C1 Comp": "compilers", "C2 Comp": "compilers", "Executor": "tasks", "stateCon": "tasks", "stdout w": "tasks"}
THREADS |= {"VM Threa": "collector", "GC Threa": "collector", "G1 ": "collector"}
JAVA = ("tasks", "compilers", "collector", "the rest of Java")
Times = defaultdict[str, float]


class Workload(NamedTuple):
    """An application with its parameters, and the files that its sources read."""

    app: Path
    parameters: dict[str, str]
    sources: dict[str, Path]

    def events(self, first: int, last: int) -> int:
        """How many events the micro-batches from one number to another have, the last one excluded."""
        files = [sorted(directory.iterdir())[first:last] for directory in self.sources.values()]
        return sum(file.read_bytes().count(b"\n") for each in files for file in each)


def workload(name: str, keys: int) -> Workload:
    """A workload by its name; its files are made once."""
    apps = HERE / "apps"
    if name == "words":
        chance = random.Random(3)
        texts = [[json.dumps({"text": f"{chance.getrandbits(330):0100d}"}) for _ in range(20_000)] for _ in range(10)]
        return Workload(HERE.parent / "examples/divisibility/app.py", {}, {"RawWords": write(WORK / "words", texts)})
    if name == "counter":
        chance = random.Random(3)
        rows = [[f'{{"key":{key},"text":""}}' for key in chance.sample(range(keys), keys)] for _ in range(12)]
        return Workload(apps / "counter.py", {}, {"Words": write(WORK / f"counter-{keys}", rows)})
    few = keys // 10
    if name == "join":
        chance = random.Random(7)
        held = [line(key, second, "level") for second, key in sorted((chance.uniform(0, 5), n % few) for n in range(HELD))]
        readings = [[line(n % few, 6 + n * 1e-6) for n in range(100_000)] for _ in range(MINUTES)]
        settings = [held, *([line(0, 6, "level")] for _ in range(MINUTES - 1))]
        sources = {"Words": write(WORK / f"readings-{few}", readings), "Settings": write(WORK / f"settings-{few}", settings)}
        return Workload(apps / "timed.py", {"shape": "join"}, sources)
    return Workload(apps / "timed.py", {"shape": name}, {"Words": write(WORK / f"minutes-{few}", minutes(few))})


class Look(NamedTuple):
    """What the processes have used so far, by part (seconds), and their memory (bytes), by kind of process."""

    at: float
    used: Times
    memory: Counter[str]


def on_spark(what: Workload, conf: list[str]) -> tuple[list[Look], list[float]]:
    """Run a workload; what was seen of it, and when its micro-batches began, in seconds since the epoch."""
    place = WORK / "costs"
    shutil.rmtree(place, ignore_errors=True)
    command = [sys.executable, "-m", "penstock", "run", str(what.app), "--until-idle", "--master", MASTER, "--name", "run"]
    for source, directory in what.sources.items():
        command += ["--source", f"{source}=jsonl:{directory}?max_files=1"]
    for setting in conf:
        command += ["--conf", setting]
    for parameter, value in what.parameters.items():
        command += [f"--{parameter}", value]
    process = subprocess.Popen([*command, "--runs", str(place)], stdout=subprocess.DEVNULL)
    looks = []
    while process.poll() is None:
        looks.append(_look(process.pid))
        time.sleep(EVERY_S)
    if process.returncode:
        sys.exit(f"The run of {what.app.name} has failed.")
    progress = [json.loads(each) for each in (place / "run" / "progress.jsonl").read_text().splitlines()]
    shutil.rmtree(place)
    times = [each["timestamp"].replace("Z", "+00:00") for each in progress if each["numInputRows"]]
    return looks, [datetime.datetime.fromisoformat(each).timestamp() for each in times]


def _look(pid: int) -> Look:
    used, memory = Times(float), Counter[str]()
    for each in (pid, *descendants(pid)):
        try:
            name = Path(f"/proc/{each}/comm").read_text().strip()
            kind = "Java" if name == "java" else "the driver's Python" if each == pid else "Python workers"
            memory[kind] += memory_of(each)
            if kind != "Java":
                used[kind] += _seconds(Path(f"/proc/{each}/stat"))
                continue
            for thread in Path(f"/proc/{each}/task").iterdir():
                title = (thread / "comm").read_text()
                part = next((THREADS[start] for start in THREADS if title.startswith(start)), JAVA[-1])
                used[part] += _seconds(thread / "stat")
        except OSError:  # it has ended meanwhile
            continue
    return Look(time.time(), used, memory)


def _seconds(path: Path) -> float:
    ticks = sum(map(int, path.read_text().rpartition(")")[2].split()[11:13]))
    return ticks / float(TICKS)


def _nearest(looks: list[Look], moment: float) -> Look:
    return min(looks, key=lambda look: abs(look.at - moment))


def steps(what: Workload) -> Times:
    """Run the micro-batches in memory; the seconds that the fourth and later ones spend in each step."""
    from penstock import App
    from penstock.app.parameter import given
    from penstock.runtime import arrivals, container, delivery, entrance, hop, live, pages, stage, timers
    from penstock.testing import TopologyDriver

    spent, inner = Times(float), [0.0]
    parts: dict[str, list[tuple[Any, str]]] = {
        "read: decode and check": [(entrance.Entrance, "given")],
        "send: key, encode, divide": [(stage.Stage, "_send")],
        "arrive: decode, put in order": [
            (delivery.BlockPart, "of"),
            (delivery.BlockPart, "events"),
            (delivery.Delivery, "__init__"),
            (arrivals.ArrivedBlocks, "add"),
        ],
        "state in": [(live.LiveInstances, "open_all"), (pages.Pages, "page")],
        "hooks": [(container.Container, "handle")],
        "timers": [(timers.Timers, "fire"), (timers.Timers, "fire_part"), (timers.Timers, "note")],
        "state out": [(container.Container, "settle"), (live.LiveInstances, "check_storable"), (pages.Pages, "flush")],
        "emit": [(container.Container, "_route")],
        "end of the micro-batch": [
            (container.Container, "_finish_batch"),
            (live.LiveInstances, "drop_empty"),
            (hop.Hop, "_note"),
        ],
    }

    def timed(call: Callable[..., Any], part: str) -> Callable[..., Any]:
        @wraps(call)
        def measured(*places: Any, **named: Any) -> Any:
            begun = time.perf_counter()
            inner.append(0.0)
            try:
                return call(*places, **named)
            finally:
                took = time.perf_counter() - begun
                spent[part] += took - inner.pop()
                inner[-1] += took

        return measured

    with ExitStack() as stack:
        for part, methods in parts.items():
            for owner, method in methods:
                call = timed(getattr(owner, method), part)
                stack.enter_context(patch.object(owner, method, staticmethod(call) if method == "of" else call))
        with given(what.parameters):  # not as a module, for this one's neighbour has the name of an application
            defined = runpy.run_path(str(what.app)).values()
        driver = TopologyDriver(next(each for each in defined if isinstance(each, App)), partitions=2)
        files_of = (sorted(directory.iterdir()) for directory in what.sources.values())
        for number, files in enumerate(zip(*files_of, strict=True)):
            if number == WARM:
                spent.clear()
            driver.batch({source: file.read_bytes().splitlines() for source, file in zip(what.sources, files, strict=True)})
    return spent


def rows_of(name: str, keys: int, conf: list[str]) -> Iterator[tuple[str, ...]]:
    """The rows of a workload's table."""
    what = workload(name, keys)
    looks, batches = on_spark(what, conf)
    begun, ended = batches[WARM], batches[-1]
    events = what.events(WARM, len(batches) - 1)
    first, last = (_nearest(looks, moment) for moment in (begun, ended))
    used = {part: (last.used[part] - first.used[part]) / events * 1e6 for part in last.used}
    most = max(looks, key=lambda look: look.memory.total())
    memory = ", ".join(f"{kind} {size / 2**20:,.0f}" for kind, size in most.memory.most_common())
    yield name, "rows a second", f"{events / (ended - begun):,.0f}"
    yield "", "both cores, us of time an event", f"{2 * (ended - begun) / events * 1e6:.1f}"
    for part in (*JAVA, "the driver's Python", "Python workers"):
        yield "", f"- {part}", f"{used.get(part, 0):.1f}"
    for part, seconds in sorted(steps(what).items(), key=itemgetter(1), reverse=True):
        yield "", f"  - in memory: {part}", f"{seconds / what.events(WARM, len(batches)) * 1e6:.1f}"
    yield "", "memory, GiB (MiB)", f"{most.memory.total() / 2**30:.2f} ({memory})"


def main() -> None:
    names = ("words", "counter", "tumbling", "sliding", "join")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=names, action="append")
    parser.add_argument("--keys", type=int, default=100_000, help="of the counter; the others have a tenth")
    parser.add_argument("--conf", action="append", default=[], help="a setting for Spark")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    rows = [row for name in options.only or names for row in rows_of(name, options.keys, options.conf)]
    tell("Microseconds of processor an event, from the fourth micro-batch on.", ("workload", "part", ""), rows, options.output)


if __name__ == "__main__":
    main()
