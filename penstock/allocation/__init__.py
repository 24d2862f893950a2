"""Allocating the tasks of a stream graph to resources: costs, shares, allocations, and bounds that certify them.

>>> from penstock.allocation import StreamGraph, allocate
>>> graph = StreamGraph(
...     tasks={"read": 1, "parse": 4, "count": 2, "write": 1},
...     transfers={("read", "parse"): 0.5, ("read", "count"): 0.5, ("parse", "write"): 0.5, ("count", "write"): 0.5},
... )
>>> best = allocate(graph, resources=3)
>>> f"{best.cost:g} on {' > '.join(best.worst_path)}, proved optimal: {best.optimal}"
'8 on read > parse > write, proved optimal: True'

The theory is in ``docs/background/allocation.md``; the words are those of Eidenbenz and Locher, "Task Allocation for
Distributed Stream Processing" (2016).
"""

from penstock.extras import needs

with needs():
    from penstock.allocation.allocation import METHODS, Allocation, allocate
    from penstock.allocation.cost import streaming_cost, worst_path
    from penstock.allocation.generate import (
        FAMILIES,
        average_trap,
        greedy_trap,
        partition_graph,
        random_graph,
        random_tree,
        subset_sum_cost,
        subset_sum_graph,
    )
    from penstock.allocation.graph import StreamGraph
    from penstock.allocation.least import LeastResources, least_resources
    from penstock.allocation.problem import Constraints
    from penstock.allocation.resources import Resources
    from penstock.allocation.series_parallel import SpdTree, parallel, series, spd_tree
    from penstock.allocation.shares import Shares, continuous_shares
    from penstock.errors import InfeasibleAllocationError, NotSeriesParallelError

__all__ = [
    "FAMILIES",
    "METHODS",
    "Allocation",
    "Constraints",
    "InfeasibleAllocationError",
    "LeastResources",
    "NotSeriesParallelError",
    "Resources",
    "Shares",
    "SpdTree",
    "StreamGraph",
    "allocate",
    "average_trap",
    "continuous_shares",
    "greedy_trap",
    "least_resources",
    "parallel",
    "partition_graph",
    "random_graph",
    "random_tree",
    "series",
    "spd_tree",
    "streaming_cost",
    "subset_sum_cost",
    "subset_sum_graph",
    "worst_path",
]
