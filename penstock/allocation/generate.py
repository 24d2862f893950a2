"""Families of graphs: random ones for measurements, and the paper's instances that are hard for an algorithm."""

from collections.abc import Callable, Sequence

import numpy as np

from penstock.allocation.graph import StreamGraph, quantity, whole
from penstock.allocation.series_parallel import SpdTree, parallel, series
from penstock.errors import ConfigurationError

WEIGHTS = ("equal", "uniform", "lognormal", "heavy")
FAMILIES = ("spd", "chain", "fork", "stages", "layered", "dag")


def random_graph(family: str, tasks: int, *, weights: str = "lognormal", transfer: float = 0.0, seed: int = 0) -> StreamGraph:
    """Make a random graph.

    Args:
        family: "spd", a random composition; "chain"; "fork", a chain of fork-joins; "stages", operators in series
            with some tens of parallel tasks each, as Storm and Spark run them; "layered", tasks in layers with one to three
            successors in the next; "dag", tasks with one to three successors among the next sqrt(n).
        tasks: number of tasks.
        weights: "equal" (1), "uniform" (0.5 to 1.5), "lognormal" (sigma 1) or "heavy" (Pareto, tail index 1.5); mean near 1.
        transfer: mean of the transfer costs, which are uniform from 0 to twice the mean.
        seed: of the random generator.

    Raises:
        ConfigurationError: the family or the weights are unknown, or there is less than one task.

    Examples:
        >>> len(random_graph("spd", 12, seed=5).tasks)
        12
    """
    if family not in FAMILIES or weights not in WEIGHTS:
        raise ConfigurationError(
            f"random_graph has families {', '.join(FAMILIES)} and weights {', '.join(WEIGHTS)}; got {family!r}, {weights!r}."
        )
    whole("tasks", tasks)
    whole("seed", seed, least=0)
    quantity("transfer", transfer)
    rng = np.random.default_rng([seed, tasks, FAMILIES.index(family), WEIGHTS.index(weights)])
    edges = {"layered": _layered, "dag": _dag}[family](tasks, rng) if family in ("layered", "dag") else None
    if edges is None:
        edges = list(_tree(family, tasks, rng).graph().transfers)
    draw: dict[str, Callable[[], np.ndarray[tuple[int], np.dtype[np.float64]]]] = {
        "equal": lambda: np.ones(tasks),
        "uniform": lambda: rng.uniform(0.5, 1.5, tasks),
        "lognormal": lambda: rng.lognormal(-0.5, 1.0, tasks),
        "heavy": lambda: (1 + rng.pareto(1.5, tasks)) / 3,
    }
    costs = rng.uniform(0, 2 * transfer, len(edges)) if transfer else np.zeros(len(edges))
    return StreamGraph(dict(enumerate(draw[weights]().tolist())), dict(zip(edges, costs.tolist(), strict=True)))


