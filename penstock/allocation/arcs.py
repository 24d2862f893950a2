"""The paths of a graph as an activity-on-arc network: tasks are arcs, so a complete bipartite block takes one node.

Every source-to-sink path of the graph is a START-to-END path of the network. A task is an arc from the node at which it may
start to the node at which its successors may start. A transfer that costs something is a link, an arc of its own, because
its cost depends on the resources of both ends. Free transfers share nodes, so s(p(500 tasks), p(500 tasks)) has 1,000 arcs
instead of 250,000.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class ArcNetwork(NamedTuple):
    """An activity-on-arc network; arcs are in topological order of their start nodes, node 0 is START, the last one END.

    Args:
        nodes: number of nodes.
        starts, ends: start node and end node of each arc.
        task: task of each arc; -1 for a link.
        tail, head: per arc, the tasks that a priced link joins; 0 for tasks and free links.
        price: per arc, b(e) of a priced link, else 0.
    """

    nodes: int
    starts: Ints
    ends: Ints
    task: Ints
    tail: Ints
    head: Ints
    price: Floats

    @property
    def is_exact(self) -> bool:
        """Whether every arc is a task, so that the graph is the line graph of this network (with free transfers only)."""
        return bool((self.task >= 0).all())


@njit(cache=True)
def _sorted_by(keys, count):  # type: ignore[no-untyped-def]
    """Positions of ``keys`` ordered by key (a counting sort), and where each key's positions begin."""
    begin = np.zeros(count + 1, np.int64)
    for key in keys:
        begin[key + 1] += 1
    for key in range(count):
        begin[key + 1] += begin[key]
    place = begin[:-1].copy()
    order = np.empty(len(keys), np.int64)
    for position, key in enumerate(keys):
        order[place[key]] = position
        place[key] += 1
    return order, begin


@njit(cache=True)
def topological_order(count, starts, ends):  # type: ignore[no-untyped-def]
    """The nodes in topological order, without those on or after a cycle."""
    order, begin = _sorted_by(starts, count)
    awaited = np.zeros(count, np.int64)
    for end in ends:
        awaited[end] += 1
    sorted_nodes = np.empty(count, np.int64)
    last = 0
    for node in range(count):
        if awaited[node] == 0:
            sorted_nodes[last] = node
            last += 1
    place = 0
    while place < last:
        node = sorted_nodes[place]
        place += 1
        for position in order[begin[node] : begin[node + 1]]:
            awaited[ends[position]] -= 1
            if awaited[ends[position]] == 0:
                sorted_nodes[last] = ends[position]
                last += 1
    return sorted_nodes[:last]


