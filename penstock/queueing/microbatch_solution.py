"""Micro-batch servers solved numerically: the embedded Markov chain of batch sizes.

A batch of n rows lasts d = duration(n) x residual seconds. The number of rows that wait when the gate next opens depends
on n and d alone, so the sizes of successive batches are a Markov chain. As rows only accumulate, fewer than the threshold
at time t implies fewer at every earlier time, so each row of the transition matrix is a difference of Poisson distribution
functions. Each size is a state of its own while sizes are few; many sizes are grouped into bins.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaincc, gammainccinv, pdtr

from penstock.errors import NotSolvableError
from penstock.queueing import parameter
from penstock.queueing.cost import cost_per_second
from penstock.queueing.distribution import nodes

if TYPE_CHECKING:
    from penstock.queueing.microbatch import MicroBatchServer
    from penstock.queueing.plot import Plot

Real = NDArray[np.float64]
Integers = NDArray[np.int_]

_MOST_SIZES = 600  # up to so many sizes each is a state; beyond, they are grouped into bins
_NODES = 53  # values that stand for the residual's distribution
_CROSSING_NODES = 12  # quadrature nodes over the time at which the threshold is reached
_PHASES = 12  # steps into which a trigger interval is divided, for batches that start between two triggers
_WORST_BALANCE = 0.01  # largest relative gap between rows that arrive and that leave; the gap measures the bins' error
_REACHES = (1, 4, 16, 256)  # by how much the sizes go beyond those that a short simulation shows, tried in turn
_MOST_STATES = 3000  # more take too long
_BEYOND = 4e-3  # largest share of the mean squared size in the last fiftieth of the bins; what lies beyond them is missed
_WINDOWS = 500  # points of the grid of time spans over which the rows of a batch arrive


@dataclass(frozen=True)
class MicroBatchState:
    """The steady state of a :class:`MicroBatchServer` with Poisson arrivals.

    Args:
        server: the server that was solved.
        mean_latency: from a row's arrival to the end of its batch, seconds.
        rows_per_batch: mean batch size.
        batches_per_second: mean rate of batches.
        busy_fraction: fraction of time during which a batch runs.
        sizes, size_probabilities: the distribution of the number of rows that wait when the gate opens.
        exact: whether each size was a state of its own; otherwise sizes were binned, and results are approximate.
    """

    server: "MicroBatchServer"
    mean_latency: float
    rows_per_batch: float
    batches_per_second: float
    busy_fraction: float
    sizes: Real
    size_probabilities: Real
    exact: bool
    _windows: "_Windows"

    FIGURES: ClassVar[Mapping[str, str]] = {
        "mean_rows": "rows",
        "rows_per_batch": "rows",
        "batches_per_second": "1/s",
        "busy_fraction": "",
        "mean_latency": "s",
    }
    BRIEF: ClassVar[Sequence[str]] = ("mean_latency", "rows_per_batch", "batches_per_second", "busy_fraction")

    @property
    def mean_rows(self) -> float:
        """Rows present, waiting or in a batch (Little's law)."""
        return self.mean_latency * self.server.arrival_rate

    def cost(self, holding_cost: float, transfer_cost: float) -> float:
        """Cost per second, equation (2): ``holding_cost`` per row and second plus ``transfer_cost`` per batch."""
        return cost_per_second(self.mean_rows, self.batches_per_second, holding_cost, transfer_cost)

    def survival(self, t: float) -> float:
        """P(a row's latency exceeds t seconds).

        Raises:
            NotSolvableError: as `quantile`.
        """
        self._require_one_batch()
        return self._windows.survival(parameter.rate("t", t, zero=True))

    def plot(self) -> "Plot":
        """Plot the latency's distribution, as a matplotlib figure that a notebook shows."""
        from penstock.queueing.plot import exceedance  # imported here because it needs matplotlib

        return exceedance(self.quantile, self.mean_latency, "rows")

    def quantile(self, p: float) -> float:
        """The latency that a fraction ``p`` of rows does not exceed, in seconds.

        Raises:
            NotSolvableError: the cap binds, so that rows wait for more than one batch; simulate the server.
        """
        p = parameter.fraction("p", p)
        self._require_one_batch()
        survival, high = self._windows.survival, self.mean_latency
        while survival(high) > 1 - p:
            high *= 2
        return float(brentq(lambda t: survival(t) - (1 - p), 0.0, high, rtol=1e-8))

    def _require_one_batch(self) -> None:
        """Refuse latencies where rows may wait for more than one batch."""
        beyond = float(self.size_probabilities[self.sizes > self.server.cap].sum())
        if beyond > 1e-6:
            raise NotSolvableError(
                f"More rows wait than the server's cap lets a batch take, in a fraction {beyond:.1g} of batches: for latency "
                "quantiles, use simulate()."
            )


@dataclass(frozen=True)
class _Windows:
    """Numbers of rows by batch size and window: the time before the batch's start over which they arrived evenly."""

    lengths: Real  # (windows,)
    weights: Real  # (windows, sizes): mean numbers of rows; differences of windows make some negative
    at_once: Real  # (sizes,): rows that opened the gate on arrival, and so did not wait
    means: Real  # (sizes,): mean durations of the batches
    residuals: Real  # (nodes,)
    node_weights: Real  # (nodes,)
    law: tuple[Real, Real]  # a finer set of values of the residual, and their weights

    @cached_property
    def _total(self) -> float:
        return float(self.weights.sum() + self.at_once.sum())

    def survival(self, t: float) -> float:
        """Share of the rows whose latency exceeds t seconds."""
        # Rows that opened the gate spend only their batch's duration: use the finer law of the residual for them.
        values, weights = self.law
        beyond = 1 - np.append(0.0, np.cumsum(weights))
        late = beyond[np.searchsorted(values, t / self.means, side="right")]
        result = float(self.at_once @ late)
        for residual, weight in zip(self.residuals, self.node_weights, strict=True):
            longest_wait = t - residual * self.means
            with np.errstate(divide="ignore", invalid="ignore"):
                late = np.clip(1 - longest_wait[None, :] / self.lengths[:, None], 0.0, 1.0)
            late[0] = longest_wait < 0  # a window of no length
            result += weight * float((self.weights * late).sum())
        return result / self._total


class Fineness(NamedTuple):
    """Number of states for sizes, and of nodes for the residual: more of them are more accurate and take longer."""

    sizes: int = _MOST_SIZES
    nodes: int = _NODES


FINE = Fineness()


def solve_micro_batches(server: "MicroBatchServer", fineness: Fineness = FINE) -> MicroBatchState:
    """Solve for the steady state with Poisson arrivals; see :func:`penstock.queueing.solve`.

    Raises:
        UnstableServerError: the largest batches do not keep up.
        NotSolvableError: a trigger interval together with a threshold above 1, an infinite mean latency, or batch sizes that
            vary too much.
    """
    server.require_stable()
    if server.trigger_interval > 0 and server.threshold > 1 and server.delay * server.arrival_rate >= 1e-9:
        raise NotSolvableError(
            "A trigger_interval together with a threshold above 1 has no solution here; use simulate(), or set one of "
            "them to its default."
        )
    variation = (server.arrival_rate * server.per_row) ** 2 * (1 + server.residual.scv)
    if math.isinf(server.cap) and variation >= 1:
        raise NotSolvableError(
            "The server is stable, but its mean latency is infinite: long batches make longer ones, with (arrival_rate "
            f"x per_row)^2 x (1 + scv of the residual) = {variation:.3g}, at least 1; give a cap."
        )
    for reach in _REACHES:
        chain = _Chain(server, fineness, reach)
        if len(chain.sizes) > _MOST_STATES:
            break
        state = chain.state()
        squares = state.size_probabilities * state.sizes**2
        if squares[-(1 + len(squares) // 50) :].sum() <= _BEYOND * squares.sum():
            return state
    raise NotSolvableError(
        "The server is so near to what it can bear that its batch sizes vary beyond the bins of this solution; use simulate()."
    )


@dataclass(frozen=True)
class _Rows:
    """Rows that arrived evenly from ``far`` to ``near`` seconds before the gate opened; ``count(left)`` is their number by
    origin and batch size, where the last batch left ``left`` rows."""

    near: Real
    far: Real
    count: Callable[[Real], Real]


@dataclass(frozen=True)
class _Block:
    """Openings of the gate that came about in one way (threshold, delay or trigger), one from each state of ``origins``.

    ``masses[s, m]`` is the probability, from state ``origins[s]``, of an opening with size m after ``windows[s]``
    seconds; ``rows`` says when the new rows arrived.
    """

    origins: Integers
    windows: Real
    masses: Real
    rows: tuple[_Rows, ...]


MOST_VARIABLE = 1e4
"""The largest scv of a residual for which the mean latency is within some percent of the true one."""


class _Chain:
    """The embedded Markov chain; states are (size, phase of the start between triggers, always 0 if no batch overruns)."""

    def __init__(self, server: "MicroBatchServer", fineness: Fineness, reach: int = 1) -> None:
        self.server, self._reach = server, reach
        self.rate = server.arrival_rate
        self.interval = server.trigger_interval
        self.simple = self.interval > 0 or server.delay * server.arrival_rate < 1e-9  # one row opens the gate
        self.threshold = 1.0 if self.simple else server.threshold
        self.delay = math.inf if self.simple else server.delay
        if getattr(server.residual, "scv", 0.0) > MOST_VARIABLE:
            raise NotSolvableError(
                f"The residual varies too much (scv {server.residual.scv:g}, at most {MOST_VARIABLE:g}): a few batches decide "
                "the mean, and the solver's sizes do not reach as far; use simulate()."
            )
        self.residuals, self.node_weights = nodes(server.residual, fineness.nodes)
        sample = self._sample()
        overruns = self.interval > 0 and self._longest(float(sample.max())) > self.interval
        self.phases = np.linspace(0, self.interval, _PHASES + 1) if overruns else np.zeros(1)
        edges = self._choose_edges(sample, fineness.sizes // 2 if overruns else fineness.sizes)
        if edges[0] < self.threshold - 1 < edges[-1]:  # many batches have just the threshold's size: give it a bin
            edges = np.union1d(edges, [self.threshold - 1, self.threshold])
        self.edges = edges
        self.sizes = (self.edges[1:] + self.edges[:-1] + 1) / 2  # size k lies in (edges[k], edges[k+1]]
        single = bool((np.diff(self.edges) == 1).all())
        self.exact = single and not overruns and len(self.residuals) == 1 and server.poll == 0
        self.admitted = np.minimum(self.sizes, server.cap)
        self.left = self.sizes - self.admitted
        self.durations = server.duration(self.admitted)[:, None] * self.residuals[None, :]
        count = len(self.sizes) * len(self.phases)
        self.transition = np.zeros((count, count))
        self.cycle = np.zeros(count)
        self.blocks: list[_Block] = []

    def _longest(self, size: float) -> float:
        """Longest duration of a batch when ``size`` rows wait, in seconds."""
        return float(self.server.duration(min(size, self.server.cap)) * self.residuals[-1])

    def _sample(self) -> Real:
        """Sizes that 256 simulated copies of the chain visit, to choose the bins by."""
        random = np.random.default_rng(0)
        size, phase = np.full(256, max(1.0, self.threshold)), np.zeros(256)
        visited = []
        for step in range(600):
            admitted = np.minimum(size, self.server.cap)
            duration = self.server.duration(admitted) * random.choice(self.residuals, 256, p=self.node_weights)
            cycle, phase = self._until_asked(duration, phase)
            early = size - admitted + random.poisson(self.rate * cycle)
            waited = np.maximum(self.delay - cycle, 0) if math.isfinite(self.delay) else np.zeros(256)
            late = np.minimum(early + random.poisson(self.rate * waited), self.threshold)
            size = np.where(early >= self.threshold, early, late if math.isfinite(self.delay) else self.threshold)
            size = np.maximum(size + random.poisson(self.rate * self.server.poll, 256) * ((size > early) | (early == 0)), 1.0)
            if step >= 200:
                visited.append(size.copy())
        return np.concatenate(visited)

    def _choose_edges(self, sample: Real, most: int) -> Real:
        """Edges of about ``most`` bins over the sampled sizes; bin k holds the sizes above edge k up to edge k + 1."""
        low, high = float(sample.min()), float(sample.max())
        spread = max(high - low, 4 * math.sqrt(high), 8)
        low = max(0.0, math.floor(low - spread / 2))
        high = math.ceil(high + spread)
        # Without a cap a random residual has a long tail, and a few large batches hold many of the rows. With a cap
        # a backlog falls by small steps, which must not fall within one bin.
        long_tail = len(self.residuals) > 1 and math.isinf(self.server.cap)
        if long_tail:
            high *= 10
        elif len(self.residuals) > 1:
            high = math.ceil(high + spread)
        high = low + self._reach * (high - low)
        if high - low <= most:
            return np.arange(low, high + 1)
        if not long_tail:
            middle = math.ceil(np.quantile(sample, 0.9999))
            width = math.ceil((middle - low) / (0.8 * most))
            step = max(width, min(math.ceil((high - middle) / (0.2 * most)), min(self.server.cap, 1e12) // 5))
            return np.append(np.arange(low, middle, width), np.arange(middle, high + step, step)).astype(float)
        bulk_low, bulk_high = np.quantile(sample, [0.002, 0.99])
        bulk_high = max(bulk_high, bulk_low + 8, low + 8)
        parts = [
            np.linspace(low, bulk_low, most // 10),
            np.linspace(bulk_low, bulk_high, most * 6 // 10),
            np.geomspace(bulk_high, high, most * 3 // 10),
        ]
        return np.unique(np.round(np.clip(np.concatenate(parts), low, high)))

    def _until_asked(self, duration: Real, phase: Real) -> tuple[Real, Real]:
        """Time from a batch's start until the gate is next asked, and the phase of that moment between two triggers."""
        if self.interval == 0:
            return duration, phase
        over = duration > self.interval - phase
        asked = np.where(over, duration, self.interval - phase)
        return asked, np.where(over, np.mod(phase + duration, self.interval), 0.0)

    def _masses(self, times: Real, left: Real, least: Real | float, below: float = math.inf) -> Real:
        """Probability by size of left + Poisson(rate times), where it is in [least, below): shape (len(times), sizes)."""
        least = np.broadcast_to(least, times.shape)[:, None] - 1
        edges = np.clip(np.append(self.edges, below - 1 if math.isfinite(below) else math.inf)[None, :], least, below - 1)
        edges[:, 0] = least[:, 0]  # smaller sizes are counted in the first bin
        counts, mean = edges - left[:, None], (self.rate * times)[:, None]
        reach = 10 * np.sqrt(mean) + 40
        near = (np.abs(counts - mean) < reach) & (counts >= 0)
        cumulative = (counts > mean).astype(float)
        cumulative[near] = pdtr(counts[near], np.broadcast_to(mean, counts.shape)[near])
        masses = np.diff(cumulative, axis=1)
        masses[:, -2] += masses[:, -1]  # and larger sizes in the last one
        return np.asarray(masses[:, :-1])

    def _open(
        self, origins: Integers, windows: Real, masses: Real, phase: Real | None = None, rows: tuple[_Rows, ...] | None = None
    ) -> None:
        """Record a block of openings, and add its probabilities to the transition matrix and its time to the cycles."""
        evenly = _Rows(np.zeros_like(windows), windows, lambda left: self.sizes[None, :] - left[:, None])
        self.blocks.append(_Block(origins, windows, masses, rows or (evenly,)))
        self.cycle[origins] += windows * masses.sum(axis=1)
        width = len(self.phases)
        if width == 1:
            self.transition[origins] += masses
            return
        phase = np.zeros(len(origins)) if phase is None else phase
        # A phase between two points of the grid is shared between both, linearly.
        upper = np.clip(np.searchsorted(self.phases, phase), 1, width - 1)
        share = (phase - self.phases[upper - 1]) / (self.phases[upper] - self.phases[upper - 1])
        columns = np.arange(len(self.sizes)) * width
        for position, fraction in ((upper - 1, 1 - share), (upper, share)):
            self.transition[origins[:, None], columns[None, :] + position[:, None]] += fraction[:, None] * masses

    def state(self) -> MicroBatchState:
        for node, weight in enumerate(self.node_weights):
            durations = self.durations[:, node]
            if self.interval == 0:
                self._asked_at_once(weight, durations)
            else:
                for position, phase in enumerate(self.phases):
                    self._asked_on_grid(weight, durations, position, float(phase))
        return self._result(_stationary(self.transition))

    def _asked_at_once(self, weight: float, durations: Real) -> None:
        """Add the openings without a trigger interval, for one value of the residual of probability ``weight``."""
        states = np.arange(len(self.sizes))
        expired = durations >= self.delay
        masses = weight * self._masses(durations, self.left, np.where(expired, 1.0, self.threshold))
        self._open(states, durations, masses)
        unopened = weight - masses.sum(axis=1)
        self._after_no_row(states[expired], np.maximum(unopened[expired], 0.0), durations[expired])
        waiting = states[~expired]
        if len(waiting) == 0:
            return
        unopened, durations, backlog = unopened[waiting], durations[waiting], self.left[waiting]
        late = self._polled(durations, np.full(len(waiting), self.delay))
        if math.isfinite(self.delay):
            masses = weight * self._masses(late, backlog, 1.0, self.threshold)
            self._open(waiting, late, masses)
            no_row = weight * np.exp(-self.rate * late) * (backlog == 0)
            self._after_no_row(waiting, no_row, late)
            unopened = unopened - masses.sum(axis=1) - no_row
        self._cross(waiting, np.maximum(unopened, 0.0), durations, late, backlog)

    def _polled(self, start: Real, moment: Real) -> Real:
        """The first time at or after ``moment`` at which the gate is asked, every ``poll`` seconds from ``start`` on."""
        if self.server.poll == 0 or not np.isfinite(moment).all():
            return moment
        return np.asarray(start + self.server.poll * np.ceil(np.maximum(moment - start, 0) / self.server.poll - 1e-9))

    def _cross(self, origins: Integers, masses: Real, after: Real, before: Real, left: Real) -> None:
        """Add the openings by a threshold that is reached between two times: the gate opens when it is next asked."""
        likely = masses > 1e-14
        if not likely.any():
            return
        origins, masses, left = origins[likely], masses[likely], left[likely]
        after, before = after[likely], before[likely]
        if self.threshold == 1 and self.server.poll and np.isinf(before).all():
            self._first_found(origins, masses, after)
            return
        missing = np.maximum(self.threshold - left, 1.0)
        survival, beyond = gammaincc(missing, self.rate * after), gammaincc(missing, self.rate * before)
        points, weights = leggauss(_CROSSING_NODES)
        for point, share in zip((1 + points) / 2, weights / 2, strict=True):
            inside = np.clip(beyond + (survival - beyond) * point, 1e-300, 1.0)
            reached = np.maximum(gammainccinv(missing, inside) / self.rate, after)
            opened = self._polled(after, reached)
            wait = opened - reached
            sizes = self._masses(wait, np.full(len(wait), self.threshold), 1.0)
            rows = (
                _Rows(wait, opened, lambda left: np.maximum(self.threshold - 1 - left, 0)[:, None]),
                # The row that reached the threshold arrived at any time since the gate was last asked.
                _Rows(np.zeros_like(wait), np.full_like(wait, self.server.poll), lambda left: np.ones((len(left), 1))),
                _Rows(np.zeros_like(wait), wait, lambda left: (self.sizes - self.threshold).clip(0)[None, :]),
            )
            self._open(origins, opened, share * masses[:, None] * sizes, rows=rows)

    def _first_found(self, origins: Integers, masses: Real, after: Real) -> None:
        """Add the openings by a look that finds rows after others found none: they came evenly since the look before."""
        poll, none = np.full(len(after), self.server.poll), np.zeros(len(after))
        found = -math.expm1(-self.rate * self.server.poll)  # how likely a look finds any
        sizes = self._masses(poll, none, 1.0) / found
        rows = _Rows(none, poll, lambda left: np.broadcast_to(self.sizes, (len(left), len(self.sizes))))
        self._open(origins, after + poll / found, masses[:, None] * sizes, rows=(rows,))

    def _after_no_row(self, origins: Integers, masses: Real, waited: Real) -> None:
        """Add the openings after a delay that ran out while no row waited: it starts again until rows arrive during it."""
        if masses.sum() < 1e-15:
            return
        zero = np.zeros(len(origins))
        late = self._polled(zero, np.full(len(origins), self.delay))
        any_row = -math.expm1(-self.rate * late[0])
        self.cycle[origins] += waited * masses + masses * late * (1 - any_row) / any_row
        masses = masses / any_row
        expired = masses[:, None] * self._masses(late, zero, 1.0, self.threshold)
        self._open(origins, late, expired)
        self._cross(origins, np.maximum(masses * any_row - expired.sum(axis=1), 0.0), zero, late, zero)

    def _asked_on_grid(self, weight: float, durations: Real, position: int, phase: float) -> None:
        """Add the openings with a trigger interval, from one phase and for one value of the residual."""
        origins = np.arange(len(self.sizes)) * len(self.phases) + position
        asked, next_phase = self._until_asked(durations, np.full(len(durations), phase))
        masses = weight * self._masses(asked, self.left, 1.0)
        self._open(origins, asked, masses, next_phase)
        empty = np.maximum(weight - masses.sum(axis=1), 0.0)
        if empty.sum() < 1e-15:
            return
        # If no row waits, the gate is asked again at each following trigger until one does.
        to_grid = self.interval - next_phase
        zero = np.zeros(len(origins))
        first = empty[:, None] * self._masses(to_grid, zero, 1.0)
        self._open(origins, to_grid, first)
        missed = np.maximum(empty - first.sum(axis=1), 0.0)
        any_row = -math.expm1(-self.rate * self.interval)
        later = (missed / any_row)[:, None] * self._masses(np.full(len(origins), self.interval), zero, 1.0)
        self._open(origins, np.full(len(origins), self.interval), later)
        self.cycle[origins] += asked * empty + missed * (to_grid + self.interval * (1 - any_row) / any_row)

    def _result(self, probabilities: Real) -> MicroBatchState:
        """Means and the windows of the latency's distribution, from the chain's stationary probabilities."""
        width = len(self.phases)
        by_size = probabilities.reshape(-1, width).sum(axis=1)
        rows = float(by_size @ self.admitted)
        ends = np.concatenate([end for block in self.blocks for group in block.rows for end in (group.near, group.far)])
        ends = ends[ends > 0]
        grid = np.geomspace(max(ends.min(), 1e-7 * ends.max()), ends.max(), _WINDOWS)
        if len(np.unique(ends)) <= _WINDOWS:
            grid = ends  # few enough to be represented exactly
        grid = np.unique(np.append(0.0, grid))
        weights = np.zeros((len(grid), len(self.sizes)))
        at_once = np.zeros(len(self.sizes))
        waiting = 0.0
        for block in self.blocks:
            masses = block.masses * probabilities[block.origins][:, None]
            backlog = self.left[block.origins // width]
            waiting += float(masses.sum(axis=1) @ (backlog * block.windows))
            for group in block.rows:
                arrived = masses * group.count(backlog)
                waiting += float(arrived.sum(axis=1) @ (group.near + group.far)) / 2
                if not group.far.any():
                    at_once += arrived.sum(axis=0)
                    continue
                # Rows spread over (near, far) are those spread over (0, far) less those over (0, near).
                length = np.maximum(group.far - group.near, 1e-300)
                for end, sign in ((group.far, 1), (group.near, -1)):
                    if end.any():
                        upper = np.clip(np.searchsorted(grid, end), 1, len(grid) - 1)
                        share = np.clip((end - grid[upper - 1]) / (grid[upper] - grid[upper - 1]), 0, 1)
                        scale = sign * (end / length)
                        np.add.at(weights, upper - 1, (scale * (1 - share))[:, None] * arrived)
                        np.add.at(weights, upper, (scale * share)[:, None] * arrived)
        mean_durations = self.durations @ self.node_weights
        latency = (waiting + float(by_size @ (self.admitted * mean_durations))) / rows
        cycle = float(probabilities @ self.cycle)
        if abs(rows / cycle / self.rate - 1) > _WORST_BALANCE:
            raise NotSolvableError(
                "The batch sizes vary too much for the bins of this solution: rows leave at "
                f"{rows / cycle:.6g} per second and arrive at {self.rate:.6g}; use simulate()."
            )
        means = self.server.duration(self.admitted)
        law = nodes(self.server.residual, 4001)
        windows = _Windows(grid, weights, at_once, means, self.residuals, self.node_weights, law)
        return MicroBatchState(
            self.server,
            latency,
            rows,
            1 / cycle,
            float(by_size @ mean_durations) / cycle,
            self.sizes,
            by_size,
            self.exact,
            windows,
        )


def _stationary(transition: Real) -> Real:
    """The stationary distribution of a transition matrix, whose rows are first scaled to sum 1."""
    count = len(transition)
    transition = transition / transition.sum(axis=1, keepdims=True)
    system = np.eye(count) - transition.T + 1 / count
    return np.asarray(np.linalg.solve(system, np.full(count, 1 / count)))
