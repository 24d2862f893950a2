"""Series-parallel-decomposable graphs: composing them, decomposing them, and a witness if a graph is not decomposable.

By Definition II.3 of Eidenbenz and Locher these are the minimal vertex series-parallel graphs of Valdes, Tarjan and
Lawler (1982): the line graphs of two-terminal series-parallel multigraphs. Composing and decomposing are linear in tasks and
transfers.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from penstock.allocation.arcs import ArcNetwork, topological_order
from penstock.allocation.graph import StreamGraph, Task, listed, require_graph
from penstock.errors import NotSeriesParallelError, TopologyError


@dataclass(frozen=True, eq=False)
class SpdTree:
    """A series-parallel decomposition tree; an inner node has two or more children, none of its own kind.

    Args:
        kind: the kind of the root.
        task: the name of the task, if the root is one.
        children: the subtrees; the order counts in a series only.
    """

    kind: Literal["task", "series", "parallel"]
    task: Task = None
    children: tuple["SpdTree", ...] = ()

    def postorder(self) -> Iterator["SpdTree"]:
        """Iterate over all nodes, children before their parent."""
        waiting, nodes = [self], []
        while waiting:
            nodes.append(waiting.pop())
            waiting.extend(nodes[-1].children)
        return reversed(nodes)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Names of the leaves' tasks, from left to right."""
        return tuple(node.task for node in self.postorder() if node.kind == "task")

    def graph(
        self,
        tasks: Mapping[Task, float] | float = 1.0,
        transfers: Mapping[tuple[Task, Task], float] | float = 0.0,
        loads: Mapping[Task, float] | None = None,
    ) -> StreamGraph:
        """Make the graph of this tree; weights and transfer costs are mappings, or one number for all.

        Raises:
            TopologyError: a task occurs twice, or a transfer is given that the tree does not have.
            ConfigurationError: a task has no weight.
        """
        leaves = self.tasks
        if len(set(leaves)) < len(leaves):
            twice = {task for task in leaves if leaves.count(task) > 1}
            raise TopologyError(f"Tasks occur twice in the tree: {listed(twice)}; each task has one place.")
        weights: dict[Task, Any] = {t: tasks.get(t) if isinstance(tasks, Mapping) else tasks for t in leaves}
        edges: list[tuple[Task, Task]] = []
        ends: dict[int, tuple[list[Task], list[Task]]] = {}  # per node: its sources and its sinks
        for node in self.postorder():
            parts = [ends.pop(id(child)) for child in node.children]
            if node.kind == "task":
                ends[id(node)] = ([node.task], [node.task])
            elif node.kind == "parallel":
                ends[id(node)] = ([t for part in parts for t in part[0]], [t for part in parts for t in part[1]])
            else:
                for before, after in itertools.pairwise(parts):
                    edges += [(start, end) for start in before[1] for end in after[0]]
                ends[id(node)] = (parts[0][0], parts[-1][1])
        if isinstance(transfers, Mapping):
            if unknown := set(transfers) - set(edges):
                raise TopologyError(f"The tree has no transfer {listed(unknown)}; it has {listed(edges)}.")
            costs = {edge: transfers.get(edge, 0.0) for edge in edges}
        else:
            costs = dict.fromkeys(edges, transfers)
        return StreamGraph(weights, costs, loads or {})

    def __str__(self) -> str:
        text: dict[int, str] = {}
        for node in self.postorder():
            inner = ", ".join(text.pop(id(child)) for child in node.children)
            text[id(node)] = str(node.task) if node.kind == "task" else f"{node.kind[0]}({inner})"
        return text[id(self)]

    __repr__ = __str__


@overload
def series(*parts: SpdTree | str | int) -> SpdTree: ...
@overload
def series(*parts: StreamGraph, cost: float = 0.0) -> StreamGraph: ...
def series(*parts: StreamGraph | SpdTree | str | int, cost: float = 0.0) -> StreamGraph | SpdTree:
    """Compose in series: every sink of a part feeds every source of the next (section II-B).

    Args:
        parts: trees and names of tasks, giving a tree; or graphs, giving a graph.
        cost: the transfer cost of the new edges between graphs.

    Raises:
        TopologyError: no part, graphs mixed with trees, or graphs that share a task.

    >>> series("read", parallel("parse", "count"), "write")
    s(read, p(parse, count), write)
    """
    if cost and not any(isinstance(part, StreamGraph) for part in parts):
        raise TopologyError("A tree has no transfer costs; give them to its graph(), as graph(weights, transfers).")
    return _compose("series", parts, cost)


@overload
def parallel(*parts: SpdTree | str | int) -> SpdTree: ...
@overload
def parallel(*parts: StreamGraph) -> StreamGraph: ...
def parallel(*parts: StreamGraph | SpdTree | str | int) -> StreamGraph | SpdTree:
    """Compose in parallel: the parts side by side, without new transfers (section II-B).

    Parameters and errors are as for :func:`series`, but without a cost.

    Examples:
        >>> len(parallel(StreamGraph({"a": 1.0}), StreamGraph({"b": 2.0})).tasks)
        2
    """
    return _compose("parallel", parts, 0.0)