@njit(cache=True)
def _mixed(value):  # type: ignore[no-untyped-def]
    """A 64-bit hash (splitmix64) of a task; the sum of its tasks' hashes identifies a set of tasks."""
    value = (np.uint64(value) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@njit(cache=True)
def _names_of_sets(count, starts, ends, free):  # type: ignore[no-untyped-def]
    """Per task, a hash of the set of its predecessors by free transfers, and their number."""
    names, sizes = np.zeros(count, np.uint64), np.zeros(count, np.int64)
    for edge in range(len(starts)):
        if free[edge]:
            names[ends[edge]] += _mixed(starts[edge])
            sizes[ends[edge]] += 1
    return names, sizes


def arc_network(count: int, starts: Ints, ends: Ints, costs: Floats) -> ArcNetwork:
    """Make the network of ``count`` tasks and their edges, in linear time but for one sort of the tasks."""
    free = costs == 0
    names, sizes = _names_of_sets(count, starts, ends, free)
    # Tasks with equal sets of free predecessors share one start node, numbered as the set; the empty set is START, 0.
    _, representative, joint = np.unique(
        np.stack([sizes.astype(np.uint64), names]), axis=1, return_index=True, return_inverse=True
    )
    joint = joint.reshape(-1)
    sets = len(representative)
    priced_in, priced_out = np.zeros(count, bool), np.zeros(count, bool)
    priced_in[ends[~free]] = True
    priced_out[starts[~free]] = True
    # The members of each set are the starts of the free edges into its representative.
    of_set = free & (representative[joint[ends]] == ends)
    member, member_set = starts[of_set], joint[ends[of_set]]
    holding = np.bincount(member, minlength=count)
    finish = sets  # END, renumbered last by the topological order
    fresh = sets + 1
    # A task with priced transfers, or in several sets, needs nodes of its own, which links join to the shared ones.
    begin_node = joint.copy()
    begin_node[priced_in] = fresh + np.arange(priced_in.sum())
    fresh += int(priced_in.sum())
    own_end = priced_out | (holding > 1)
    end_node = np.full(count, finish)
    end_node[member] = member_set
    end_node[own_end] = fresh + np.arange(own_end.sum())
    fresh += int(own_end.sum())
    gathered = priced_in & (sizes > 0)  # a priced task also waits for its free predecessors
    links = own_end[member]
    tails = np.concatenate([begin_node, joint[gathered], end_node[member[links]], end_node[starts[~free]]])
    heads = np.concatenate([end_node, begin_node[gathered], member_set[links], begin_node[ends[~free]]])
    extra = int(gathered.sum() + links.sum())
    priced = int((~free).sum())
    task = np.concatenate([np.arange(count), np.full(extra + priced, -1)])
    tail = np.concatenate([np.zeros(count + extra, np.int64), starts[~free]])
    head = np.concatenate([np.zeros(count + extra, np.int64), ends[~free]])
    price = np.concatenate([np.zeros(count + extra), costs[~free]])
    # Drop unused nodes, and number the others in topological order.
    used = np.zeros(fresh, bool)
    used[tails] = used[heads] = True
    used[[0, finish]] = True
    order = topological_order(fresh, tails, heads)
    order = np.concatenate([[0], order[(order != 0) & (order != finish) & used[order]], [finish]])
    number = np.full(fresh, -1)
    number[order] = np.arange(len(order))
    tails, heads = number[tails], number[heads]
    arcs = np.argsort(tails, kind="stable")
    return ArcNetwork(len(order), tails[arcs], heads[arcs], task[arcs], tail[arcs], head[arcs], price[arcs])


@njit(cache=True)
def arc_costs(network, processing, resource, slowness, cost):  # type: ignore[no-untyped-def]
    """Fill ``cost``, one per arc: d(v) for a task, b(e) / bandwidth for a link between two resources."""
    for arc in range(len(cost)):
        task = network.task[arc]
        if task >= 0:
            cost[arc] = processing[task]
        else:
            price = network.price[arc]
            cost[arc] = price * slowness[resource[network.tail[arc]], resource[network.head[arc]]] if price > 0 else 0.0


@njit(cache=True)
def longest(network, cost, reach):  # type: ignore[no-untyped-def]
    """Fill ``reach``, the cost of the worst path from START to every node, and return that of END."""
    reach[:] = 0.0
    for arc in range(len(cost)):
        until = reach[network.starts[arc]] + cost[arc]
        if until > reach[network.ends[arc]]:
            reach[network.ends[arc]] = until
    return reach[-1]


@njit(cache=True)
def worst_arcs(network, cost, reach):  # type: ignore[no-untyped-def]
    """The arcs of one worst path, from END back to START; call after :func:`longest`."""
    node = network.nodes - 1
    arcs = []
    for arc in range(len(cost) - 1, -1, -1):
        start = network.starts[arc]
        if network.ends[arc] == node and reach[start] + cost[arc] == reach[node]:
            arcs.append(arc)
            node = start
    return arcs


@njit(cache=True)
def soft_longest(network, cost, sharpness, reach, soft, crowd):  # type: ignore[no-untyped-def]
    """The smoothed maximum over paths, log(sum over paths of exp(sharpness x cost)) / sharpness.

    Fills ``reach`` as :func:`longest` does, and ``soft`` with the smoothed maximum of the paths to every node; ``crowd``
    is scratch. All are per node. Sums are relative to their largest term, so that many paths cannot overflow.
    """
    reach[:] = 0.0
    soft[:] = -np.inf
    soft[0] = 0.0
    crowd[:] = 1.0
    before = 0
    for arc in range(len(cost)):
        start, end = network.starts[arc], network.ends[arc]
        if start != before:  # all arcs into this node have been added
            if crowd[start] > 1.0:
                soft[start] += np.log(crowd[start]) / sharpness
            before = start
        until = reach[start] + cost[arc]
        if until > reach[end]:
            reach[end] = until
        until = soft[start] + cost[arc]
        if soft[end] == -np.inf:
            soft[end] = until
        elif until > soft[end]:
            crowd[end] = crowd[end] * np.exp(sharpness * (soft[end] - until)) + 1.0
            soft[end] = until
        else:
            crowd[end] += np.exp(sharpness * (until - soft[end]))
    soft[-1] += np.log(crowd[-1]) / sharpness
    return soft[-1]


@njit(cache=True)
def links_at(network, owner, owners):  # type: ignore[no-untyped-def]
    """The priced links at each owner (a task or its unit), in compressed rows: where each row begins, and the arcs."""
    begin = np.zeros(owners + 1, np.int64)
    for arc in range(len(network.task)):
        if network.price[arc] > 0:
            begin[owner[network.tail[arc]] + 1] += 1
            begin[owner[network.head[arc]] + 1] += 1
    for row in range(owners):
        begin[row + 1] += begin[row]
    links, fill = np.empty(begin[-1], np.int64), begin[:-1].copy()
    for arc in range(len(network.task)):
        if network.price[arc] > 0:
            for row in (owner[network.tail[arc]], owner[network.head[arc]]):
                links[fill[row]] = arc
                fill[row] += 1
    return begin, links


def log_paths(network: ArcNetwork) -> float:
    """The logarithm of the number of paths from START to END."""
    scratch = [np.empty(network.nodes) for _ in range(3)]
    return float(soft_longest(network, np.zeros(len(network.task)), 1.0, *scratch))


@njit(cache=True)
def soft_flows(network, cost, sharpness, soft, inflow, flow):  # type: ignore[no-untyped-def]
    """Fill ``flow``, the gradient of the smoothed maximum: the fraction of a unit flow through each arc.

    Every path is weighted by exp(sharpness x cost). As a mixture of paths, this is an exact unit flow for any
    costs. Call after :func:`soft_longest`; ``inflow``, one per node, is scratch.
    """
    inflow[:] = 0.0
    inflow[-1] = 1.0
    for arc in range(len(cost) - 1, -1, -1):
        start, end = network.starts[arc], network.ends[arc]
        flow[arc] = inflow[end] * np.exp(min(0.0, sharpness * (soft[start] + cost[arc] - soft[end])))
        inflow[start] += flow[arc]


def soft_flow(network: ArcNetwork, cost: Floats, sharpness: float) -> Floats:
    """The flow of :func:`soft_flows`, for a sharpness relative to 1 / the cost of the worst path."""
    reach, soft, scratch = (np.empty(network.nodes) for _ in range(3))
    scaled = sharpness / max(longest(network, cost, reach), 1e-300)
    flow = np.empty(len(cost))
    soft_longest(network, cost, scaled, reach, soft, scratch)
    soft_flows(network, cost, scaled, soft, scratch, flow)
    return flow


def task_flows(network: ArcNetwork, flow: Floats, count: int) -> Floats:
    """The flow through each of ``count`` tasks, from the flow through each arc."""
    flows = np.zeros(count)
    arcs: Any = network.task >= 0
    flows[network.task[arcs]] = flow[arcs]
    return flows
