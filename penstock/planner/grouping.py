"""Grouping: which elements to put in a query of their own, by how long events wait, given the measured work of each element.

A micro-batch becomes visible as a whole, so an event waits for all that its query does in it, not only for the elements on its
own path; and every further query on the path is another micro-batch to wait for. The paper's costs (`penstock.allocation.cost`)
share a resource among its tasks, which is not what a micro-batch does; docs/background/plans.md compares the three with
measurements. Up to `MOST` elements there are few groupings (21,147 for 9), all are tried, and the answer is exact. Beyond,
a local search moves one element at a time, and the gap to a lower bound for all groupings is given.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from penstock.allocation import StreamGraph
from penstock.errors import ConfigurationError
from penstock.planner.observation import Observation
from penstock.planner.prediction import Prediction
from penstock.runs.layout import MAIN

MOST = 9
"""Elements up to which all groupings are tried."""
HOP_SHARE = 0.68
"""Cost of a keyed hop, as a share of the rest of a micro-batch without rows: 0.22 s beside 0.32 s where it was measured;
assumed elsewhere.
"""
WORTH = 0.1
"""A grouping pays if it shortens the worst path by this share; that much, for the model was fitted to one grouping only."""

ENDLESS_S = 1e4
"""A query whose micro-batches would last longer than this does not keep up."""

Grouping = Mapping[str, str]


@dataclass(frozen=True)
class Placed:
    """A grouping and its expected waits.

    Args:
        groups: by element.
        worst, mean: seconds until an event's results are visible, over the elements that feed no other.
    """

    groups: Grouping
    worst: float
    mean: float

    @property
    def queries(self) -> int:
        """The number of queries."""
        return len(set(self.groups.values()))


@dataclass(frozen=True)
class Elements:
    """The elements of an application under load, and the costs of a micro-batch.

    Args:
        inputs, emits: streams by element.
        sources: streams.
        keyed: whether an element is keyed.
        work: seconds that an element adds to a micro-batch for each row of the source.
        fixed: seconds of a micro-batch without rows and without a keyed hop.
        hop: seconds that each keyed hop adds.
        rate: rows per second.
        trigger: seconds between the starts of micro-batches.
    """

    inputs: Mapping[str, Sequence[str]]
    emits: Mapping[str, Sequence[str]]
    keyed: Mapping[str, bool]
    sources: Sequence[str]
    work: Mapping[str, float]
    fixed: float
    hop: float
    rate: float
    trigger: float

    @classmethod
    def of(cls, observation: Observation, chosen: Prediction, fixed: float, per_row: float) -> "Elements | None":
        """From a recording of a run of Penstock in one query; None for other recordings, and if an element was not measured.

        Args:
            chosen: the prediction that gives the rate, the trigger and the cores.
            fixed, per_row: seconds of a micro-batch, and of a row, for all elements together.
        """
        if observation.manifest is None:
            return None
        topology, seen = observation.manifest.topology, observation.queries[0]
        elements = topology.elements
        if len(observation.queries) != 1 or any(element.name not in seen.service_us for element in elements):
            return None
        if not elements or any(element.dialect == "query" for element in elements):
            return None
        cores = chosen.setting.cores or 1.0
        own = {name: seen.events[name] * service / 1e6 / cores for name, service in seen.service_us.items()}
        # The elements' own times do not add up to the cost of a row: decoding and transport, the rest, is divided by events.
        rest = max(0.0, per_row - sum(own.values())) / sum(seen.events.values())
        work = {name: value + seen.events[name] * rest for name, value in own.items()}
        keyed = {element.name: bool(element.key) for element in elements}
        hops = max((element.stage for element in elements), default=0)
        base = fixed / (1 + HOP_SHARE * hops)
        return cls(
            {element.name: element.inputs for element in elements},
            {element.name: element.emits for element in elements},
            keyed,
            [source.name for source in topology.sources],
            work,
            base,
            HOP_SHARE * base,
            chosen.rate,
            chosen.setting.interval,
        )

    @cached_property
    def feeders(self) -> dict[str, list[str]]:
        """By element, the elements and sources that feed it, in an order in which each element comes after its feeders."""
        feeders = {
            name: [other for other in self.emits if set(self.emits[other]) & set(streams)]
            + [source for source in self.sources if source in streams]
            for name, streams in self.inputs.items()
        }
        order = [name for name in TopologicalSorter(feeders).static_order() if name in feeders]
        return {name: feeders[name] for name in order}

    @cached_property
    def last(self) -> list[str]:
        """The elements that feed no other."""
        return [name for name in self.inputs if not any(name in before for before in self.feeders.values())]

    def graph(self) -> StreamGraph:
        """The elements as the paper's stream graph: weights are seconds of a micro-batch, transfers another micro-batch."""
        rows = self.rate * max(self.trigger, self.fixed)
        between = self.trigger / 2 + self.fixed
        return StreamGraph(
            {name: self.work[name] * rows + self.hop * self.keyed[name] for name in self.feeders},
            {(feeder, name): between for name, before in self.feeders.items() for feeder in before if feeder in self.feeders},
            {name: min(1.0, self.work[name] * self.rate) for name in self.feeders},
        )

    def is_possible(self, groups: Grouping) -> bool:
        """Whether each group of a grouping can be a query of its own: no queries wait for each other in a circle, and no query
        reads a stream that it and another query both write.
        """
        makers: dict[str, set[str]] = {}
        for name, streams in self.emits.items():
            for stream in streams:
                makers.setdefault(stream, set()).add(groups[name])
        before: dict[str, set[str]] = {}
        for name, streams in self.inputs.items():
            for stream in streams:
                made = makers.get(stream, {self._owner(stream, groups)})
                if len(made) > 1 and groups[name] in made:
                    return False
                before.setdefault(groups[name], set()).update(made - {groups[name]})
        try:
            TopologicalSorter(before).prepare()
        except CycleError:
            return False
        return True

    def _owner(self, source: str, groups: Grouping) -> str:
        """The group that reads a source: the group of the first element that has it as an input."""
        return next(groups[name] for name, streams in self.inputs.items() if source in streams)

    def placed(self, groups: Grouping) -> Placed:
        """Predict the waits of a grouping.

        An event waits half a trigger interval for a micro-batch, then for all of it. If it goes on to another query, it waits
        for the next multiple of the interval, at which Spark starts the micro-batches of all queries. Queries that run at the
        same time share the cores: the work of a query lasts longer by the share of time in which the others work.
        """
        lasts = self._durations(groups)
        cycles = {group: max(self.trigger, seconds) for group, seconds in lasts.items()}

        def left(group: str, came: float) -> float:
            """When an event that comes to a group at time ``came`` is visible; times count from a multiple of the interval."""
            hurried = cycles[group] > self.trigger or self.trigger == 0  # back to back: it comes at any moment of a micro-batch
            begins = came + cycles[group] / 2 if hurried else self.trigger * math.ceil(came / self.trigger)
            return begins + lasts[group]

        reached: dict[str, float] = {}
        for name, before in self.feeders.items():
            own = groups[name]
            times = []
            for feeder in before:
                where = groups[feeder] if feeder in reached else self._owner(feeder, groups)
                # An event waits half a cycle for the first micro-batch; at a trigger that has begun by then.
                came = reached[feeder] if feeder in reached else (cycles[where] - self.trigger) / 2 + lasts[where]
                times.append(came if where == own else left(own, came))
            reached[name] = max(times)
        paths = [reached[name] + self.trigger / 2 for name in self.last]
        return Placed(dict(groups), max(paths), float(np.mean(paths)))

    def _durations(self, groups: Grouping) -> dict[str, float]:
        """Seconds that the micro-batches of each query last, by group."""
        hops = self._hops(groups)
        loads = dict.fromkeys(groups.values(), 0.0)
        for name, group in groups.items():
            loads[group] += self.rate * self.work[name]
        cycle, lasts = self.trigger, dict[str, float]()
        for _ in range(100):  # a fixed point: a micro-batch has the rows that came during the one before
            for group, load in loads.items():
                beside = sum(loads.values()) - load
                lasts[group] = self.fixed + self.hop * hops[group] + load * cycle * (1 + beside)
            longer = max(self.trigger, *lasts.values())
            if abs(longer - cycle) < 1e-6 or longer > ENDLESS_S:
                break
            cycle = longer
        return lasts

    def _hops(self, groups: Grouping) -> dict[str, int]:
        """By group, the most keyed hops that lie one behind the other in it."""
        depth: dict[str, int] = {}
        for name, before in self.feeders.items():
            inside = [depth[feeder] for feeder in before if feeder in depth and groups[feeder] == groups[name]]
            depth[name] = max(inside, default=0) + self.keyed[name]
        return {group: max(depth[name] for name in depth if groups[name] == group) for group in groups.values()}

    def least(self) -> float:
        """A lower bound on the worst wait of any grouping: one micro-batch, with only the work of the longest path in it."""
        longest: dict[str, float] = {}
        for name, before in self.feeders.items():
            longest[name] = self.work[name] + max((longest.get(feeder, 0.0) for feeder in before), default=0.0)
        return self.trigger / 2 + self.fixed + self.rate * self.trigger * max(longest.values())


