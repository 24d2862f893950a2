"""The streaming graph: tasks with weights and transfers with costs, without cycles."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from numbers import Integral, Real
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.allocation.arcs import ArcNetwork, arc_network, topological_order
from penstock.errors import ConfigurationError, CyclicTopologyError, SourceError, TopologyError

Task = Any
"""A task's name: any hashable value; JSON has it as a string."""


@dataclass(frozen=True)
class StreamGraph:
    """A directed acyclic graph of processing tasks (Eidenbenz and Locher, section II-A).

    Args:
        tasks: name to weight w(v), zero or more: the time that an item takes if the task is alone on a resource of
            capacity 1.
        transfers: (from, to) to transfer cost b(e), zero or more: the time that an item takes to go between resources.
        loads: name to utilisation from 0 to 1, the fraction of time that a task has work; 1 by default, which is the
            paper's assumption. Only ``sharing="load"`` uses it.

    Raises:
        TopologyError: there is no task, or a transfer or load names an unknown task.
        CyclicTopologyError: the transfers form a cycle; the error names its tasks.
        ConfigurationError: a weight, cost or load is negative, missing, NaN, too large or not a number.

    Examples:
        >>> graph = StreamGraph({"parse": 2.0, "count": 1.0}, {("parse", "count"): 0.5})
        >>> list(graph.tasks)
        ['parse', 'count']
    """

    tasks: Mapping[Task, float]
    transfers: Mapping[tuple[Task, Task], float] = field(default_factory=dict)
    loads: Mapping[Task, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, values in (("tasks", self.tasks), ("transfers", self.transfers), ("loads", self.loads)):
            if not isinstance(values, Mapping):
                raise ConfigurationError(f"{name} is a {type(values).__name__}; give a mapping.")
        if not self.tasks:
            raise TopologyError("The graph has no task; give at least one, as tasks={'read': 1.0}.")
        weights = {task: quantity(f"The weight of {task!r}", weight) for task, weight in self.tasks.items()}
        costs = {self._pair(pair): quantity(f"The cost of {pair}", cost) for pair, cost in self.transfers.items()}
        loads = {task: quantity(f"The load of {task!r}", load, most=1.0) for task, load in self.loads.items()}
        for task in loads:
            self._known(task, "loads")
        for name, value in (("tasks", weights), ("transfers", costs), ("loads", loads)):
            object.__setattr__(self, name, MappingProxyType(value))
        if len(topological_order(len(weights), *self.edges)) < len(weights):
            raise CyclicTopologyError(f"The tasks form a cycle: {self._cycle()}; a stream graph is acyclic.")

    def _pair(self, pair: Any) -> tuple[Task, Task]:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TopologyError(f"A transfer is {pair!r}; give a pair of tasks, (from, to).")
        for task in pair:
            self._known(task, f"transfer {pair[0]} -> {pair[1]}")
        return pair

    def _known(self, task: Task, where: str) -> None:
        if not is_name(task) or task not in self.tasks:
            raise TopologyError(f"Unknown task {task!r} in {where}; the tasks are {listed(self.tasks)}.")

    def _cycle(self) -> str:
        before: dict[Task, list[Task]] = {}
        for start, end in self.transfers:
            before.setdefault(end, []).append(start)
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            return " -> ".join(map(str, error.args[1]))
        raise AssertionError("called for cyclic graphs only")

    def __reduce__(self) -> Any:
        return StreamGraph, (dict(self.tasks), dict(self.transfers), dict(self.loads))

    @cached_property
    def index(self) -> dict[Task, int]:
        """The position of each task in the arrays of this class."""
        return {task: position for position, task in enumerate(self.tasks)}

    @cached_property
    def weights(self) -> NDArray[np.float64]:
        """w(v), one per task."""
        return np.fromiter(self.tasks.values(), float, len(self.tasks))

    @cached_property
    def utilisations(self) -> NDArray[np.float64]:
        """The load of each task, 1 by default."""
        return np.array([self.loads.get(task, 1.0) for task in self.tasks])

    @cached_property
    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Positions of the tasks at which transfers start, and at which they end: two arrays, one entry per transfer."""
        index, count = self.index, len(self.transfers)
        starts = np.fromiter((index[start] for start, _ in self.transfers), np.int64, count)
        return starts, np.fromiter((index[end] for _, end in self.transfers), np.int64, count)

    @cached_property
    def costs(self) -> NDArray[np.float64]:
        """b(e), one per transfer."""
        return np.fromiter(self.transfers.values(), float, len(self.transfers))

    @cached_property
    def network(self) -> ArcNetwork:
        """The graph's paths as an activity-on-arc network, in which each transfer that costs something is a link."""
        return arc_network(len(self.tasks), *self.edges, self.costs)

    @cached_property
    def free_network(self) -> ArcNetwork:
        """The graph's paths as an activity-on-arc network, as if every transfer cost nothing."""
        return self.network if not self.costs.any() else arc_network(len(self.tasks), *self.edges, 0 * self.costs)

    def named(self, values: Iterable[Any]) -> dict[Task, Any]:
        """Map each task's name to its value; the values are in the order of the arrays."""
        return dict(zip(self.tasks, values, strict=True))

    def to_json(self) -> dict[str, Any]:
        """The graph as ``{"tasks": {name: weight}, "transfers": [[from, to, cost]], "loads": {...}}``, names as strings.

        Raises:
            ConfigurationError: two tasks have the same name as strings.
        """
        require_texts(self.tasks)
        data: dict[str, Any] = {
            "tasks": {str(task): weight for task, weight in self.tasks.items()},
            "transfers": [[str(start), str(end), cost] for (start, end), cost in self.transfers.items()],
        }
        return data | ({"loads": {str(task): load for task, load in self.loads.items()}} if self.loads else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str | Path) -> "StreamGraph":
        """Make a graph from the output of :meth:`to_json`, as data, as JSON text, or in a file at a path.

        Raises:
            SourceError: the file cannot be read.
            ConfigurationError: the text is not JSON, or not of that form.
        """
        data = read_json(data)
        unknown = sorted(set(data) - {"tasks", "transfers", "loads"})
        tasks, rows, loads = data.get("tasks"), data.get("transfers", []), data.get("loads", {})
        if unknown or not isinstance(tasks, Mapping) or not isinstance(loads, Mapping) or not isinstance(rows, list):
            reason = f"has unknown keys {unknown}" if unknown else "lacks a part or has one of another form"
            raise ConfigurationError(
                f'A graph in JSON is {{"tasks": {{name: weight}}, "transfers": [[from, to, cost]]}}; this one {reason}.'
            )
        transfers: dict[tuple[Task, Task], Any] = {}
        for row in rows:
            if not isinstance(row, list) or len(row) not in (2, 3) or not all(isinstance(end, str) for end in row[:2]):
                raise ConfigurationError(f"A transfer in JSON is [from, to, cost]; got {row!r}.")
            if (row[0], row[1]) in transfers:
                raise ConfigurationError(f"The transfer {row[0]} -> {row[1]} is given twice; give it once.")
            transfers[row[0], row[1]] = row[2] if len(row) == 3 else 0.0
        return cls(tasks, transfers, loads)

    @classmethod
    def from_topology(
        cls,
        topology: Any,
        weights: Mapping[str, float],
        transfers: Mapping[str, float] | None = None,
        loads: Mapping[str, float] | None = None,
    ) -> "StreamGraph":
        """Make the graph of an application's elements.

        Args:
            topology: the result of ``App.topology()`` of ``penstock.app``, or of its ``to_json()``.
            weights: element to weight; every element needs one.
            transfers: stream to the cost of sending its events to another resource; 0 by default.
            loads: element to utilisation.

        Raises:
            TopologyError: a weight, transfer or load names an element or stream that the topology lacks.
            ConfigurationError: an element has no weight.
        """
        shape = topology if isinstance(topology, Mapping) else topology.to_json()
        names = [element["name"] for element in shape["elements"]]
        streams = {stream["name"] for stream in shape["streams"]}
        costs = transfers or {}
        for mapping, names_allowed in ((weights, set(names)), (costs, streams), (loads or {}, set(names))):
            for name in mapping:
                if name not in names_allowed:
                    raise TopologyError(f"The topology has no {name!r}; it has {listed(sorted(names_allowed))}.")
        edges: dict[tuple[Task, Task], float] = {}
        for before in shape["elements"]:
            for after in shape["elements"]:
                shared = set(before["emits"]) & set(after["inputs"])
                if shared:
                    edges[before["name"], after["name"]] = sum(costs.get(stream, 0.0) for stream in sorted(shared))
        tasks: dict[Task, Any] = {name: weights.get(name) for name in names}
        return cls(tasks, edges, loads or {})


def require_graph(graph: Any) -> None:
    """Raise ``ConfigurationError`` unless it is a `StreamGraph`."""
    if not isinstance(graph, StreamGraph):
        raise ConfigurationError(f"graph is {shown(graph)}; give a StreamGraph.")


def require_texts(tasks: Iterable[Task]) -> None:
    """Raise ``ConfigurationError`` if two tasks would have one name in JSON."""
    names: dict[str, Task] = {}
    for task in tasks:
        if (name := str(task)) in names:
            raise ConfigurationError(f"Two tasks, {names[name]!r} and {task!r}, are both {name!r} in JSON; rename one.")
        names[name] = task


def quantity(what: str, value: Any, most: float = 1e100) -> float:
    """Check a number from zero to ``most``; ``what`` names it in errors.

    Raises:
        ConfigurationError: the value is anything else.
    """
    allowed = f"a number from 0 to {most:g}"
    if value is None:
        raise ConfigurationError(f"{what} is missing; give {allowed}.")
    checked = number(value)
    if not 0 <= checked <= most:
        raise ConfigurationError(f"{what} is {shown(value)}; give {allowed}.")
    return checked


def positive(what: str, value: Any) -> float:
    """Check a number above zero; ``what`` names it in errors.

    Raises:
        ConfigurationError: the value is anything else.
    """
    checked = number(value)
    if not 1e-100 <= checked <= 1e100:
        raise ConfigurationError(f"{what} is {shown(value)}; give a number above zero (1e-100 to 1e100).")
    return checked


def whole(what: str, value: Any, least: int = 1) -> int:
    """Check an integer of at least ``least``; ``what`` names it in errors.

    Raises:
        ConfigurationError: the value is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise ConfigurationError(f"{what} is {shown(value)}; give an integer of {least} or more.")
    return int(value)


def number(value: Any) -> float:
    """A value as a float: NaN if it is not a number, infinity if it is too large."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def shown(value: Any) -> str:
    """The ``repr`` of a value for a message, at most 60 characters long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_name(value: Any) -> bool:
    """Whether a value can name a task or a resource, that is, whether it is hashable."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def listed(names: Iterable[Any], most: int = 8) -> str:
    """The first ``most`` names for a message, and how many there are in all."""
    names = [str(name) for name in names]
    return ", ".join(names[:most]) + (f", ... ({len(names)} in all)" if len(names) > most else "")


def read_json(data: Mapping[str, Any] | str | Path) -> dict[str, Any]:
    """Read a JSON object from data, text or a file.

    Raises:
        SourceError: the file cannot be read.
        ConfigurationError: the content is not a JSON object, or an object in it names a key twice.
    """
    if isinstance(data, Mapping):
        return dict(data)
    where = f"{data}" if isinstance(data, Path) else "The text"

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = Counter(name for name, _ in pairs)
        twice = [name for name, times in names.items() if times > 1]
        if twice:
            raise ConfigurationError(f"{where} names {listed(map(repr, twice))} twice in one object: name each once.")
        return dict(pairs)

    try:
        value = json.loads(data.read_text() if isinstance(data, Path) else data, object_pairs_hook=once)
    except OSError as error:
        raise SourceError(f"{where} cannot be read ({error.strerror}); give a JSON file with a graph.") from error
    except ConfigurationError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise ConfigurationError(f"{where} is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where} holds a JSON {type(value).__name__}; give an object.")
    return value
