"""The inverse problem: the least number of resources that is enough for a streaming cost."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.allocation.allocation import Allocation, allocate
from penstock.allocation.arcs import longest, task_flows
from penstock.allocation.bound import lower_bound
from penstock.allocation.graph import StreamGraph, quantity, require_graph
from penstock.allocation.problem import Constraints, problem
from penstock.allocation.resources import Resources
from penstock.allocation.shares import search_shares
from penstock.errors import ConfigurationError, InfeasibleAllocationError


@dataclass(frozen=True)
class LeastResources:
    """The least number of resources that was found to be enough, and a bound on it.

    Args:
        resources: the number found.
        allocation: an allocation to that number, which meets the cost.
        fewest: certified lower bound: fewer than this cannot be enough.
    """

    resources: int
    allocation: Allocation
    fewest: int

    @property
    def optimal(self) -> bool:
        """Whether it is proved that fewer resources are not enough."""
        return self.fewest == self.resources


def least_resources(graph: StreamGraph, cost: float, **options: Any) -> LeastResources:
    """Find the least number of equal resources (capacity 1) on which the graph costs at most ``cost``.

    Args:
        graph: the tasks and transfers.
        cost: the streaming cost to meet, in the unit of the weights.
        options: ``method``, ``time_limit`` (for each number tried), ``seed``, ``sharing``, ``constraints`` and ``progress``
            of :func:`allocate`; the method "exact" proves the number.

    Raises:
        InfeasibleAllocationError: no number of resources gives so low a cost, or the search finds none.
        ConfigurationError: an option is not valid.

    >>> graph = StreamGraph({"a": 1, "b": 1, "c": 1}, {("a", "b"): 0, ("b", "c"): 0})
    >>> least_resources(graph, 5).resources
    2
    """
    require_graph(graph)
    target = quantity("cost", cost)
    if refused := set(options) - {"method", "time_limit", "seed", "sharing", "constraints", "progress"}:
        raise ConfigurationError(f"least_resources() has no option {', '.join(sorted(refused))}.")
    pinned = _pinned(options.get("constraints"))
    count = max(len(graph.tasks), pinned)
    network = graph.free_network
    alone = float(longest(network, np.where(network.task >= 0, graph.weights[network.task], 0.0), np.empty(network.nodes)))
    if target * (1 + 1e-9) < alone:
        raise InfeasibleAllocationError(
            f"No number of resources gives a cost of {target:g}: the heaviest path costs {alone:g} with every task alone."
        )
    fewest = _bisect(1, count, lambda number: _bound(graph, number, options) <= target * (1 + 1e-9))
    allocations: dict[int, Allocation] = {}

    def enough(number: int) -> bool:
        try:
            allocations[number] = allocate(graph, number, **options)
        except InfeasibleAllocationError:
            if number == count:
                raise
            return False  # too few resources for the tasks that must be apart
        if allocations[number].interrupted:
            raise KeyboardInterrupt
        return allocations[number].cost <= target * (1 + 1e-9)

    # The optimal cost does not rise with more resources, nor, nearly always, does the cost that a search finds: so bisect.
    step = 1
    number = least = max(fewest, pinned)
    while not enough(number):
        if number == count:
            raise InfeasibleAllocationError(
                f"No allocation that costs {target:g} was found, even with a resource per task: transfers cost too "
                f"much; the least cost found is {min(a.cost for a in allocations.values()):g}."
            )
        least = number + 1
        number = min(number + step, count)
        step *= 2
    number = _bisect(least, number, enough)
    # The optimal cost does not rise with more resources, so what is proved of a number holds for all below it.
    too_few = (tried for tried, found in allocations.items() if found.lower_bound > target * (1 + 1e-9))
    fewest = max(fewest, pinned, _apart(options.get("constraints")), *(tried + 1 for tried in too_few))
    return LeastResources(number, allocations[number], min(fewest, number))


def _pinned(constraints: Constraints | None) -> int:
    """The highest number among the resources R1, R2, ... to which tasks are pinned, or 1."""
    if not isinstance(constraints, Constraints):
        return 1
    numbers = [str(place)[1:] for place in constraints.pinned.values() if str(place).startswith("R")]
    return max((int(number) for number in numbers if number.isdecimal()), default=1)


def _apart(constraints: Constraints | None) -> int:
    """The number of tasks in the largest group of which each needs a resource of its own, or 1."""
    return max((len({*tasks}) for tasks in constraints.apart), default=1) if isinstance(constraints, Constraints) else 1


def _bound(graph: StreamGraph, number: int, options: dict[str, Any]) -> float:
    """A lower bound on the cost with a number of resources, without a search."""
    instance = problem(graph, Resources.of(number), options.get("sharing", "count"))
    flow = search_shares(instance, instance.free_network)[1]
    return lower_bound(instance, task_flows(instance.free_network, flow, len(graph.tasks)))


def _bisect(low: int, high: int, holds: Any) -> int:
    """The least number from low to high for which ``holds``, if it holds for all larger ones, too, and for ``high``."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low
