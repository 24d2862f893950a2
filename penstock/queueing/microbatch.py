"""The micro-batch server: Spark's rule for when the next batch starts, and a model of a batch's duration."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import pdtr

from penstock.errors import ConfigurationError, UnstableServerError
from penstock.queueing import parameter
from penstock.queueing.distribution import Deterministic, Distribution, is_distribution, nodes, with_scv
from penstock.queueing.microbatch_simulation import simulate_micro_batches
from penstock.queueing.microbatch_solution import solve_micro_batches

if TYPE_CHECKING:
    from penstock.queueing.microbatch_simulation import MicroBatchSimulation
    from penstock.queueing.microbatch_solution import MicroBatchState

Real = NDArray[np.float64]


@dataclass(frozen=True)
class MicroBatchServer:
    """A source, a gate and batches, as Structured Streaming runs them.

    Rows arrive and wait. Whenever no batch runs, the server asks the gate. It opens if ``threshold`` rows wait, or if ``delay``
    seconds have passed since it last opened and at least one row waits. A batch takes all rows that wait, or the
    oldest ``cap`` of them, and lasts ``(fixed + per_row * rows + per_key * distinct keys) * residual`` seconds; its
    rows leave together at its end. If the delay runs out while no row waits, it starts again.

    Args:
        arrival_rate: lambda, rows per second.
        threshold: rows that open the gate (``minOffsetsPerTrigger``), 1 or more.
        delay: seconds since the last opening after which one row opens it (``maxTriggerDelay``), possibly ``math.inf``.
        cap: largest number of rows in a batch (``maxOffsetsPerTrigger``), possibly ``math.inf``.
        trigger_interval: seconds between the times at which the gate is asked; 0 asks as soon as a batch has ended. When a
            batch lasts beyond the next such time, the gate is asked as soon as it ends.
        poll: seconds from asking the gate in vain to asking it again, if ``trigger_interval`` is 0; Spark's is 0.01.
        fixed: a, seconds per batch.
        per_row: b, seconds per row.
        per_key: c, seconds per distinct key in the batch.
        keys: number of keys, equally likely; needed if ``per_key`` is not 0.
        residual: distribution, of mean 1, of the random factor of a batch's duration.

    Raises:
        ConfigurationError: a parameter is out of range, or threshold exceeds cap.

    Examples:
        >>> server = MicroBatchServer(arrival_rate=5000, trigger_interval=1, fixed=0.2)
        >>> server.is_stable, server.max_arrival_rate
        (True, inf)
    """

    arrival_rate: float
    threshold: float = 1
    delay: float = math.inf
    cap: float = math.inf
    trigger_interval: float = 0.0
    poll: float = 0.0
    fixed: float = 0.0
    per_row: float = 0.0
    per_key: float = 0.0
    keys: float = 0
    residual: Distribution = field(default_factory=lambda: Deterministic(1.0))

    NEEDED: ClassVar[Sequence[str]] = ("arrival_rate",)
    NUMERIC: ClassVar[Sequence[str]] = (
        "arrival_rate",
        "threshold",
        "delay",
        "cap",
        "trigger_interval",
        "poll",
        "fixed",
        "per_row",
        "per_key",
        "keys",
    )
    PARAMETERS: ClassVar[Sequence[str]] = (*NUMERIC, "residual_scv")

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "MicroBatchServer":
        """Make the server from a table of a configuration file; ``residual_scv`` is the residual's scv, 0 by default."""
        numbers = {name: value for name, value in table.items() if name != "residual_scv"}
        return cls(**numbers, residual=with_scv(1.0, table.get("residual_scv", 0.0)))

    def solve(self, method: str = "auto", **options: Any) -> "MicroBatchState":
        """Find the steady state; see :func:`penstock.queueing.solve`."""
        parameter.one_of("method", method, ("auto",))
        if options:
            raise ConfigurationError(f"A MicroBatchServer is solved without {', '.join(options)}; leave it out.")
        return solve_micro_batches(self)

    def simulate(self, **options: Any) -> "MicroBatchSimulation":
        """Simulate the server; see :func:`penstock.queueing.simulate`."""
        unsupported = sorted({"service", "transfer", "timer"}.intersection(options))
        if unsupported:
            raise ConfigurationError(
                f"A MicroBatchServer takes no {unsupported[0]} distribution: its parameters set the durations. Leave it out."
            )
        return simulate_micro_batches(self, **options)

    def __post_init__(self) -> None:
        checked = {
            "arrival_rate": parameter.rate("arrival_rate", self.arrival_rate),
            "threshold": parameter.count("threshold", self.threshold),
            "delay": parameter.rate("delay", self.delay, zero=True, infinite=True),
            "cap": parameter.count("cap", self.cap, infinite=True),
            "keys": parameter.count("keys", self.keys, least=0),
        }
        for name in ("trigger_interval", "poll", "fixed", "per_row", "per_key"):
            checked[name] = parameter.rate(name, getattr(self, name), zero=True)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.threshold > self.cap:
            raise ConfigurationError(
                f"threshold is {self.threshold:g} and cap {self.cap:g}; give a cap of at least the threshold."
            )
        if self.per_key > 0 and self.keys == 0:
            raise ConfigurationError("per_key is set but keys is 0; give the number of distinct keys.")
        if not is_distribution(self.residual) or not math.isclose(self.residual.mean, 1.0, rel_tol=1e-6):
            raise ConfigurationError(f"residual is {self.residual!r}; give a distribution of mean 1.")
        if self.fixed + self.per_row + self.per_key == 0:
            raise ConfigurationError("fixed, per_row and per_key are all 0; give at least one of them.")

    def duration(self, rows: Real | float) -> Real:
        """Mean duration of a batch of ``rows`` rows, in seconds."""
        rows = np.asarray(rows, dtype=float)
        return np.asarray(self.fixed + self.per_row * rows + self.per_key * self.distinct_keys(rows))

    def distinct_keys(self, rows: Real) -> Real:
        """Mean number of distinct keys among ``rows`` rows, each equally likely to have any of the keys."""
        if self.keys == 0:
            return np.zeros_like(rows)
        if self.keys == 1:
            return np.minimum(rows, 1.0)
        return np.asarray(-self.keys * np.expm1(rows * math.log1p(-1 / self.keys)))

    @property
    def max_arrival_rate(self) -> float:
        """Rows per second that an unbroken succession of the largest batches takes."""
        if math.isinf(self.cap):
            return math.inf if self.per_row == 0 else 1 / self.per_row
        return self.cap / self._saturated_cycle

    @property
    def _saturated_cycle(self) -> float:
        """Mean time from the start of one batch to the next if ``cap`` rows always wait, in seconds."""
        mean, interval = float(self.duration(self.cap)), self.trigger_interval
        if interval == 0:
            return mean
        values, weights = nodes(self.residual, 61)
        durations = mean * values
        if durations[-1] <= interval:
            return interval
        # A batch starts at the next trigger, or at once if the trigger has passed by. So the time from the last trigger to a
        # batch's start is a Markov chain: it is iterated on a grid of 200 cells from a start at a trigger to its limit.
        phases = (np.arange(200) + 0.5) / 200 * interval
        occupied: Real = np.zeros(201)
        cycle = 0.0
        occupied[0] = 1.0  # index 0: at a trigger; 1 to 200: between two triggers
        position = np.append(0.0, phases)
        for _ in range(400):
            after = np.maximum(durations[None, :], interval - position[:, None])
            landed = np.mod(position[:, None] + durations[None, :], interval)
            column = np.where(durations[None, :] > interval - position[:, None], 1 + (landed / interval * 200).astype(int), 0)
            cycle = float(occupied @ after @ weights)
            mass = occupied[:, None] * weights[None, :]
            occupied = np.bincount(np.minimum(column, 200).ravel(), mass.ravel(), 201).astype(float)
        return cycle

    @property
    def is_stable(self) -> bool:
        """Whether the largest batches keep up with the arrivals."""
        return self.arrival_rate < self.max_arrival_rate

    def require_stable(self) -> None:
        """Raise unless the server is stable.

        Raises:
            UnstableServerError: says by how much, and what would make it stable.
        """
        if self.is_stable:
            return
        mend = "a smaller per_row" if math.isinf(self.cap) else "a larger cap"
        raise UnstableServerError(
            f"The server is unstable: {self.arrival_rate:g} rows arrive per second, and the largest batches take "
            f"{self.max_arrival_rate:.6g} per second; give an arrival_rate below that or {mend}."
        )


