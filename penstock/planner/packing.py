"""Packing: which applications share a driver, so that the drivers are fewest and each application meets its latency bound."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from penstock.errors import ConfigurationError
from penstock.planner.interference import Load, shared

EXACT = 12
"""Up to so many applications, all packings are compared."""
SLOWER = 1.1
"""If no bound is given, a p95 may be this multiple of the application's p95 alone."""


@dataclass(frozen=True)
class SharedDriver:
    """The applications on one driver: their predicted p95 alone and together, in seconds, and the cores that they keep busy."""

    names: tuple[str, ...]
    alone: Mapping[str, float]
    together: Mapping[str, float]
    busy_cores: float


@dataclass(frozen=True)
class Packing:
    """The answer of `pack`.

    Args:
        drivers: with their applications.
        fewest: a certified lower bound on the number of drivers, given the predictions.
        bounds: on the p95 by application, seconds.
        cores: of each driver.
    """

    drivers: tuple[SharedDriver, ...]
    fewest: int
    bounds: Mapping[str, float]
    cores: float

    @property
    def gap(self) -> float:
        """The number of drivers above the lower bound ``fewest``, as a share of this."""
        return len(self.drivers) / self.fewest - 1

    def to_json(self) -> dict[str, Any]:
        """The answer as `penstock pack --json` prints it."""
        return {
            "drivers": [
                {
                    "applications": list(driver.names),
                    "busy_cores": driver.busy_cores,
                    "p95_alone": dict(driver.alone),
                    "p95_together": dict(driver.together),
                }
                for driver in self.drivers
            ],
            "fewest": self.fewest,
            "gap": self.gap,
            "bounds": dict(self.bounds),
            "cores": self.cores,
            "kind": "predicted; latencies in seconds",
        }


def pack(
    loads: Sequence[Load], cores: float, bound: float | None = None, *, progress: Callable[[int], None] = lambda tried: None
) -> Packing:
    """Put applications on the fewest drivers with ``cores`` cores each.

    It is assumed that another application on a driver makes none faster, so that a set is too slow if a part of it is. Given
    that and the predictions, up to twelve applications are packed optimally. With more, each goes to the first driver where
    it fits, the heaviest first; then a lower bound on the drivers comes from the cores that are kept busy, and from
    applications of which no two fit on one driver.

    Args:
        bound: on the p95 of each application, seconds; if left out, 1.1 times its p95 alone.
        progress: called with the number of drivers that have been simulated.

    Raises:
        ConfigurationError: there is no application, two have the same name, or one misses its bound even alone.
    """
    names = [load.name for load in loads]
    if not names or len(set(names)) < len(names):
        raise ConfigurationError("Give recordings of several applications, each once.")
    search = _Search(tuple(loads), cores, bound, progress)
    groups = search.best() if len(loads) <= EXACT else search.first_fit()
    drivers = tuple(search.driver(group) for group in groups)
    fewest = len(drivers) if len(loads) <= EXACT else search.fewest()
    return Packing(drivers, fewest, search.bounds, cores)


Group = frozenset[str]


@dataclass
class _Search:
    """The search for a packing; simulated latencies, and sets that do not fit, are cached."""

    loads: tuple[Load, ...]
    cores: float
    bound: float | None
    progress: Callable[[int], None]
    bounds: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_name = {load.name: load for load in self.loads}
        self.seen: dict[Group, dict[str, float]] = {}
        self.bad: list[Group] = []
        self.alone = {name: self.p95(frozenset([name]))[name] for name in self.by_name}
        for name, alone in self.alone.items():
            self.bounds[name] = SLOWER * alone if self.bound is None else self.bound
            if not alone <= self.bounds[name] or math.isinf(alone):
                reached = "does not keep up" if math.isinf(alone) else f"has a p95 of {alone:.2f} s"
                raise ConfigurationError(
                    f"{name} {reached} on {self.cores:g} cores even alone (predicted): give it a longer bound, more cores, or "
                    "another trigger (penstock plan says which)."
                )

    def p95(self, group: Group) -> dict[str, float]:
        if group not in self.seen:
            latencies = shared([self.by_name[name] for name in sorted(group)], self.cores)
            self.seen[group] = {name: figures["p95"] for name, figures in latencies.items()}
            self.progress(len(self.seen))
        return self.seen[group]

    def fits(self, group: Group) -> bool:
        if any(bad <= group for bad in self.bad):
            return False
        fine = all(p95 <= self.bounds[name] for name, p95 in self.p95(group).items())
        if not fine:
            self.bad.append(group)
        return fine

    def driver(self, group: Group) -> SharedDriver:
        names = tuple(name for name in self.by_name if name in group)
        together = self.p95(group)
        busy = sum(self.by_name[name].cores for name in names)
        return SharedDriver(names, {name: self.alone[name] for name in names}, {name: together[name] for name in names}, busy)

    def first_fit(self) -> list[Group]:
        """Put each application, the heaviest first, on the first driver where it fits."""
        groups: list[Group] = []
        for load in sorted(self.loads, key=lambda load: -load.cores):
            place = next((i for i, group in enumerate(groups) if self.fits(group | {load.name})), None)
            if place is None:
                groups.append(frozenset([load.name]))
            else:
                groups[place] |= {load.name}
        return groups

    def best(self) -> list[Group]:
        """Return a packing with the fewest groups, by dynamic programming: join the first unpacked one with others."""
        known: dict[Group, list[Group]] = {frozenset(): []}

        def packed(left: Group) -> list[Group]:
            if left not in known:
                first = next(name for name in self.by_name if name in left)
                others = sorted(left - {first})
                options = []
                for size in range(len(others), -1, -1):
                    for chosen in combinations(others, size):
                        group = frozenset([first, *chosen])
                        if self.fits(group):
                            options.append([group, *packed(left - group)])
                            if len(options[-1]) == 1 or len(options[-1]) <= self._least(left):
                                known[left] = options[-1]
                                return known[left]
                known[left] = min(options, key=len)
            return known[left]

        return packed(frozenset(self.by_name))

    def _least(self, group: Group) -> int:
        """A lower bound on the drivers, by the cores that a group keeps busy."""
        return max(1, math.ceil(sum(self.by_name[name].forced for name in group) / self.cores))

    def fewest(self) -> int:
        """A lower bound on the drivers of any packing, by the cores kept busy, and by applications that pairwise do not fit."""
        apart: list[str] = []
        for load in sorted(self.loads, key=lambda load: -load.cores):
            if all(not self.fits(frozenset([load.name, other])) for other in apart):
                apart.append(load.name)
        return max(self._least(frozenset(self.by_name)), len(apart))
