"""The course of a search for an allocation: its starts, its annealing runs, its proof, and its lower bound."""

import math
import time
from collections.abc import Callable

import numpy as np

from penstock.allocation.arcs import Ints, log_paths, task_flows
from penstock.allocation.bound import companions_bound, lower_bound
from penstock.allocation.exact import OptimumSearch
from penstock.allocation.graph import StreamGraph
from penstock.allocation.interrupt import Interrupts
from penstock.allocation.problem import Problem, objective
from penstock.allocation.resources import Resources
from penstock.allocation.search import anneal, seeded
from penstock.allocation.shares import search_shares
from penstock.allocation.start import legal, loosely_clustered, starts

Progress = Callable[[float, float, float], None]
"""Called with the fraction done (0 to 1), the best cost so far and the lower bound so far."""

_SMALL = 40
"""Most tasks for which a pass over all paths takes only microseconds, so that choosing moves by the flow does not pay."""
_DETAILED = 10_000
"""Most arcs for which shares are computed again, for the bound, in a network with every priced transfer as a link."""
_WORK = 6e7
"""Arcs that a search without a time limit passes over in all, which takes about 2 seconds."""


class Strategy:
    """One search: the best placement and lower bound so far, and the steps that improve them."""

    def __init__(
        self,
        given: Problem,
        graph: StreamGraph,
        where: Resources,
        seed: int,
        limit: float,
        progress: Progress | None,
        interrupts: Interrupts,
    ) -> None:
        self._given, self._graph, self._progress, self._limit = given, graph, progress, limit
        self._interrupts = interrupts
        self._begun = time.perf_counter()
        self._state, self._rng = seeded(seed), np.random.default_rng(seed)
        self._coarsens = given.is_plain and bool(given.network.price.any())
        shares, flow = search_shares(given, given.free_network)
        self._flows = task_flows(given.free_network, flow, len(shares))
        self._flow = flow if given.free_network is given.network else None
        arcs = len(given.network.task)
        self._starts = starts(given, graph, where, shares, self._flows, int(min(300, 3e6 / arcs * min(1.0, limit))))
        self.place = self._starts[0].copy()
        self.cost = objective(given, self.place)
        self.bound = lower_bound(given, self._flows) + given.forced
        self.interrupted = False
        self._proof: OptimumSearch | None = None

    @property
    def _left(self) -> float:
        """Seconds that remain of the time limit."""
        return self._limit - (time.perf_counter() - self._begun)

    @property
    def _done(self) -> bool:
        """Whether the best placement is proved optimal."""
        return self.bound >= self.cost * (1 - 1e-9)

    def _tell(self, fraction: float) -> None:
        """Report the progress, or raise ``KeyboardInterrupt`` if an interrupt has been noted."""
        if self._interrupts.asked:
            raise KeyboardInterrupt
        if self._progress:
            self._progress(min(1.0, fraction), self.cost, self.bound)

    def go(self, method: str) -> None:
        """Search, try to prove as much as the method asks, then search again while time remains."""
        small = len(self._given.weights) <= _SMALL
        try:
            self._tell(0.0)
            if small:  # most small graphs are proved quickly, and need no long search
                self._anneal_often(20)
                if method != "search":
                    self._prove(2e5)
                self._anneal_often(40)
            else:
                self._anneal_once()
            if self._left > 0:
                self._bound_by_companions()
            if method != "search" and (small or method == "exact"):
                self._prove(math.inf if method == "exact" else 6e5)
            while small and not self._done and 0 < self._left < math.inf:
                self._anneal_often(4)
            self._tell(1.0)
        except KeyboardInterrupt:
            self.interrupted = True

    def _anneal(
        self,
        given: Problem,
        here: Ints,
        steps: int,
        heats: tuple[float, float],
        sharps: tuple[float, float],
        batch: int = 1,
        candidates: int = 1,
    ) -> None:
        """Anneal from ``here``, which changes, and update the best placement and cost."""
        self.cost = anneal(given, here, self.place, self.cost, steps, heats, sharps, batch, candidates, self._state)

    def _anneal_often(self, most: int) -> None:
        """For small graphs: anneal in up to ``most`` short runs, three in four from random starts.

        One run in four begins hot. If transfers cost something, half of the runs move clusters of tasks before tasks.
        """
        problem = self._given
        length = int(10_000 * max(1.0, (len(problem.weights) / 16) ** 2))
        for runs in range(most):
            if self._done or self._left <= 0:
                return
            if runs % 4 == 0:
                place = self._starts[runs // 4 % len(self._starts)].copy()
            else:
                place = legal(problem, self._rng.integers(0, len(problem.speeds), len(problem.weights)))
            heats, sharps = ((0.2, 0.001), (20.0, 400.0)) if runs % 4 == 3 else ((0.03, 0.001), (50.0, 1000.0))
            steps = length
            if runs % 4 >= 2 and self._coarsens:
                coarse = loosely_clustered(problem, self._graph, self._rng)
                of_unit = place[coarse.unit_tasks[coarse.unit_begin[:-1]]].repeat(np.diff(coarse.unit_begin))
                place[coarse.unit_tasks] = of_unit
                steps = length // 2
                self._anneal(coarse, place, steps, heats, sharps)
                heats = (0.02, 0.001)
            self._anneal(problem, place, steps, heats, sharps)
            self._tell(0.5 * (runs + 1) / most)

    def _anneal_once(self) -> None:
        """For large graphs: anneal in one long cool run from the best start, in slices that fit a time limit."""
        arcs, slices = len(self._given.network.task), 50
        batch = max(5, min(100, len(self._given.weights) // 20))
        paths = 1 + log_paths(self._given.network)
        place = self.place.copy()
        steps = max(1, int(_WORK / arcs / slices if self._limit == math.inf else 2e5 / arcs))
        for number in range(slices):
            if self._done or self._left <= 0:
                break
            heats = (1e-5 * 0.1 ** (number / slices), 1e-5 * 0.1 ** ((number + 1) / slices))
            sharps = (30 * paths * 15 ** (number / slices), 30 * paths * 15 ** ((number + 1) / slices))
            begun = time.perf_counter()
            self._anneal(self._given, place, steps, heats, sharps, batch, 16)
            self._tell((number + 1) / slices)
            if self._limit < math.inf and number + 1 < slices:
                share = 0.9 * max(0.0, self._left) / (slices - number - 1)
                steps = max(1, int(steps * min(5.0, share / (time.perf_counter() - begun))))

    def _bound_by_companions(self) -> None:
        if self._done:
            return
        problem, arcs = self._given, len(self._given.network.task)
        if self._flow is None and arcs <= _DETAILED:
            self._flow = search_shares(problem, problem.network)[1]
        bound = companions_bound(problem, self.place, self._flow, int(min(60, 3e5 / arcs))) + problem.forced
        self.bound = max(self.bound, bound)

    def _prove(self, nodes: float) -> None:
        """Continue branch and bound, until it is complete or has tried another ``nodes`` placements."""
        proof = self._proof = self._proof or OptimumSearch(self._given, self._flows, self.place, self.cost)
        proof.best = min(proof.best, self.cost)
        tried, at_once = 0, 20_000
        while not self._done and not proof.complete and tried < nodes and self._left > 0:
            proof.proceed(at_once)
            tried += at_once
            if proof.best < self.cost:
                self.place, self.cost = proof.best_place.copy(), proof.best
            self._tell(0.5 + 0.5 * tried / nodes if nodes < math.inf else 0.5)
        if proof.complete:
            self.bound = max(self.bound, self.cost)