@dataclass(frozen=True)
class LingerBatch:
    """A producer's batch with a linger timer: sent when it is full, or ``linger`` seconds after its first event.

    Kafka's producer works this way (``linger.ms``, ``batch.size``): the timer is deterministic and starts with the
    first event that waits, whatever happens downstream. Events arrive in a Poisson stream.

    Args:
        arrival_rate: lambda, events per second.
        batch_size: K, number of events that fill a batch, possibly ``math.inf``.
        linger: longest wait of a batch's first event, in seconds, 0 or more.
    """

    arrival_rate: float
    batch_size: float
    linger: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrival_rate", parameter.rate("arrival_rate", self.arrival_rate))
        object.__setattr__(self, "batch_size", parameter.count("batch_size", self.batch_size, infinite=True))
        object.__setattr__(self, "linger", parameter.rate("linger", self.linger, zero=True))

    @property
    def mean_batch(self) -> float:
        """Mean number of events per batch: 1 + E min(K - 1, Poisson(lambda linger))."""
        return 1 + _expected_minimum(self.batch_size - 1, self.arrival_rate * self.linger)

    @property
    def batches_per_second(self) -> float:
        """Batches sent per second."""
        return self.arrival_rate / self.mean_batch

    def survival(self, t: float) -> float:
        """P(an event waits longer than t seconds).

        Time is counted from a batch's first event, which waits longer than t if fewer than K - 1 others come by t. One
        that comes at y waits longer than t if y + t < linger and, besides it and the first, at most K - 3 events come by
        y + t. The times y form a Poisson process.
        """
        if not parameter.rate("t", t, zero=True, infinite=True) < self.linger or self.batch_size == 1:
            return 0.0
        rate, size = self.arrival_rate, self.batch_size
        if math.isinf(size):
            return (1 + rate * (self.linger - t)) / self.mean_batch
        first = _poisson_cdf(size - 2, rate * t)
        # lambda times the integral of P(Poisson(lambda u) <= K - 3) over u from t to linger
        others = _expected_minimum(size - 2, rate * self.linger) - _expected_minimum(size - 2, rate * t)
        return float((first + others) / self.mean_batch)

    @property
    def mean_wait(self) -> float:
        """Mean time that an event waits, in seconds: the integral of the survival function."""
        if not self.linger:
            return 0.0
        longest = (self.batch_size + 10 * math.sqrt(self.batch_size) + 50) / self.arrival_rate  # by then K have come
        return float(quad(self.survival, 0, min(self.linger, longest), limit=200)[0])

    def quantile(self, p: float) -> float:
        """The wait that a fraction ``p`` of events does not exceed, in seconds."""
        p = parameter.fraction("p", p)
        if self.survival(0.0) <= 1 - p:
            return 0.0
        edge = math.nextafter(self.linger, 0)
        if self.survival(edge) >= 1 - p:
            return self.linger
        return float(brentq(lambda t: self.survival(t) - (1 - p), 0.0, edge))


def _poisson_cdf(count: float, mean: float) -> float:
    return float(pdtr(count, mean)) if count >= 0 else 0.0


def _expected_minimum(most: float, mean: float) -> float:
    """E min(most, Poisson(mean)) = sum over k < most of P(Poisson > k)."""
    if most <= 0:
        return 0.0
    if math.isinf(most):
        return mean
    # E[N; N < most] + most P(N >= most), with E[N; N < most] = mean P(N <= most - 2)
    return mean * _poisson_cdf(most - 2, mean) + most * (1 - _poisson_cdf(most - 1, mean))