def _compose(
    kind: Literal["series", "parallel"], parts: tuple[StreamGraph | SpdTree | str | int, ...], cost: float
) -> StreamGraph | SpdTree:
    """Compose graphs into a graph, or trees and task names into a tree whose like-kind children are merged."""
    graphs = [part for part in parts if isinstance(part, StreamGraph)]
    if not parts or len(graphs) not in (0, len(parts)):
        raise TopologyError(f"{kind}() takes one or more graphs, or one or more trees and names of tasks.")
    if graphs:
        return _union(graphs, cost if kind == "series" else None)
    trees = [part if isinstance(part, SpdTree) else SpdTree("task", part) for part in parts]
    children = [child for tree in trees for child in (tree.children if tree.kind == kind else (tree,))]
    return children[0] if len(children) == 1 else SpdTree(kind, None, tuple(children))


def _union(graphs: list[StreamGraph], cost: float | None) -> StreamGraph:
    """The graphs side by side; with a cost, each one's sinks are joined to the next one's sources."""
    tasks: dict[Task, float] = {}
    transfers: dict[tuple[Task, Task], float] = {}
    loads: dict[Task, float] = {}
    for graph in graphs:
        if shared := set(tasks) & set(graph.tasks):
            raise TopologyError(f"The graphs share tasks: {listed(shared)}; give each its own name.")
        tasks |= graph.tasks
        transfers |= graph.transfers
        loads |= graph.loads
    if cost is not None:
        for before, after in itertools.pairwise(graphs):
            with_successors, with_predecessors = {start for start, _ in before.transfers}, {end for _, end in after.transfers}
            sinks, sources = set(before.tasks) - with_successors, set(after.tasks) - with_predecessors
            transfers |= {(s, t): cost for s in before.tasks if s in sinks for t in after.tasks if t in sources}
    return StreamGraph(tasks, transfers, loads)


_Binary = tuple[Literal["series", "parallel"], "_Binary", "_Binary"] | int
"""A tree under construction: a task's position, or a kind and two subtrees; binary, so composing takes constant time."""


def spd_tree(graph: StreamGraph) -> SpdTree:
    """Decompose a graph into its tree, which is unique up to the order of parallel parts.

    Takes linear time in tasks and transfers: the graph is the line graph of a multigraph, which reductions in series
    and in parallel bring down to one arc.

    Raises:
        NotSeriesParallelError: the graph has no such tree; the error's ``witness`` shows why.

    >>> spd_tree(StreamGraph({"a": 1, "b": 1, "c": 2}, {("a", "b"): 0, ("a", "c"): 0}))
    s(a, p(b, c))
    """
    require_graph(graph)
    network, names = graph.free_network, list(graph.tasks)
    if not network.is_exact:
        raise _refused(names, *_crossing(graph))
    arcs = _reduced(network)
    if len(arcs) > 1:
        raise _refused(names, *_forbidden(arcs, network.nodes))
    return _flat(next(iter(arcs.values())), names)


def _reduced(network: ArcNetwork) -> dict[tuple[int, int], _Binary]:
    """Reduce a network in series and in parallel as far as possible; return the remaining arcs, by (start, end)."""
    arcs: dict[tuple[int, int], _Binary] = {}
    into: list[set[int]] = [set() for _ in range(network.nodes)]
    out_of: list[set[int]] = [set() for _ in range(network.nodes)]

    def add(start: int, end: int, part: _Binary) -> None:
        present = arcs.get((start, end))
        arcs[start, end] = part if present is None else ("parallel", present, part)
        out_of[start].add(end)
        into[end].add(start)

    for start, end, task in zip(network.starts.tolist(), network.ends.tolist(), network.task.tolist(), strict=True):
        add(start, end, task)
    waiting = list(range(network.nodes - 2, 0, -1))
    while waiting:
        node = waiting.pop()
        if len(into[node]) == len(out_of[node]) == 1:
            (start,), (end,) = into[node], out_of[node]
            out_of[start].remove(node)
            into[end].remove(node)
            into[node].clear()
            add(start, end, ("series", arcs.pop((start, node)), arcs.pop((node, end))))
            waiting += [near for near in (start, end) if 0 < near < network.nodes - 1]
    return arcs


def _flat(binary: _Binary, names: list[Task]) -> SpdTree:
    """Merge the nodes of a binary tree that are of their parent's kind."""
    roots: list[_Binary] = [binary]  # subtrees that are not of their parent's kind, breadth first
    first: list[int] = []  # per root, where its children begin in `roots`
    for root in roots:
        first.append(len(roots))
        waiting = [] if isinstance(root, int) else [root[2], root[1]]
        while waiting:
            part = waiting.pop()
            if not isinstance(part, int) and not isinstance(root, int) and part[0] == root[0]:
                waiting += [part[2], part[1]]
            else:
                roots.append(part)
    built: list[SpdTree] = []  # from the last root to the first
    for position in range(len(roots) - 1, -1, -1):
        root, end = roots[position], first[position + 1] if position + 1 < len(first) else len(roots)
        if isinstance(root, int):
            built.append(SpdTree("task", names[root]))
        else:
            children = tuple(built[len(roots) - 1 - child] for child in range(first[position], end))
            built.append(SpdTree(root[0], None, children))
    return built[-1]


