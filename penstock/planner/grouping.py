"""Which elements to put in a query of their own: what a path of events waits for, by the work that was measured.

A micro-batch is visible as a whole, so an event waits for all that its query does in it, and not only for the elements on its
own path; and every further query on the path is another micro-batch to wait for. The paper's costs (`penstock.allocation.cost`)
share a resource among its tasks, which is not what a micro-batch does; docs/background/plans.md compares the three with
measurements. Groupings are few (for 9 elements 21,147), so the best is found by trying all of them, and up to `MOST` elements
the answer is exact; beyond, the search moves one element at a time, and the gap to what no grouping can go below is given.
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
"""What a keyed hop costs of what the rest of a micro-batch without rows does: 0.22 s beside 0.32 s, measured (assumed
elsewhere).
"""
WORTH = 0.1
"""A grouping must shorten the worst path by so much, for a model that knows other groupings from one only."""

ENDLESS_S = 1e4
"""A query whose micro-batches would last longer does not keep up."""

Grouping = Mapping[str, str]


@dataclass(frozen=True)
class Placed:
    """A grouping and what it is expected to do; seconds.

    Parameters
    ----------
    groups: by element. worst, mean: the wait of an event until its results are visible, over the sinks' elements.
    """

    groups: Grouping
    worst: float
    mean: float

    @property
    def queries(self) -> int:
        """How many queries there are."""
        return len(set(self.groups.values()))


@dataclass(frozen=True)
class Elements:
    """The elements of an application under load, and what a micro-batch costs.

    Parameters
    ----------
    inputs, emits: streams by element. sources: streams. keyed: whether an element is.
    work: seconds that a micro-batch lasts longer by an element, for each row of the source.
    fixed: seconds of a micro-batch without rows and without a keyed hop. hop: of each keyed hop besides.
    rate: rows per second. trigger: seconds between the starts of micro-batches.
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
        """From a recording of a run of Penstock in one query; None where it is not one, or an element did not work.

        Parameters
        ----------
        chosen: for its rate and trigger.
        fixed, per_row: seconds of a micro-batch, and of a row, of all elements together.
        """
        if observation.manifest is None:
            return None
        topology, seen = observation.manifest.topology, observation.queries[0]
        elements = topology.elements
        if len(observation.queries) != 1 or any(one.name not in seen.service_us for one in elements):
            return None
        if not elements or any(one.dialect == "query" for one in elements):
            return None
        cores = chosen.setting.cores or 1.0
        own = {name: seen.events[name] * service / 1e6 / cores for name, service in seen.service_us.items()}
        # Not all that a row costs is in an element's hands: the rest is decoding and the way there, so much an event.
        rest = max(0.0, per_row - sum(own.values())) / sum(seen.events.values())
        work = {name: value + seen.events[name] * rest for name, value in own.items()}
        keyed = {one.name: bool(one.key) for one in elements}
        hops = max((one.stage for one in elements), default=0)
        base = fixed / (1 + HOP_SHARE * hops)
        return cls(
            {one.name: one.inputs for one in elements},
            {one.name: one.emits for one in elements},
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
        """The elements, or the sources, that feed each element; the elements in an order in which each comes after its
        feeders.
        """
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
        """The elements as the stream graph of the paper: seconds of a micro-batch, and of one micro-batch more between
        resources.
        """
        rows = self.rate * max(self.trigger, self.fixed)
        between = self.trigger / 2 + self.fixed
        return StreamGraph(
            {name: self.work[name] * rows + self.hop * self.keyed[name] for name in self.feeders},
            {(one, name): between for name, before in self.feeders.items() for one in before if one in self.feeders},
            {name: min(1.0, self.work[name] * self.rate) for name in self.feeders},
        )

    def is_possible(self, groups: Grouping) -> bool:
        """Whether queries can be joined so: none waits for itself, and no stream is made in two and read in one of them."""
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
        """The group that reads a source: that of the first element that listens to it."""
        return next(groups[name] for name, streams in self.inputs.items() if source in streams)

    def placed(self, groups: Grouping) -> Placed:
        """What a grouping is expected to do.

        An event waits half a trigger interval for a micro-batch, then for all of it, and where it goes on to another query for
        the next multiple of the interval, at which Spark starts the micro-batches of all queries. Queries that run at the same
        time share the cores: what the others work, in the share of time in which they do, makes a query's work last longer.
        """
        lasts = self._durations(groups)
        cycles = {group: max(self.trigger, seconds) for group, seconds in lasts.items()}

        def left(group: str, came: float) -> float:
            """When what comes to a group at a time is visible; times are counted from a multiple of the interval."""
            hurried = cycles[group] > self.trigger or self.trigger == 0  # back to back: it comes at any moment of one
            begins = came + cycles[group] / 2 if hurried else self.trigger * math.ceil(came / self.trigger)
            return begins + lasts[group]

        reached: dict[str, float] = {}
        for name, before in self.feeders.items():
            own = groups[name]
            times = []
            for one in before:
                where = groups[one] if one in reached else self._owner(one, groups)
                # An event waits half a cycle for the first micro-batch; at a trigger that has begun by then.
                came = reached[one] if one in reached else (cycles[where] - self.trigger) / 2 + lasts[where]
                times.append(came if where == own else left(own, came))
            reached[name] = max(times)
        paths = [reached[name] + self.trigger / 2 for name in self.last]
        return Placed(dict(groups), max(paths), float(np.mean(paths)))

    def _durations(self, groups: Grouping) -> dict[str, float]:
        """How long the micro-batches of each query last, seconds."""
        hops = self._hops(groups)
        loads = dict.fromkeys(groups.values(), 0.0)
        for name, group in groups.items():
            loads[group] += self.rate * self.work[name]
        cycle, lasts = self.trigger, dict[str, float]()
        for _ in range(100):  # a micro-batch gathers what comes while the one before runs
            for group, load in loads.items():
                beside = sum(loads.values()) - load
                lasts[group] = self.fixed + self.hop * hops[group] + load * cycle * (1 + beside)
            longer = max(self.trigger, *lasts.values())
            if abs(longer - cycle) < 1e-6 or longer > ENDLESS_S:
                break
            cycle = longer
        return lasts

    def _hops(self, groups: Grouping) -> dict[str, int]:
        """How many keyed hops each group has, one behind the other."""
        depth: dict[str, int] = {}
        for name, before in self.feeders.items():
            inside = [depth[one] for one in before if one in depth and groups[one] == groups[name]]
            depth[name] = max(inside, default=0) + self.keyed[name]
        return {group: max(depth[name] for name in depth if groups[name] == group) for group in groups.values()}

    def least(self) -> float:
        """What no grouping can go below: every event waits for one micro-batch, with the work of the worst path alone in it."""
        longest: dict[str, float] = {}
        for name, before in self.feeders.items():
            longest[name] = self.work[name] + max((longest.get(one, 0.0) for one in before), default=0.0)
        return self.trigger / 2 + self.fixed + self.rate * self.trigger * max(longest.values())


@dataclass(frozen=True)
class Choice:
    """The best grouping, beside all in one query.

    Parameters
    ----------
    exact: whether all groupings were tried; otherwise ``gap`` is to what none can go below, as a fraction.
    """

    best: Placed
    together: Placed
    exact: bool
    gap: float

    @property
    def pays(self) -> bool:
        """Whether it is worth having more than one query."""
        return self.best.worst < (1 - WORTH) * self.together.worst

    @property
    def reason(self) -> str:
        """In a sentence."""
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
    """The grouping with the shortest worst path; of equal ones that with the fewest queries.

    Parameters
    ----------
    queries: most queries.

    Raises
    ------
    ConfigurationError: ``queries`` is below 1.
    """
    if queries < 1:
        raise ConfigurationError(f"queries is {queries}; give 1 or more.")
    names = list(elements.feeders)
    together = elements.placed(dict.fromkeys(names, MAIN))
    exact = len(names) <= MOST
    candidates = groupings(names, queries) if exact else _climbed(elements, queries)
    found = [elements.placed(groups) for groups in candidates if elements.is_possible(groups)]
    best = min([together, *found], key=lambda placed: (round(placed.worst, 9), placed.queries))
    return Choice(best, together, exact, 0.0 if exact else 1 - elements.least() / best.worst)


def groupings(names: Sequence[str], queries: int) -> Iterator[dict[str, str]]:
    """All ways to divide elements into at most so many groups, each once; the first element's is called main."""

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
    """From all in one, and from each element apart: move the element that helps most, until none does."""
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
            scored = [(elements.placed(one).worst, one) for one in moved if elements.is_possible(one)]
            worst, best = min(scored, key=lambda pair: pair[0], default=(math.inf, groups))
            if worst >= present - 1e-9:
                break
            groups, present = best, worst
        yield groups


def described(groups: Grouping) -> dict[str, Any]:
    """A grouping as a plan has it: without the elements that are with the rest."""
    return {name: group for name, group in groups.items() if group != MAIN}
