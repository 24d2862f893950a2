"""An allocation problem as arrays, on which all searches, bounds and proofs work."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from penstock.allocation.arcs import ArcNetwork, Floats, Ints, arc_costs, longest
from penstock.allocation.cost import Sharing, presences, processing_costs
from penstock.allocation.graph import StreamGraph, Task, is_name, listed, quantity, shown
from penstock.allocation.resources import Resources
from penstock.errors import ConfigurationError, InfeasibleAllocationError, TopologyError


@dataclass(frozen=True)
class Constraints:
    """Conditions that an allocation must meet.

    Args:
        pinned: task to the resource it must be on.
        together: sets of tasks that must share a resource.
        apart: sets of tasks of which no two may share a resource.

    Raises:
        ConfigurationError: a condition is not of this form.

    Examples:
        >>> bool(Constraints(pinned={"source": 0}, apart=[("a", "b")]))
        True
    """

    pinned: Mapping[Task, Any] = field(default_factory=dict)
    together: Iterable[Iterable[Task]] = ()
    apart: Iterable[Iterable[Task]] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.pinned, Mapping):
            raise ConfigurationError(f"pinned is {shown(self.pinned)}; give a mapping from task to resource.")
        for name in ("together", "apart"):  # stored as tuples, because an iterator can be read only once
            object.__setattr__(self, name, _sets(name, getattr(self, name)))

    def __bool__(self) -> bool:
        return bool(self.pinned or self.together or self.apart)


class Problem(NamedTuple):
    """Tasks, resources and constraints as arrays; a task or a resource is a position in them.

    Args:
        network: the paths, as an activity-on-arc network.
        free_network: the paths if transfers cost nothing, which takes fewer arcs.
        weights, presence: per task; see :mod:`penstock.allocation.cost`.
        speeds, slowness: capacity per resource, and 1 / bandwidth per pair of resources.
        kinds: a number per resource, equal for resources that can be exchanged without effect.
        unit_begin, unit_tasks: the tasks of every unit, in compressed rows; a unit is a set of tasks that moves as one.
        pinned: the resource of every unit, or -1.
        apart_begin, apart_units: per unit, in compressed rows, the units from which it must be apart.
        legal: per unit, a resource from an assignment that meets all constraints; -1 for a unit without constraints.
        home: the present resource of every task; -1 if it has none, -2 if its resource is unknown.
        price: the price of moving one task away from home.
        forced: the total price of the moves that no allocation can avoid.
    """

    network: ArcNetwork
    free_network: ArcNetwork
    weights: Floats
    presence: Floats
    speeds: Floats
    slowness: Floats
    kinds: Ints
    unit_begin: Ints
    unit_tasks: Ints
    pinned: Ints
    apart_begin: Ints
    apart_units: Ints
    legal: Ints
    home: Ints
    price: float
    forced: float

    @property
    def is_plain(self) -> bool:
        """Whether the problem has neither constraints nor a price of moving."""
        return (
            len(self.pinned) == len(self.weights)
            and not (self.pinned >= 0).any()
            and not len(self.apart_units)
            and self.price == 0
        )


def problem(
    graph: StreamGraph,
    resources: Resources,
    sharing: Sharing = "count",
    constraints: Constraints | None = None,
    present: Mapping[Task, Any] | None = None,
    price: float = 0.0,
) -> Problem:
    """Make the arrays of a problem, and check its constraints.

    Raises:
        TopologyError: a constraint or the present assignment names an unknown task.
        ConfigurationError: a constraint names an unknown resource, or the price is not a number.
        InfeasibleAllocationError: the constraints contradict each other.
    """
    limits = Constraints() if constraints is None else constraints
    if not isinstance(limits, Constraints) or not isinstance(present, Mapping | None):
        raise ConfigurationError("constraints is a Constraints(...), and present a mapping from task to resource.")
    count, names = len(graph.tasks), list(graph.tasks)
    unit_of = _units(graph, limits.together)
    distinct = int(unit_of.max()) + 1
    members = [np.flatnonzero(unit_of == unit) for unit in range(distinct)] if distinct < count else np.arange(count)[:, None]
    pinned = _pins(graph, resources, limits.pinned, unit_of, len(members))
    apart = _neighbours(graph, limits.apart, unit_of, len(members))
    home = np.full(count, -1)
    for task, label in (present or {}).items():
        present_place = resources.index.get(label, -2) if is_name(label) else -2
        home[_position(graph, task, "the present assignment")] = present_place
    cost_of_move = quantity("The price of a move", price)
    if cost_of_move and present is None:
        raise ConfigurationError("There is a price of moves and no present assignment; give both, or neither.")
    # A move is unavoidable if the task's home is unknown, or if a pin says otherwise.
    fixed = pinned[unit_of]
    forced = (home == -2) | ((home != -1) & (fixed != -1) & (fixed != home))
    result = Problem(
        network=graph.network,
        free_network=graph.free_network,
        weights=graph.weights,
        presence=presences(graph, sharing),
        speeds=resources.speeds,
        slowness=resources.slowness,
        kinds=resources.kinds if not (pinned >= 0).any() and present is None else np.arange(len(resources.names)),
        unit_begin=np.concatenate([[0], np.cumsum([len(tasks) for tasks in members])]),
        unit_tasks=np.concatenate(list(members)),
        pinned=pinned,
        apart_begin=np.concatenate([[0], np.cumsum([len(units) for units in apart])]),
        apart_units=np.array([unit for units in apart for unit in sorted(units)], np.int64),
        legal=pinned,
        home=home,
        price=cost_of_move,
        forced=cost_of_move * int(forced.sum()),
    )
    if len(result.apart_units):
        legal = feasible(result, [", ".join(map(str, (names[t] for t in tasks))) for tasks in members])
        result = result._replace(legal=legal)
    return result


def _pins(graph: StreamGraph, resources: Resources, pinned: Mapping[Task, Any], unit_of: Ints, units: int) -> Ints:
    """Return the position of each unit's resource, -1 for a unit that is not pinned."""
    places = np.full(units, -1)
    for task, label in pinned.items():
        unit = unit_of[_position(graph, task, "pinned")]
        if not is_name(label) or label not in resources.index:
            raise ConfigurationError(f"{task!r} is pinned to {label!r}; the resources are {listed(resources.names)}.")
        if places[unit] not in (-1, resources.index[label]):
            raise InfeasibleAllocationError(
                f"{task!r} is pinned to {label!r}, but must be together with a task pinned to "
                f"{resources.names[places[unit]]!r}; drop one of the three."
            )
        places[unit] = resources.index[label]
    return places