def _refused(names: list[Task], a: int, b: int, c: int, d: int, redundant: bool) -> NotSeriesParallelError:
    """The error for a witness: the N of a, b, c, d, or a redundant transfer b -> c that b -> d, ..., a -> c implies."""
    witness = (names[a], names[b], names[c], names[d])
    if redundant:
        text = (
            f"The graph is not series-parallel-decomposable: the transfer {names[b]} -> {names[c]} is implied by the "
            f"path through {names[d]} and {names[a]}; leave it out to decompose the rest."
        )
    else:
        text = (
            f"The graph is not series-parallel-decomposable: {names[a]} and {names[b]} both come before {names[c]}, but "
            f"only {names[b]} comes before {names[d]}; allocate() takes any acyclic graph."
        )
    return NotSeriesParallelError(text, witness)


def _crossing(graph: StreamGraph) -> tuple[int, int, int, int, bool]:
    """The witness in a graph that is not a line graph: two tasks that share some, but not all, of their successors."""
    after: list[list[int]] = [[] for _ in graph.tasks]
    before: list[list[int]] = [[] for _ in graph.tasks]
    for start, end in zip(*(ends.tolist() for ends in graph.edges), strict=True):
        after[start].append(end)
        before[end].append(start)
    alike: dict[frozenset[int], int] = {}
    kind = [alike.setdefault(frozenset(successors), task) for task, successors in enumerate(after)]
    for c, feeding in enumerate(before):
        for a in feeding:
            b = feeding[0]
            if kind[a] != kind[b]:
                if set(after[b]) < set(after[a]):
                    a, b = b, a
                return _about_paths(after, a, b, c, min(set(after[b]) - set(after[a])))
    raise AssertionError("called for graphs that are no line graphs only")


def _about_paths(after: list[list[int]], a: int, b: int, c: int, d: int) -> tuple[int, int, int, int, bool]:
    """The witness from transfers a -> c, b -> c and b -> d without a -> d: tasks by their paths, or a redundant transfer."""
    if way := _way(after, a, d):
        if _way(after, b, way[1]):  # then b reaches d by more than its own transfer
            return _implied(after, b, d)
        a, b, d = b, a, way[1]
    for start in (b, a):
        if _way(after, start, c, indirectly=True):
            return _implied(after, start, c)
    return a, b, c, d, False


def _implied(after: list[list[int]], start: int, end: int) -> tuple[int, int, int, int, bool]:
    """The witness for a transfer start -> end that a longer path implies."""
    longer = _way(after, start, end, indirectly=True)
    return longer[-2], start, end, longer[1], True


def _way(after: list[list[int]], start: int, end: int, indirectly: bool = False) -> list[int]:
    """The tasks of a path between two tasks, or an empty list; ``indirectly`` asks for more than one transfer."""
    previous: dict[int, int] = {}
    waiting = [start]
    while waiting:
        task = waiting.pop()
        for following in after[task]:
            if following not in previous and not (indirectly and task == start and following == end):
                previous[following] = task
                waiting.append(following)
    if end not in previous:
        return []
    path = [end]
    while path[-1] != start:
        path.append(previous[path[-1]])
    return path[::-1]


def _forbidden(arcs: dict[tuple[int, int], _Binary], nodes: int) -> tuple[int, int, int, int, bool]:
    """The witness in an irreducible network: four tasks whose order forms an N.

    Take the last node q (in topological order) that one arc alone enters, and the first node h that q's arcs enter;
    h is not the last node, and some other arc enters it. Then b = the arc into q, d = another arc out of q, a = another
    arc into h and c = an arc out of h: a and b come before c, b comes before d, and since nothing leads from h back to
    q, a does not come before d.
    """
    pairs = np.array(list(arcs))
    place = {int(node): position for position, node in enumerate(topological_order(nodes, pairs[:, 0], pairs[:, 1]))}
    into: dict[int, list[int]] = {}
    out_of: dict[int, list[int]] = {}
    for start, end in arcs:
        out_of.setdefault(start, []).append(end)
        into.setdefault(end, []).append(start)
    q = max((node for node in into if len(into[node]) == 1 and node in out_of), key=place.__getitem__)
    h, other, *_ = sorted(out_of[q], key=place.__getitem__)
    p = next(start for start in into[h] if start != q)
    a, b, c, d = (_leaf(arcs[pair]) for pair in ((p, h), (into[q][0], q), (h, out_of[h][0]), (q, other)))
    return a, b, c, d, False


def _leaf(part: _Binary) -> int:
    """The position of the first task of a tree."""
    while not isinstance(part, int):
        part = part[1]
    return part
