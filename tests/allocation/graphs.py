"""Random graphs for hypothesis, and slow, obvious ways to compute what the package computes."""

import itertools

import networkx as nx
from hypothesis import strategies as st

from penstock.allocation import StreamGraph

WEIGHTS = st.sampled_from([0.0, 0.1, 1.0, 1.0, 2.5, 7.0]) | st.floats(0.01, 10)


@st.composite
def graphs(draw, most=7, transfers=True, loads=False):
    """Acyclic graphs of up to ``most`` tasks, edges from lower to higher positions, names in another order."""
    count = draw(st.integers(1, most))
    names = draw(st.permutations([f"t{i}" for i in range(count)]))
    pairs = list(itertools.combinations(names, 2))
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    cost = st.sampled_from([0.0, 0.0, 0.5, 3.0, 20.0]) if transfers else st.just(0.0)
    utilisation = {name: draw(st.sampled_from([0.0, 0.2, 0.9, 1.0])) for name in names} if loads else {}
    tasks = {name: draw(WEIGHTS) for name in sorted(names)}
    return StreamGraph(tasks, {pair: draw(cost) for pair in chosen}, utilisation)


def digraph(graph):
    """The same graph for networkx."""
    made = nx.DiGraph(list(graph.transfers))
    made.add_nodes_from(graph.tasks)
    return made


def slow_cost(graph, assignment, capacities=None, sharing="count"):
    """d(G) by walking every path."""
    successors = {task: [end for start, end in graph.transfers if start == task] for task in graph.tasks}
    entered = {end for _, end in graph.transfers}

    def processing(task):
        others = [other for other in graph.tasks if other != task and assignment[other] == assignment[task]]
        crowd = len(others) if sharing == "count" else sum(graph.loads.get(other, 1.0) for other in others)
        return graph.tasks[task] * (1 + crowd) / (capacities[assignment[task]] if capacities else 1)

    def worst(task):
        after = [graph.transfers[task, end] * (assignment[task] != assignment[end]) + worst(end) for end in successors[task]]
        return processing(task) + max(after, default=0.0)

    return max(worst(task) for task in graph.tasks if task not in entered)


def every_assignment(graph, labels):
    for choice in itertools.product(labels, repeat=len(graph.tasks)):
        yield dict(zip(graph.tasks, choice, strict=True))


def slow_optimum(graph, capacities, sharing="count", allowed=lambda assignment: True, extra=lambda assignment: 0.0):
    return min(
        slow_cost(graph, assignment, capacities, sharing) + extra(assignment)
        for assignment in every_assignment(graph, capacities)
        if allowed(assignment)
    )


def is_spd(tasks, edges):
    """Definition II.3 word for word: split in parallel by components, in series where no task is beside another."""
    tasks = set(tasks)
    graph = nx.DiGraph([edge for edge in edges if set(edge) <= tasks])
    graph.add_nodes_from(tasks)
    if len(tasks) == 1:
        return True
    parts = list(nx.weakly_connected_components(graph))
    if len(parts) > 1:
        return all(is_spd(part, edges) for part in parts)
    below = {task: nx.descendants(graph, task) for task in tasks}
    beside = nx.Graph()
    beside.add_nodes_from(tasks)
    beside.add_edges_from((u, v) for u, v in itertools.combinations(tasks, 2) if v not in below[u] and u not in below[v])
    parts = sorted(nx.connected_components(beside), key=lambda part: -max(len(below[task]) for task in part))
    if len(parts) == 1:
        return False
    rank = {task: number for number, part in enumerate(parts) for task in part}
    wanted = {
        (u, v)
        for before, after in itertools.pairwise(parts)
        for u in before
        for v in after
        if not below[u] & before and not any(v in below[other] for other in after)
    }
    return {(u, v) for u, v in graph.edges if rank[u] != rank[v]} == wanted and all(is_spd(p, edges) for p in parts)