def _neighbours(graph: StreamGraph, groups: Iterable[Iterable[Task]], unit_of: Ints, units: int) -> list[set[int]]:
    """Return for each unit the units from which it must be apart; a unit cannot be apart from itself."""
    apart: list[set[int]] = [set() for _ in range(units)]
    for group in groups:
        placed = [(task, int(unit_of[_position(graph, task, "apart")])) for task in group]
        for (task, first), (partner, second) in permutations(placed, 2):
            if first == second:
                raise InfeasibleAllocationError(
                    f"{task!r} and {partner!r} must be apart and together; drop one of the two constraints."
                )
            apart[first].add(second)
    return apart


def _sets(what: str, given: Any) -> tuple[tuple[Task, ...], ...]:
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        raise ConfigurationError(f"{what} is {shown(given)}; give a list of groups of tasks, as [('a', 'b'), ('c', 'd')].")
    sets = []
    for group in given:
        tasks = () if isinstance(group, str) or not isinstance(group, Iterable) else tuple(group)
        if not tasks or not all(map(is_name, tasks)):
            raise ConfigurationError(f"{what} has {shown(group)}; give a list of groups of tasks, as [('a', 'b'), ('c', 'd')].")
        sets.append(tuple(dict.fromkeys(tasks)))
    return tuple(sets)


def _position(graph: StreamGraph, task: Task, where: str) -> int:
    if not is_name(task) or task not in graph.index:
        raise TopologyError(f"Unknown task {task!r} in {where}; the tasks are {listed(graph.tasks)}.")
    return graph.index[task]


def _units(graph: StreamGraph, together: Iterable[Iterable[Task]]) -> Ints:
    """The unit of every task, as a number; tasks joined by a chain of sets are in one unit."""
    parent = list(range(len(graph.tasks)))

    def root(task: int) -> int:
        while parent[task] != task:
            parent[task] = parent[parent[task]]
            task = parent[task]
        return task

    for group in together:
        positions = [_position(graph, task, "together") for task in group]
        for member in positions[1:]:
            parent[root(member)] = root(positions[0])
    if not together:
        return np.arange(len(parent))
    return np.asarray(np.unique([root(task) for task in range(len(parent))], return_inverse=True)[1]).reshape(-1)


_PATIENCE = 20_000
"""Steps after which the search for a feasible assignment gives up."""