@dataclass(frozen=True)
class Choice:
    """The best grouping, and the one with all elements together in one query.

    Args:
        exact: whether all groupings were tried; otherwise ``gap`` is a bound on how much better another one can be, a fraction.
    """

    best: Placed
    together: Placed
    exact: bool
    gap: float

    @property
    def pays(self) -> bool:
        """Whether more than one query is worth it."""
        return self.best.worst < (1 - WORTH) * self.together.worst

    @property
    def reason(self) -> str:
        """The answer in a sentence."""
        proven = "all groupings were compared" if self.exact else f"no grouping is better by more than {self.gap:.0%}"
        if not self.pays and not self.exact:
            return (
                f"All elements stay in one query: events on the worst path wait {self.together.worst:.2f} s, and no grouping "
                f"was found that shortens it by {WORTH:.0%} ({proven}; predicted)."
            )
        if not self.pays:
            return (
                f"All elements stay in one query: events on the worst path wait {self.together.worst:.2f} s, and at least "
                f"{self.best.worst:.2f} s with any grouping ({proven}; predicted)."
            )
        return (
            f"The elements are in {self.best.queries} queries: events on the worst path wait {self.best.worst:.2f} s instead "
            f"of {self.together.worst:.2f} ({proven}; predicted)."
        )


def best_grouping(elements: Elements, queries: int) -> Choice:
    """The grouping with the shortest worst path; among equal ones, the one with the fewest queries.

    Args:
        queries: the most queries that are allowed.

    Raises:
        ConfigurationError: ``queries`` is below 1.
    """
    if queries < 1:
        raise ConfigurationError(f"queries is {queries}; give 1 or more.")
    names = list(elements.feeders)
    together = elements.placed(dict.fromkeys(names, MAIN))
    exact = len(names) <= MOST
    candidates = groupings(names, queries) if exact else _climbed(elements, queries)
    placements = [elements.placed(groups) for groups in candidates if elements.is_possible(groups)]
    best = min([together, *placements], key=lambda placed: (round(placed.worst, 9), placed.queries))
    return Choice(best, together, exact, 0.0 if exact else 1 - elements.least() / best.worst)


