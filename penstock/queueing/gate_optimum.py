"""The search for the cheapest threshold and delay of a micro-batch server's gate, optionally under a limit on latency."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from penstock.errors import ConfigurationError, NotSolvableError
from penstock.queueing import parameter
from penstock.queueing.microbatch import MicroBatchServer
from penstock.queueing.microbatch_solution import Fineness, MicroBatchState, solve_micro_batches

Progress = Callable[[float, float], None]

_PRECISE = 1.02
"""The search stops when values differ by less than this ratio, because the cost is flat around its minimum."""
_SEARCHING = Fineness(sizes=160, nodes=15)
"""Fineness of the solutions that are compared; the best gate is then solved at the default fineness."""
_GOLDEN = (math.sqrt(5) - 1) / 2
_DEARER = 2
"""A walk ends after so many successive steps, each by a factor 2, that cost more; one is not enough, for there may be
several minima."""
_NO_DELAY = math.inf


@dataclass(frozen=True)
class GateOptimum:
    """The cheapest gate found.

    Args:
        server: the server with its best threshold and delay.
        cost: c1 L + c2 T, per second.
        steady_state: the steady state of that server.
        profile: (threshold, delay, cost) of every gate that was tried and meets the limits, by threshold and delay.
    """

    server: MicroBatchServer
    cost: float
    steady_state: MicroBatchState
    profile: tuple[tuple[float, float, float], ...]

    @property
    def threshold(self) -> float:
        """Rows that open the gate."""
        return self.server.threshold

    @property
    def delay(self) -> float:
        """Seconds since the last opening after which one row opens the gate, possibly infinite."""
        return self.server.delay


def optimize_gate(
    server: MicroBatchServer,
    holding_cost: float,
    transfer_cost: float,
    *,
    max_mean_latency: float = math.inf,
    max_quantile: tuple[float, float] | None = None,
    progress: Progress | None = None,
) -> GateOptimum:
    """Find the threshold and the delay of least cost c1 L + c2 T: equation (2) of the paper, for Spark's gate.

    L is the mean number of rows that wait or are in a batch, T the number of batches per second. The search varies the
    threshold without a delay, then the delay without a threshold (a plain trigger interval), and then, from the cheaper of
    both, the delay and the threshold in turn.

    Args:
        server: gives all parameters but the threshold and the delay, which are not used; it has no trigger interval.
        holding_cost: c1, per row and second, above 0.
        transfer_cost: c2, per batch.
        max_mean_latency: gates with a longer mean latency, in seconds, are left out.
        max_quantile: ``(p, seconds)``: gates in which more than 1 - p of the rows take longer are left out.
        progress: called with each threshold and delay that is tried.

    Raises:
        UnstableServerError: the largest batches do not keep up.
        ConfigurationError: no gate meets the limits, or a parameter is out of range.

    Examples:
        >>> server = MicroBatchServer(arrival_rate=100, fixed=0.1, per_row=0.001)
        >>> best = optimize_gate(server, holding_cost=1, transfer_cost=50)
        >>> round(best.cost, 1), best.cost <= replace(server, threshold=200).solve().cost(1, 50)
        (119.0, True)
    """
    if not isinstance(server, MicroBatchServer):
        raise ConfigurationError(f"optimize_gate() takes a MicroBatchServer, not {type(server).__name__}.")
    if server.trigger_interval:
        raise ConfigurationError(
            f"trigger_interval is {server.trigger_interval:g}: a gate with a threshold is solved without one only; give 0, and "
            "poll for how often a threshold is looked at."
        )
    server.require_stable()
    return _Search(
        server,
        parameter.rate("holding_cost", holding_cost),
        parameter.rate("transfer_cost", transfer_cost, zero=True),
        parameter.rate("max_mean_latency", max_mean_latency, infinite=True),
        parameter.quantile_limit(max_quantile),
        progress or (lambda threshold, delay: None),
    ).optimum()


@dataclass
class _Search:
    """One call of :func:`optimize_gate`, with the gates that it has tried."""

    server: MicroBatchServer
    holding_cost: float
    transfer_cost: float
    max_mean_latency: float
    max_quantile: tuple[float, float] | None
    progress: Progress

    def __post_init__(self) -> None:
        self.costs: dict[tuple[float, float], float] = {}
        self.unknown = False
        """Whether a gate was left out because its quantiles are not known."""

    def cost(self, threshold: float, delay: float) -> float:
        """The cost of a gate; infinite if it misses a limit, or if the gate or its quantile cannot be solved."""
        gate = (max(1.0, min(float(round(threshold)), self.server.cap)), delay)
        if gate not in self.costs:
            self.progress(*gate)
            self.costs[gate] = self._judged(replace(self.server, threshold=gate[0], delay=gate[1]))
        return self.costs[gate]

    def _judged(self, server: MicroBatchServer) -> float:
        """Solve a server coarsely, and return its cost, or infinity as in :meth:`cost`."""
        try:
            state = solve_micro_batches(server, _SEARCHING)
        except NotSolvableError:
            return math.inf
        if state.mean_latency > self.max_mean_latency:
            return math.inf
        if self.max_quantile is not None:
            try:
                late = state.survival(self.max_quantile[1]) > 1 - self.max_quantile[0]
            except NotSolvableError:  # the cap binds; at most mean / t of the rows take longer than t (Markov)
                late = state.mean_latency > (1 - self.max_quantile[0]) * self.max_quantile[1]
                self.unknown = self.unknown or late
            if late:
                return math.inf
        return state.cost(self.holding_cost, self.transfer_cost)

    def optimum(self) -> GateOptimum:
        rate = self.server.arrival_rate
        # If batches took no time, one of n rows would cost c1 n^2 / (2 rate) + c2, which is least per row at this n.
        guess = max(1.0, math.sqrt(2 * self.transfer_cost * rate / self.holding_cost))
        self._along(lambda threshold: self.cost(threshold, _NO_DELAY), guess)
        self._along(lambda delay: self.cost(self._never(delay), delay), guess / rate)
        threshold, delay = self._best()
        # Improve the delay and the threshold in turn until both together gain nothing more.
        while True:
            before = self.costs[threshold, delay]
            wait = delay if math.isfinite(delay) else threshold / rate
            self._along(partial(self.cost, threshold), wait)
            threshold, delay = self._best()
            self._along(partial(self.cost, delay=delay), threshold)
            threshold, delay = self._best()
            if not self.costs[threshold, delay] < before / _PRECISE:
                break
        cost = self.costs[threshold, delay]
        if math.isinf(cost):
            met = (
                "is known to meet the limit, as the cap binds, where only simulate() tells quantiles: raise it"
                if self.unknown
                else "meets the limit on the latency; allow more"
            )
            raise ConfigurationError(f"No threshold and delay {met}, or give the server a higher capacity.")
        server = replace(self.server, threshold=threshold, delay=delay)
        profile = tuple((*gate, gate_cost) for gate, gate_cost in sorted(self.costs.items()) if math.isfinite(gate_cost))
        return GateOptimum(server, cost, server.solve(), profile)

    def _never(self, delay: float) -> float:
        """A threshold that is hardly ever reached before this delay runs out."""
        rows = self.server.arrival_rate * delay
        return math.ceil(rows + 10 * math.sqrt(rows) + 10)

    def _best(self) -> tuple[float, float]:
        """The cheapest gate so far; among equals the longest delay, and then the smallest threshold, wins."""
        return min(self.costs, key=lambda gate: (self.costs[gate], -gate[1], gate[0]))

    def _along(self, cost: Callable[[float], float], start: float) -> None:
        """Try values by factors of 2 on both sides of a start, then narrow down around the cheapest by golden section."""
        tried = {start: cost(start)}
        for factor in (2.0, 0.5):
            value, dearer = start, 0
            while dearer < _DEARER:
                value *= factor
                cheapest = min(tried.values())
                tried[value] = cost(value)
                # If all values so far miss a limit, a shorter wait may meet it; a longer one will not.
                better = tried[value] < cheapest or (math.isinf(cheapest) and factor < 1 and value > 1e-3 * start)
                dearer = 0 if better else dearer + 1
        best = min(tried, key=lambda one: tried[one])
        low, high = math.log(best / 2), math.log(best * 2)
        left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        dear = {at: cost(math.exp(at)) for at in (left, right)}
        while high - low > math.log(_PRECISE):
            if dear[left] <= dear[right]:
                high, right = right, left
                left = high - _GOLDEN * (high - low)
                dear[left] = cost(math.exp(left))
            else:
                low, left = left, right
                right = low + _GOLDEN * (high - low)
                dear[right] = cost(math.exp(right))
