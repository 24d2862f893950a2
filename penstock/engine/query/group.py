"""Groups: which elements run together in one Spark query, and which streams cross between queries."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from penstock.app.element import Element
from penstock.app.stream import Source, Stream
from penstock.app.topology import Topology
from penstock.errors import ConfigurationError, TopologyError
from penstock.runs.layout import MAIN


@dataclass(frozen=True)
class Group:
    """Elements that share a query. ``hops`` are the streams that it hands on to other groups, ``sources`` those it reads."""

    name: str
    elements: tuple[str, ...]
    hops: tuple[str, ...]
    sources: tuple[str, ...]
    native: bool
    """Whether all elements are in the query dialect, so that Spark plans the whole group."""


def group_elements(topology: Topology, wanted: Mapping[str, str]) -> list[Group]:
    """Divide a topology into groups, sorted so that each comes after those that feed it.

    Elements are in one group unless ``wanted`` says otherwise. A query-dialect element reads columns that no other element
    can read, so a new group begins wherever its input is shared, or comes from Python elements.

    Args:
        wanted: a group's name by element.

    Raises:
        ConfigurationError: ``wanted`` names an unknown element, or a group's name has characters that are not allowed.
        TopologyError: the groups would feed each other, or a stream is made in several groups and read in one of them.
    """
    names = [element.name for element in topology.elements]
    for name in wanted:
        if name not in names:
            raise ConfigurationError(f"The grouping names {name!r}, which is no element; there are {', '.join(names)}.")
        if not re.fullmatch(r"[\w.-]+", wanted[name]):
            raise ConfigurationError(
                f"The group {wanted[name]!r} of {name} holds a character other than letters, digits, '-', '_' and '.'."
            )
    # A label is the name asked for, followed by what forces a group of its own: a query element, or a level of Python ones.
    levels = _levels(topology)
    label = {}
    for element in topology.elements:
        part = element.name if element.dialect == "query" else levels[element.name] or None
        label[element.name] = "-".join(str(word) for word in (wanted.get(element.name, MAIN), part) if word is not None)
    # A chain of query elements shares a query, because nothing else reads the streams between them.
    for element in _in_topological_order(topology):
        feeder = _only_feeder(topology, element)
        if feeder is not None and wanted.get(feeder) == wanted.get(element.name):
            label[element.name] = label[feeder]
    members: dict[str, list[Element]] = {}
    for element in topology.elements:
        members.setdefault(label[element.name], []).append(element)
    owner = _owners(topology, label)
    for stream in topology.sources:
        members.setdefault(owner[stream], [])
    groups = [
        Group(
            name,
            tuple(element.name for element in inside),
            tuple(stream.name for stream in topology.streams if _leaves(topology, stream, name, label, owner)),
            tuple(source.name for source in topology.sources if owner[source] == name),
            bool(inside) and all(element.dialect == "query" for element in inside),
        )
        for name, inside in members.items()
    ]
    _check_makers(topology, label)
    return _in_order(topology, groups, label)


def _check_makers(topology: Topology, label: dict[str, str]) -> None:
    for stream in topology.streams:
        makers = {label[producer.name] for producer in topology.producers(stream)}
        for consumer in topology.consumers(stream):
            if len(makers) > 1 and label[consumer.name] in makers:
                raise TopologyError(
                    f"Stream {stream.name} is made in the groups {', '.join(sorted(makers))} and read in one of them, by "
                    f"{consumer.name}: put {consumer.name} in a group of its own, or all of them in one."
                )


def _in_topological_order(topology: Topology) -> list[Element]:
    return list(topology.in_order)


def _levels(topology: Topology) -> dict[str, int]:
    """Return how many times the events of each element have passed from Python elements to query elements.

    Elements of different levels cannot share a group, because that group would feed another one and read from it.
    """
    levels: dict[str, int] = {}
    for element in _in_topological_order(topology):
        before = [0]
        for stream in element.inputs:
            for producer in topology.producers(stream):
                goes_native = element.dialect == "query" and producer.dialect != "query"
                before.append(levels[producer.name] + goes_native)
            if element.dialect == "query" and isinstance(stream, Source):
                before.append(any(other.dialect != "query" for other in topology.consumers(stream)))
        levels[element.name] = max(before)
    return levels


def _only_feeder(topology: Topology, element: Element) -> str | None:
    """Return the query element that feeds a query element, if it feeds nothing else and is its only input; else None."""
    if element.dialect != "query" or len(element.inputs) != 1:
        return None
    stream = element.inputs[0]
    producers = topology.producers(stream)
    unshared = len(topology.consumers(stream)) == 1 and not topology.sinks_of(stream)
    return producers[0].name if unshared and len(producers) == 1 and producers[0].dialect == "query" else None


def _owners(topology: Topology, label: dict[str, str]) -> dict[Stream[Any], str]:
    """Return, for each source, the label of the one group that reads it."""
    owner: dict[Stream[Any], str] = {}
    for source in topology.sources:
        consumers = topology.consumers(source)
        python = [element for element in consumers if element.dialect != "query"]
        if python:
            owner[source] = label[python[0].name]
        elif len(consumers) == 1 and not topology.sinks_of(source):
            owner[source] = label[consumers[0].name]
        else:
            owner[source] = f"read-{source.name}" if consumers or len(topology.elements) else MAIN
    return owner


def _leaves(topology: Topology, stream: Stream[Any], group: str, label: dict[str, str], owner: dict[Stream[Any], str]) -> bool:
    if isinstance(stream, Source):
        made_here = owner[stream] == group
    else:
        made_here = any(label[producer.name] == group for producer in topology.producers(stream))
    return made_here and any(label[consumer.name] != group for consumer in topology.consumers(stream))


def _in_order(topology: Topology, groups: list[Group], label: dict[str, str]) -> list[Group]:
    by_name = {group.name: group for group in groups}
    before: dict[str, set[str]] = {group.name: set() for group in groups}
    for group in groups:
        for stream in map(topology.stream, group.hops):
            for consumer in topology.consumers(stream):
                if label[consumer.name] != group.name:
                    before[label[consumer.name]].add(group.name)
    try:
        return [by_name[name] for name in TopologicalSorter(before).static_order()]
    except CycleError as error:
        cycle = " and ".join(dict.fromkeys(error.args[1]))
        raise TopologyError(
            f"The groups {cycle} feed each other, and queries cannot wait in a circle: put their elements in one group, "
            "or give the query elements among them a stream of their own."
        ) from None