def _tree(family: str, tasks: int, rng: np.random.Generator) -> SpdTree:
    if family == "chain":
        return series(*(SpdTree("task", task) for task in range(tasks)))
    widths: list[int] = []
    if family == "stages":
        stages = min(max(5, tasks // 50), tasks)
        cuts = np.sort(rng.choice(np.arange(1, tasks), stages - 1, replace=False))
        widths = np.diff([0, *cuts, tasks]).tolist()
    elif family == "fork":
        while sum(widths) < tasks:
            widths += [1, int(rng.integers(2, 6))]
        widths[-1] -= sum(widths) - tasks
        widths = [width for width in widths if width > 0]
    else:
        return random_tree(tasks, rng)
    names = iter(range(tasks))
    return series(*(parallel(*(next(names) for _ in range(width))) for width in widths))


def random_tree(tasks: int, rng: np.random.Generator) -> SpdTree:
    """Make a random composition of tasks 0, 1, ...: nodes have 2 to 5 children of random sizes, and kinds alternate.

    Raises:
        ConfigurationError: the number of tasks is less than 1.

    Examples:
        >>> import numpy as np
        >>> tree = random_tree(5, np.random.default_rng(1))
        >>> type(tree).__name__
        'SpdTree'
    """
    whole("tasks", tasks)
    kinds = (series, parallel)
    # Entries of `waiting`: (number of tasks, kind, number of children to compose, 0 if the node is not split yet).
    done: list[SpdTree | int] = []
    waiting: list[tuple[int, int, int]] = [(tasks, int(rng.integers(2)), 0)]
    named = 0
    while waiting:
        size, kind, children = waiting.pop()
        if children:
            done[-children:] = [kinds[kind](*done[-children:])]
        elif size == 1:
            done.append(named)
            named += 1
        else:
            number = min(size, int(rng.integers(2, 6)))
            # Dirichlet(2) makes very uneven splits rare, so that the tree's depth is logarithmic and no block is too large.
            sizes = 1 + rng.multinomial(size - number, rng.dirichlet(np.full(number, 2.0)))
            waiting.append((size, kind, number))
            waiting += [(int(part), 1 - kind, 0) for part in sizes]
    return series(*done)


def _layered(tasks: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    width = max(1, round(tasks**0.5))
    edges = set()
    for task in range(tasks):
        following = np.arange((task // width + 1) * width, min((task // width + 2) * width, tasks))
        if len(following):
            chosen = rng.choice(following, min(len(following), int(rng.integers(1, 4))), replace=False)
            edges |= {(task, int(end)) for end in chosen}
    return sorted(edges)


def _dag(tasks: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    reach = max(3, round(tasks**0.5))
    edges = set()
    for task in range(tasks - 1):
        far = min(reach, tasks - 1 - task)
        chosen = rng.choice(far, min(far, int(rng.integers(1, 4))), replace=False)
        edges |= {(task, task + 1 + int(step)) for step in chosen}
    return sorted(edges)


def subset_sum_graph(numbers: Sequence[int], target: int, size: int) -> tuple[StreamGraph, int]:
    """Make Theorem II.4's graph and its number of resources, from SUBSETSUM for ``size`` of the numbers.

    As printed, the cost 2x/k - s_i of an edge can be negative. So a constant is added to both edges of every pair, which
    adds ``size`` times the constant to both paths.

    Raises:
        ConfigurationError: there are no numbers, or the size is not between 1 and their number.

    Examples:
        >>> graph, resources = subset_sum_graph([1, 2, 3], 5, 2)
        >>> resources > 1
        True
    """
    count, weight, shift = len(numbers), float(sum(numbers)), _shift(numbers, target, size)
    huge = 12 * count * weight + target + size * shift
    tasks: dict[str, float] = {}
    transfers: dict[tuple[str, str], float] = {}
    for i, number in enumerate(numbers, 1):
        tasks |= {f"{name}{i}": weight for name in ("u", "v", "u'", "v'")} | {f"n{i}": 0.0, f"n'{i}": 0.0}
        transfers |= {(f"u{i}", f"v{i}"): number + shift, (f"u'{i}", f"v'{i}"): 2 * target / size - number + shift}
        transfers |= {(f"u{i}", f"n{i}"): huge, (f"u'{i}", f"n{i}"): huge}
        transfers |= {(f"v{i}", f"n'{i}"): huge, (f"v'{i}", f"n'{i}"): huge}
        if i < count:
            transfers |= {(f"v{i}", f"u{i + 1}"): 0.0, (f"v'{i}", f"u'{i + 1}"): 0.0}
    return StreamGraph(tasks, transfers), count + size


def subset_sum_cost(numbers: Sequence[int], target: int, size: int) -> float:
    """The cost of :func:`subset_sum_graph` if, and only if, some ``size`` of the numbers add up to the target.

    Examples:
        >>> subset_sum_cost([1, 2, 3], 5, 2) > 0
        True
    """
    return (12 * len(numbers) - 6 * size) * float(sum(numbers)) + target + size * _shift(numbers, target, size)


def _shift(numbers: Sequence[int], target: int, size: int) -> float:
    """The constant that :func:`subset_sum_graph` adds to both edges of a pair, so that no cost is negative."""
    for number in (*numbers, target):
        whole("each number", number)
    if not 1 <= whole("size", size) <= len(numbers):
        raise ConfigurationError(f"size is {size!r}; give 1 to {len(numbers)}, the number of elements of the subset.")
    return max(0.0, max(numbers) - 2 * target / size)


def partition_graph(numbers: Sequence[int]) -> StreamGraph:
    """Make Theorem II.5's graph for 2 resources, from PARTITION.

    Its cost is its number of tasks if, and only if, the numbers can be divided into two sets of equal sum.

    Raises:
        ConfigurationError: a number is not an integer of 1 or more.

    Examples:
        >>> from penstock.allocation import allocate
        >>> graph = partition_graph([1, 2, 3])
        >>> allocate(graph, 2).cost == len(graph.tasks)  # 1 + 2 = 3
        True
    """
    for number in numbers:
        whole("each number", number)
    parts = [
        series(parallel(*(f"l{i}.{k}" for k in range(number))), parallel(*(f"r{i}.{k}" for k in range(number))))
        for i, number in enumerate(numbers, 1)
    ]
    return parallel(*parts).graph(1.0, 1.0)


def average_trap(tasks: int) -> StreamGraph:
    """Make parallel tasks for which, on 2 resources, balanced weights (A_avg) cost n times too much, in order (section III).

    v1 weighs n / 3 and the others 1. Balancing puts v1 with about n / 3 other tasks; the optimum, with one, costs n - 2.

    Raises:
        ConfigurationError: the number of tasks is less than 1.

    Examples:
        >>> len(average_trap(60).tasks)
        60
    """
    whole("tasks", tasks)
    weights = {f"v{i}": 1.0 for i in range(1, tasks + 1)} | {"v1": tasks / 3}
    return StreamGraph(weights)


def greedy_trap(tasks: int) -> tuple[StreamGraph, int]:
    """Make Theorem III.8's graph, for which greedy covering of heavy edges loses a factor of order n, and its resources.

    Reconstructed from the proof, because the text lacks Figure 4: w(v_i) = 2, w(x) = n - 3, w(u_i) = 1; the
    edges of the v-chain cost 1, 2n, 1, 2n, ...; (v1, x) costs 1, (x, u1) 2n + 1, and each (u1, u_i) 2n + 2.

    Raises:
        ConfigurationError: the number of tasks is not a multiple of 4, or less than 12.

    Examples:
        >>> graph, resources = greedy_trap(12)
        >>> len(graph.tasks), resources
        (12, 5)
    """
    if whole("tasks", tasks) % 4 or tasks < 12:
        raise ConfigurationError(f"greedy_trap has {tasks!r} tasks; give a multiple of 4, 12 or more.")
    half = tasks // 2
    weights: dict[str, float] = {f"v{i}": 2.0 for i in range(1, half + 1)}
    weights |= {"x": tasks - 3.0} | {f"u{i}": 1.0 for i in range(1, half)}
    transfers = {(f"v{i}", f"v{i + 1}"): (1.0 if i % 2 else 2.0 * tasks) for i in range(1, half)}
    transfers |= {("v1", "x"): 1.0, ("x", "u1"): 2.0 * tasks + 1}
    transfers |= {("u1", f"u{i}"): 2.0 * tasks + 2 for i in range(2, half)}
    return StreamGraph(weights, transfers), tasks // 4 + 2
