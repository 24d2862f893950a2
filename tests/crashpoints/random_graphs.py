"""Random graphs of elements in random groups, and what must come of them, reckoned without Penstock.

A graph is a workload that is named by its seed. Elements copy events, one by one or in columns, repeat them, drop or refuse
some, give them another key, or count them by key; each reads one stream or two. What they emit depends on nothing but the
events that they get, or on how many of a key have come, so it is the same in any order and however the input is cut.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from crashpoints.workloads import Rows, Workload, divided, write_lines

from penstock import App, Event, ProcessingElement
from penstock.engine.query.group import group_elements
from penstock.errors import TopologyError

NUMBERS = range(24)
KINDS = ("copy", "twice", "drop", "refuse", "rekey", "count", "columns")
GROUPS = 3


class Item(Event):
    key: int
    number: int
    way: str


Plain = tuple[int, int, str]
"""An item's fields."""


@dataclass(frozen=True)
class Step:
    """An element: which streams it reads, and what it does; its own stream has its name.

    Args:
        modulus: of the numbers that it drops or refuses, or of the keys that it gives.
    """

    name: str
    reads: tuple[str, ...]
    kind: str
    modulus: int

    def refuses(self, number: int) -> bool:
        """Whether it raises for a number; who counts does so, too."""
        return self.kind in ("refuse", "count") and number % self.modulus == 1

    def made_of(self, key: int, number: int) -> Iterator[Plain]:
        """What it emits for an event that it does not refuse; not of who counts."""
        if self.kind == "drop" and number % self.modulus == 0:
            return
        yield number % self.modulus if self.kind == "rekey" else key, number, self.name
        if self.kind == "twice":
            yield key, number + 100, self.name


@cache
def steps_of(seed: int) -> tuple[Step, ...]:
    """The elements of a graph, each behind those that it reads."""
    chance = random.Random(seed)
    steps: list[Step] = []
    for number in range(chance.randint(3, 7)):
        streams = ["Items", *(step.name for step in steps)]
        reads = chance.sample(streams, min(len(streams), chance.choice([1, 1, 2])))
        steps.append(Step(f"step{number}", tuple(reads), chance.choice(KINDS), chance.randint(2, 5)))
    return tuple(steps)


def app_of(seed: int) -> App:
    """The application of a graph; each stream that an element makes has a sink."""
    app = App(f"graph_{seed}")
    streams: dict[str, Any] = {"Items": app.source("Items", Item)}
    for step in steps_of(seed):
        streams[step.name] = stream = app.stream(step.name, Item)
        app.sink(f"{step.name}Out", stream)
        inputs = [streams[name] for name in step.reads]
        if step.kind == "columns":
            app.batch(inputs, emits=stream, name=f"{step.name}Element")(_copier(step))
        elif step.kind == "count":
            app.element(inputs, key="key", emits=stream, name=f"{step.name}Element")(_counter(step, stream))
        else:
            app.element(inputs, emits=stream, name=f"{step.name}Element")(_handler(step, stream))
    return app


def _handler(step: Step, stream: Any) -> Any:
    def handle(item):
        if step.refuses(item.number):
            raise ValueError(f"{step.name} takes no {item.number}")
        for made in step.made_of(item.key, item.number):
            yield stream(*made)

    return handle


def _copier(step: Step) -> Any:
    def copy(rows: pa.RecordBatch) -> pa.RecordBatch:
        ways = pa.array([step.name] * rows.num_rows, pa.string())
        return rows.set_column(rows.schema.get_field_index("way"), "way", ways)

    return copy


def _counter(step: Step, stream: Any) -> Any:
    class Counting(ProcessingElement):
        seen: int = 0

        def on_event(self, item):
            if step.refuses(item.number):
                raise ValueError(f"{step.name} takes no {item.number}")
            self.seen += 1
            yield stream(item.key, self.seen, step.name)

    return Counting


def __getattr__(name: str) -> App:
    """The application of a graph, by which a run names it: graph_SEED."""
    found = re.fullmatch(r"graph_(\d+)", name)
    if found is None:
        raise AttributeError(name)
    return app_of(int(found[1]))


def outcome_of(seed: int) -> tuple[Rows, int]:
    """What each sink must hold, and the number of dead letters."""
    streams: dict[str, list[Plain]] = {"Items": [(number % 3, number, "") for number in NUMBERS]}
    letters = 0
    for step in steps_of(seed):
        events = [event for name in step.reads for event in streams[name]]
        taken = [(key, number) for key, number, _ in events if not step.refuses(number)]
        letters += len(events) - len(taken)
        if step.kind == "count":
            times = Counter(key for key, _ in taken)
            streams[step.name] = [(key, seen + 1, step.name) for key, total in times.items() for seen in range(total)]
        else:
            streams[step.name] = [made for key, number in taken for made in step.made_of(key, number)]
    return {f"{name}Out": sorted(events) for name, events in streams.items() if name != "Items"}, letters


def groups_of(seed: int) -> dict[str, str]:
    """Random groups of a graph's elements that are allowed; most have several."""
    chance, topology = random.Random(f"groups {seed}"), app_of(seed).topology()
    for _ in range(100):
        groups = {element.name: f"g{chance.randrange(GROUPS)}" for element in topology.elements}
        try:
            group_elements(topology, groups)
        except TopologyError:
            continue
        return groups
    return {}


def items_in(world: Path) -> None:
    """The input, as files."""
    lines = [json.dumps({"key": number % 3, "number": number, "way": ""}).encode() for number in NUMBERS]
    write_lines(world / "in", divided(lines), "jsonl")


def workload_of(seed: int) -> Workload:
    """The workload of a graph."""
    return Workload(
        f"graph-{seed}",
        f"graph_{seed}",
        {"Items": "jsonl:{}/in?max_files=1"},
        {},
        items_in,
        lambda: outcome_of(seed),
        groups=groups_of(seed),
        paces={f"g{group}": random.Random(f"paces {seed} {group}").choice([1, 1, 2, 4, 8]) for group in range(GROUPS)},
        apps=Path(__file__),
    )