def groupings(names: Sequence[str], queries: int) -> Iterator[dict[str, str]]:
    """All ways to divide elements into at most ``queries`` groups, each once; the first element's group is called main."""

    def divided(place: int, groups: list[int]) -> Iterator[list[int]]:
        if place == len(names):
            yield groups
            return
        for group in range(min(max(groups, default=-1) + 2, queries)):
            yield from divided(place + 1, [*groups, group])

    for groups in divided(0, []):
        yield {name: _called(group) for name, group in zip(names, groups, strict=True)}


def _called(group: int) -> str:
    return MAIN if group == 0 else f"query-{group + 1}"


def _climbed(elements: Elements, queries: int) -> Iterator[dict[str, str]]:
    """A local search from all elements in one group, and from each element alone: repeat the move that helps most."""
    names = list(elements.feeders)
    for start in [None, *(names if queries > 1 else ())]:
        groups = {name: _called(int(name == start)) for name in names}
        present = elements.placed(groups).worst if elements.is_possible(groups) else math.inf
        while True:
            moved = [
                {**groups, name: _called(group)}
                for name in names
                for group in range(min(queries, len(set(groups.values())) + 1))
                if _called(group) != groups[name]
            ]
            scored = [(elements.placed(option).worst, option) for option in moved if elements.is_possible(option)]
            worst, best = min(scored, key=lambda pair: pair[0], default=(math.inf, groups))
            if worst >= present - 1e-9:
                break
            groups, present = best, worst
        yield groups


def described(groups: Grouping) -> dict[str, Any]:
    """A grouping as a plan contains it: without the elements of the main group."""
    return {name: group for name, group in groups.items() if group != MAIN}
