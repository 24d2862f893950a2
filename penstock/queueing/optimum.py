"""The search for the cheapest batch size and timer rate of a stream server, optionally under a limit on response time."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from penstock.errors import ConfigurationError, NotSolvableError, UnstableServerError
from penstock.queueing import parameter
from penstock.queueing.model import solve
from penstock.queueing.server import StreamServer
from penstock.queueing.steadystate import SteadyState

_EVERY_SIZE_TO = 48  # every batch size up to this is tried
_GROWTH = 1.2  # ratio of successive batch sizes beyond
_LARGEST_SIZE = 20_000
_TIMERS = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 17), [math.inf]])  # relative to the service rate
_FARTHEST = 1e12  # timers this many times faster or slower than the service rate are the last to be tried

_EXCESS = 100.0
"""A setting is refused by its mean alone if, to reach that mean, the jobs beyond the quantile's limit would have to stay this
many times the limit on average; no jobs of a stable server of this kind do."""

Progress = Callable[[float], None]


@dataclass(frozen=True)
class OptimumSetting:
    """A batch size with its best timer rate: one point of an optimum's profile.

    Args:
        batch_size: K.
        timer_rate: the best tau for it, per second.
        cost: c1 L + c2 T, per second.
    """

    batch_size: float
    timer_rate: float
    cost: float


@dataclass(frozen=True)
class Optimum:
    """The cheapest setting found.

    Args:
        server: the server with its best batch size and timer rate.
        cost: c1 L + c2 T, per second.
        steady_state: the steady state of that server.
        profile: the best timer and cost for every batch size that was tried, in ascending order.
        largest: the largest batch size tried, if larger ones may be cheaper than all that were; None otherwise.
    """

    server: StreamServer
    cost: float
    steady_state: SteadyState
    profile: tuple[OptimumSetting, ...]
    largest: int | None = None

    @property
    def batch_size(self) -> float:
        """The best K, possibly infinite."""
        return self.server.batch_size

    @property
    def timer_rate(self) -> float:
        """The best tau, possibly 0 or infinite."""
        return self.server.timer_rate


def optimize(
    server: StreamServer,
    holding_cost: float,
    transfer_cost: float,
    *,
    max_mean_response: float = math.inf,
    max_quantile: tuple[float, float] | None = None,
    batch_sizes: tuple[float, ...] | None = None,
    progress: Progress | None = None,
) -> Optimum:
    """Find the batch size and timer rate of least cost c1 L + c2 T, equation (2).

    The cost over K, with the best tau for each, may have several minima, and so may the cost over tau; the best tau is
    often exactly 0 or infinity. So every batch size up to 48 is tried, and larger ones on a geometric grid until the
    batch is never full. For each, tau is tried on a grid that includes 0 and infinity. Every local minimum is refined.

    Args:
        server: gives the arrival, service and transfer rates and the kind of timer; its other parameters are not used.
        holding_cost: c1, per job and second, above 0 (otherwise it would be cheapest never to transfer).
        transfer_cost: c2, per transfer.
        max_mean_response: settings with a longer mean response time, in seconds, are left out.
        max_quantile: ``(p, seconds)``: settings in which more than 1 - p of the jobs stay longer are left out, and so are
            settings whose quantiles only simulation can give. The profile then holds only successive improvements.
        batch_sizes: try only these.
        progress: called with the batch size that is being tried.

    Raises:
        UnstableServerError: no setting is stable.
        ConfigurationError: no setting meets the limits, or a parameter is out of range.

    Examples:
        >>> best = optimize(StreamServer(750, 1000, 1, 0), holding_cost=1, transfer_cost=0.1)
        >>> best.batch_size, best.timer_rate, round(best.cost, 3)  # Figure 4 of the paper, corrected
        (10, 0.0, 17.422)
    """
    if not isinstance(server, StreamServer):
        raise ConfigurationError(f"optimize() takes a StreamServer, not {type(server).__name__}.")
    search = _Search(
        server,
        parameter.rate("holding_cost", holding_cost),
        parameter.rate("transfer_cost", transfer_cost, zero=True),
        parameter.rate("max_mean_response", max_mean_response, infinite=True),
        parameter.quantile_limit(max_quantile),
        progress or (lambda _: None),
    )
    if batch_sizes is not None:
        batch_sizes = tuple(batch_sizes) if isinstance(batch_sizes, Iterable) else ()
        if not batch_sizes:
            raise ConfigurationError(f"batch_sizes is {batch_sizes!r}; give one or more, such as (5, 10, 20).")
        for size in batch_sizes:
            search.best_timer(parameter.count("batch_size", size, infinite=True))
    else:
        search.all_sizes()
    return search.optimum()


@dataclass
class _Search:
    """One call of :func:`optimize`, with the settings that it has tried."""

    server: StreamServer
    holding_cost: float
    transfer_cost: float
    max_mean_response: float
    max_quantile: tuple[float, float] | None
    progress: Progress

    def __post_init__(self) -> None:
        self.settings: dict[float, OptimumSetting] = {}
        self.judged: dict[float, list[tuple[float, bool]]] = {}  # by timer: (mean, quantile is within its limit)
        self.any_stable = False
        self.largest: int | None = None
        self.incumbent = math.inf

    def cost(self, size: float, timer: float) -> float:
        """The cost of a setting, infinite if it is unstable or beyond a limit."""
        server = replace(self.server, batch_size=size, timer_rate=timer)
        if not server.is_stable:
            return math.inf
        self.any_stable = True
        steady = solve(server)
        if steady.mean_response_time > self.max_mean_response:
            return math.inf
        cost = steady.cost(self.holding_cost, self.transfer_cost)
        if self.max_quantile is not None:
            # Checking the quantile is slow: do it only for a setting cheaper than the best so far.
            if cost >= self.incumbent or not self._quickly_enough(steady):
                return math.inf
            self.incumbent = cost
        return cost

    def _quickly_enough(self, steady: SteadyState) -> bool:
        """Whether the response time's quantile is known to be within its limit."""
        assert self.max_quantile is not None
        p, seconds = self.max_quantile
        mean, timer = steady.mean_response_time, steady.server.timer_rate
        if mean > seconds * max(1.0, _EXCESS * (1 - p)):
            return False
        for judged_mean, answer in self.judged.get(timer, ()):
            if math.isclose(mean, judged_mean, rel_tol=1e-10):  # such batches are never full, so their size makes no difference
                return answer
        try:
            quick = steady.response_time.survival(seconds) <= 1 - p
        except NotSolvableError:
            quick = False
        self.judged.setdefault(timer, []).append((mean, quick))
        return quick

    def best_timer(self, size: float) -> OptimumSetting:
        """Find the best tau for one batch size: try 0, infinity and a grid, and refine every local minimum."""
        if size in self.settings:
            return self.settings[size]
        self.progress(size)
        timers = list(_TIMERS * self.server.service_rate)
        if size == 1:
            timers = timers[:1]  # no job ever waits in the external queue, so the timer never runs
        costs = [self.cost(size, timer) for timer in timers]
        self._extend(size, timers, costs)
        best = min(zip(costs, timers, strict=True))
        for k in range(1, len(timers) - 1):
            if costs[k] <= min(costs[k - 1], costs[k + 1]) and math.isfinite(costs[k]):
                best = min(best, self._refine(size, timers[max(k - 1, 1)], timers[min(k + 1, len(timers) - 2)]))
        for k in range(len(timers) - 1):
            if math.isfinite(costs[k]) != math.isfinite(costs[k + 1]):
                best = min(best, self._edge(size, timers[k], timers[k + 1], math.isfinite(costs[k])))
        self.settings[size] = OptimumSetting(size, float(best[1]), float(best[0]))
        return self.settings[size]

    def _extend(self, size: float, timers: list[float], costs: list[float]) -> None:
        """Extend a grid of timers at the end at which it is cheapest, until the cost rises."""
        step = _TIMERS[2] / _TIMERS[1]
        for end, factor in ((1, 1 / step), (-1, step)):  # an insertion at these places comes beside 0 and infinity
            while len(timers) > 1 and math.isfinite(least := min(costs)):
                edge = 1 if end == 1 else len(timers) - 2
                further = timers[edge] * factor
                if costs[edge] != least or not 1 / _FARTHEST < further / self.server.service_rate < _FARTHEST:
                    break
                timers.insert(end, further)
                costs.insert(end, self.cost(size, further))

    def _refine(self, size: float, low: float, high: float) -> tuple[float, float]:
        """The cost and the timer rate at the minimum between two timer rates."""
        minimum = minimize_scalar(
            lambda log_timer: min(self.cost(size, math.exp(log_timer)), 1e300),
            bounds=(math.log(low), math.log(high)),
            method="bounded",
            options={"xatol": 1e-6},
        )
        return float(minimum.fun), math.exp(float(minimum.x))

    def _edge(self, size: float, low: float, high: float, low_is_feasible: bool) -> tuple[float, float]:
        """The cheapest cost and its timer rate, bisecting for the limit between a feasible and an infeasible timer rate."""
        smallest, largest = 1e-9 * self.server.service_rate, 1e9 * self.server.service_rate
        logs = [math.log(max(low, smallest)), math.log(min(high, largest))]
        feasible = 0 if low_is_feasible else 1
        best = (math.inf, high)
        for _ in range(45):
            middle = sum(logs) / 2
            cost = self.cost(size, math.exp(middle))
            inside = math.isfinite(cost)
            if inside:
                best = min(best, (cost, math.exp(middle)))
            logs[feasible if inside else 1 - feasible] = middle
        return best

    def all_sizes(self) -> None:
        unlimited = self.best_timer(math.inf)
        size, settled = 1, 0
        tried = []
        while size <= _LARGEST_SIZE and settled < 3:
            setting = self.best_timer(size)
            tried.append(size)
            # A batch that is never full at its best timer is as good as an infinite one.
            never_full = math.isclose(setting.cost, unlimited.cost, rel_tol=1e-11) or self._never_full(size, unlimited)
            # Far beyond the best size the cost tends to that of an infinite batch: if that is dearer, stop.
            best = min(tried, key=lambda k: self.settings[k].cost)
            far_beyond = size > 3 * best and self.settings[best].cost < (1 - 1e-3) * unlimited.cost
            settled = settled + 1 if (never_full or far_beyond) and size > _EVERY_SIZE_TO else 0
            size = size + 1 if size < _EVERY_SIZE_TO else math.ceil(size * _GROWTH)
        if settled < 3 and self.settings[tried[-1]].cost < min(self.settings[size].cost for size in tried[:-1]):
            self.largest = tried[-1]
        for before, middle, after in zip(tried, tried[1:], tried[2:], strict=False):
            cost = self.settings[middle].cost
            if cost <= self.settings[before].cost and cost <= self.settings[after].cost:
                self._between(before, middle, after)

    def _never_full(self, size: float, unlimited: OptimumSetting) -> bool:
        """Whether a batch of this size is never full at the best timer of an infinite one; used if a quantile is limited."""
        if self.max_quantile is None or not math.isfinite(unlimited.cost):
            return False
        finite, infinite = (replace(self.server, batch_size=k, timer_rate=unlimited.timer_rate) for k in (size, math.inf))
        if not finite.is_stable:
            return False
        return math.isclose(solve(finite).mean_response_time, solve(infinite).mean_response_time, rel_tol=1e-11)

    def _between(self, low: int, middle: int, high: int) -> None:
        """Find the best integer around a local minimum of the grid, by probing the larger side until nothing is between."""
        while high - low > 2:
            probe = (middle + high) // 2 if high - middle > middle - low else (low + middle) // 2
            if self.best_timer(probe).cost < self.best_timer(middle).cost:
                low, middle, high = (middle, probe, high) if probe > middle else (low, probe, middle)
            elif probe > middle:
                high = probe
            else:
                low = probe

    def optimum(self) -> Optimum:
        if not self.any_stable:
            replace(self.server, batch_size=2**60, timer_rate=0).require_stable()
            raise UnstableServerError("No batch size that was tried is stable; try larger ones or a lower arrival_rate.")
        # Equal costs go to the smaller batch.
        best = min(self.settings.values(), key=lambda setting: (setting.cost, setting.batch_size))
        for setting in self.settings.values():
            if math.isclose(setting.cost, best.cost, rel_tol=1e-12) and math.isinf(setting.batch_size):
                best = setting  # the batch is never full, which an infinite size shows
        if math.isinf(best.cost):
            raise ConfigurationError(
                "No batch size and timer is known to meet the limit on the response time; allow a longer one, or simulate "
                "the settings in question."
            )
        server = replace(self.server, batch_size=best.batch_size, timer_rate=best.timer_rate)
        profile = tuple(self.settings[size] for size in sorted(self.settings) if self.settings[size].cost < math.inf)
        return Optimum(server, best.cost, solve(server), profile, self.largest)