def feasible(given: Problem, names: list[str] | None = None) -> Ints:
    """Find resources that meet all pins and aparts, -1 for other units, by backtracking from the most constrained unit.

    Raises:
        InfeasibleAllocationError: there are none, or the search gave up.
    """
    neighbours = [given.apart_units[a:b].tolist() for a, b in zip(given.apart_begin, given.apart_begin[1:], strict=False)]
    chosen = given.pinned.copy()
    resources = len(given.speeds)

    def allowed(unit: int) -> list[int]:
        free = [place for place in range(resources) if not occupied[unit][place]]
        # Unused resources of one kind are interchangeable, so try only one of them.
        used = set(chosen.tolist())
        first: dict[int, int] = {}
        return [p for p in free if p in used or first.setdefault(int(given.kinds[p]), p) == p]

    def clash(unit: int) -> InfeasibleAllocationError:
        label = names[unit] if names else str(unit)
        return InfeasibleAllocationError(
            f"The constraints contradict each other: none of the {resources} resources keeps {label} apart "
            f"from all that it must be; add resources, or drop a pin or an apart."
        )

    for unit, fixed in enumerate(given.pinned):
        if fixed >= 0 and any(chosen[neighbour] == fixed for neighbour in neighbours[unit]):
            raise clash(unit)
    tight = [unit for unit in range(len(chosen)) if chosen[unit] < 0 and len(neighbours[unit])]
    trail: list[tuple[int, list[int]]] = []
    occupied = [Counter(int(chosen[neighbour]) for neighbour in units if chosen[neighbour] >= 0) for units in neighbours]

    def place(unit: int, where: int) -> None:
        previous, chosen[unit] = chosen[unit], where
        for neighbour in neighbours[unit]:
            if previous >= 0:
                occupied[neighbour][int(previous)] -= 1
                if not occupied[neighbour][int(previous)]:
                    del occupied[neighbour][int(previous)]
            if where >= 0:
                occupied[neighbour][where] += 1

    for _ in range(_PATIENCE):
        open_units = [unit for unit in tight if chosen[unit] < 0]
        if not open_units:
            return chosen
        unit = max(open_units, key=lambda u: (len(occupied[u]), len(neighbours[u])))
        trail.append((unit, allowed(unit)))
        blamed = unit
        while trail and not trail[-1][1]:
            place(trail.pop()[0], -1)
        if not trail:
            raise clash(blamed)
        place(trail[-1][0], trail[-1][1].pop(0))
    raise InfeasibleAllocationError(
        f"No allocation that meets every apart was found in {_PATIENCE:,} steps; add resources or drop an apart."
    )


@njit(cache=True)
def unit_sums(problem, task_flow, unit_of, tied):  # type: ignore[no-untyped-def]
    """Fill ``unit_of``, the unit of every task, and ``tied``, each unit's sums of f w, of presence and of f w x presence."""
    tied[:] = 0.0
    for unit in range(len(problem.pinned)):
        for task in problem.unit_tasks[problem.unit_begin[unit] : problem.unit_begin[unit + 1]]:
            unit_of[task] = unit
            heavy = task_flow[task] * problem.weights[task]
            tied[0, unit] += heavy
            tied[1, unit] += problem.presence[task]
            tied[2, unit] += heavy * problem.presence[task]


class Sums(NamedTuple):
    """Sums over the tasks on every resource, for a unit flow f: of f w, of presences, and of f w x presence."""

    heavy: Floats
    crowd: Floats
    drag: Floats


@njit(cache=True)
def put(tied, unit, resource, sign, sums):  # type: ignore[no-untyped-def]
    """Add a unit to the sums of a resource (``sign`` 1.0), or subtract it (-1.0)."""
    sums.heavy[resource] += sign * tied[0, unit]
    sums.crowd[resource] += sign * tied[1, unit]
    sums.drag[resource] += sign * tied[2, unit]


@njit(cache=True)
def true_cost(problem, place, crowd, processing, cost, reach):  # type: ignore[no-untyped-def]
    """d(G) plus the price of the moves; the last four arguments are scratch arrays, per resource, task, arc and node."""
    processing_costs(problem.weights, problem.presence, place, problem.speeds, crowd, processing)
    arc_costs(problem.network, processing, place, problem.slowness, cost)
    return longest(problem.network, cost, reach) + moving_cost(problem, place)


@njit(cache=True)
def moving_cost(problem, place):  # type: ignore[no-untyped-def]
    """The price of moving all tasks that are not at home."""
    if problem.price == 0.0:
        return 0.0
    moved = 0
    for task in range(len(place)):
        if problem.home[task] != -1 and problem.home[task] != place[task]:
            moved += 1
    return problem.price * moved


def objective(given: Problem, place: Ints) -> float:
    """:func:`true_cost`, which allocates the scratch arrays itself."""
    network = given.network
    return float(
        true_cost(
            given,
            place,
            np.empty(len(given.speeds)),
            np.empty(len(given.weights)),
            np.empty(len(network.task)),
            np.empty(network.nodes),
        )
    )
