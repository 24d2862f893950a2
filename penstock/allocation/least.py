"""The inverse question: how few resources are enough for a streaming cost."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.allocation.allocation import Allocation, allocate
from penstock.allocation.arcs import longest, task_flows
from penstock.allocation.bound import lower_bound
from penstock.allocation.graph import StreamGraph, quantity
from penstock.allocation.problem import Constraints, problem
from penstock.allocation.resources import Resources
from penstock.allocation.shares import search_shares
from penstock.errors import ConfigurationError, InfeasibleAllocationError


@dataclass(frozen=True)
class LeastResources:
    """How few resources are enough.

    Parameters
    ----------
    resources: the number found.
    allocation: an allocation to so many that costs no more than was asked.
    fewest: no fewer than so many can be enough; certified.
    """

    resources: int
    allocation: Allocation
    fewest: int

    @property
    def optimal(self) -> bool:
        """Whether it is proved that no fewer are enough."""
        return self.fewest == self.resources


def least_resources(graph: StreamGraph, cost: float, **options: Any) -> LeastResources:
    """The least number of equal resources (capacity 1) on which the graph costs at most ``cost``.

    Parameters
    ----------
    graph: the tasks and transfers.
    cost: the streaming cost to meet, in the unit of the weights.
    options: ``method``, ``time_limit`` (for each number tried), ``seed``, ``sharing``, ``constraints`` and ``progress``
        of :func:`allocate`; "exact" proves the number.

    Raises
    ------
    InfeasibleAllocationError: no number of resources gives so low a cost, or the search finds none.
    ConfigurationError: an option is not understood.

    >>> graph = StreamGraph({"a": 1, "b": 1, "c": 1}, {("a", "b"): 0, ("b", "c"): 0})
    >>> least_resources(graph, 5).resources
    2
    """
    target = quantity("cost", cost)
    if refused := set(options) - {"method", "time_limit", "seed", "sharing", "constraints", "progress"}:
        raise ConfigurationError(f"least_resources() has no option {', '.join(sorted(refused))}.")
    pinned = _pinned(options.get("constraints"))
    count = max(len(graph.tasks), pinned)
    network = graph.free_network
    alone = float(longest(network, np.where(network.task >= 0, graph.weights[network.task], 0.0), np.empty(network.nodes)))
    if target < alone:
        raise InfeasibleAllocationError(
            f"No number of resources gives a cost of {target:g}: the heaviest path costs {alone:g} with every task alone."
        )
    fewest = _bisect(1, count, lambda number: _bound(graph, number, options) <= target * (1 + 1e-9))
    found: dict[int, Allocation] = {}

    def enough(number: int) -> bool:
        try:
            found[number] = allocate(graph, number, **options)
        except InfeasibleAllocationError:
            if number == count:
                raise
            return False  # too few to keep apart what must be
        if found[number].interrupted:
            raise KeyboardInterrupt
        return found[number].cost <= target * (1 + 1e-9)

    # The optimum falls with every resource, and so, nearly always, does what the search finds.
    step = 1
    number = least = max(fewest, pinned)
    while not enough(number):
        if number == count:
            raise InfeasibleAllocationError(
                f"No allocation that costs {target:g} was found, even with a resource per task: transfers cost too "
                f"much; the least cost found is {min(a.cost for a in found.values()):g}."
            )
        least = number + 1
        number = min(number + step, count)
        step *= 2
    number = _bisect(least, number, enough)
    while fewest < number and fewest in found and found[fewest].lower_bound > target * (1 + 1e-9):
        fewest += 1
    return LeastResources(number, found[number], fewest)


def _pinned(constraints: Constraints | None) -> int:
    """The highest resource R1, R2, ... that a task is pinned to."""
    if not isinstance(constraints, Constraints):
        return 1
    numbers = [str(place)[1:] for place in constraints.pinned.values() if str(place).startswith("R")]
    return max((int(number) for number in numbers if number.isdigit()), default=1)


def _bound(graph: StreamGraph, number: int, options: dict[str, Any]) -> float:
    given = problem(graph, Resources.of(number), options.get("sharing", "count"))
    flow = search_shares(given, given.free_network)[1]
    return lower_bound(given, task_flows(given.free_network, flow, len(graph.tasks)))


def _bisect(low: int, high: int, holds: Any) -> int:
    """The least number from low to high for which something holds, if it holds from there on and at ``high``."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
