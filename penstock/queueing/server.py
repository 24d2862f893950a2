"""The stream server: an external queue that gathers batches, and an internal queue that one processor serves."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.errors import UnstableServerError
from penstock.queueing import parameter
from penstock.queueing.simulation import simulate_stream_server
from penstock.queueing.stream_solution import solve_stream_server

if TYPE_CHECKING:
    from penstock.queueing.simulation import Simulation
    from penstock.queueing.steadystate import SteadyState


@dataclass(frozen=True)
class StreamServer:
    """One processor behind two queues (Cooper, Ezhilchelvan and Mitrani, sections 2, 5 and 7).

    Jobs arrive in a Poisson stream and wait in the *external* queue. They move together to the *internal* queue when
    ``batch_size`` of them have gathered, or when a timer fires. One processor serves the internal queue, one job at a
    time, in exponential times. A transfer takes no time, or an exponential time during which the processor is blocked
    and jobs go on arriving; these are transferred, too.

    Args:
        arrival_rate: lambda, jobs per second, above 0.
        service_rate: mu, jobs per second, above 0.
        batch_size: K, a positive integer or ``math.inf``.
        timer_rate: tau, per second: the timer's mean is 1/tau seconds; 0 for no timer, ``math.inf`` for no waiting.
        transfer_rate: gamma, per second: a transfer's mean is 1/gamma seconds; ``math.inf`` for instantaneous transfers.
        timer: ``"idle"`` runs while the internal queue is empty (the paper's timer), ``"always"`` whenever a job waits in
            the external queue and no transfer is under way (the flush timer of the paper's section 7).

    Raises:
        ConfigurationError: a parameter is not one of the values above.

    Examples:
        >>> server = StreamServer(arrival_rate=750, service_rate=1000, batch_size=25, timer_rate=600)
        >>> server.load, server.is_stable
        (0.75, True)
        >>> round(StreamServer(600, 1000, 15, 1000, transfer_rate=600).max_arrival_rate, 2)
        908.33
    """

    arrival_rate: float
    service_rate: float
    batch_size: float
    timer_rate: float
    transfer_rate: float = math.inf
    timer: str = "idle"

    NEEDED: ClassVar[Sequence[str]] = ("arrival_rate", "service_rate", "batch_size", "timer_rate")
    NUMERIC: ClassVar[Sequence[str]] = (*NEEDED, "transfer_rate")
    PARAMETERS: ClassVar[Sequence[str]] = (*NUMERIC, "timer")

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> "StreamServer":
        """Make the server from a table of a configuration file, parameters by name."""
        return cls(**table)

    def solve(self, method: str = "auto", **options: Any) -> "SteadyState":
        """Find the steady state; see :func:`penstock.queueing.solve`."""
        return solve_stream_server(self, method, **options)

    def simulate(self, **options: Any) -> "Simulation":
        """Simulate the server; see :func:`penstock.queueing.simulate`."""
        return simulate_stream_server(self, **options)

    def __post_init__(self) -> None:
        checked = {
            "arrival_rate": parameter.rate("arrival_rate", self.arrival_rate),
            "service_rate": parameter.rate("service_rate", self.service_rate),
            "batch_size": parameter.count("batch_size", self.batch_size, infinite=True),
            "timer_rate": parameter.rate("timer_rate", self.timer_rate, zero=True, infinite=True),
            "transfer_rate": parameter.rate("transfer_rate", self.transfer_rate, infinite=True),
            "timer": parameter.one_of("timer", self.timer, ("idle", "always")),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def load(self) -> float:
        """rho = lambda / mu, the fraction of time that the processor serves."""
        return self.arrival_rate / self.service_rate

    @property
    def arrivals_per_transfer_time(self) -> float:
        """xi = lambda / gamma, the mean number of jobs that arrive during one transfer."""
        return self.arrival_rate / self.transfer_rate

    @property
    def effective_batch_size(self) -> float:
        """K, or 1 if the timer always runs and has an infinite rate, which transfers each job on its own."""
        return 1 if self.timer == "always" and math.isinf(self.timer_rate) else self.batch_size

    @property
    def busy_jobs_per_transfer(self) -> float:
        """Mean number of jobs that arrive between the end of a transfer and the next, while the processor is never idle.

        With the paper's timer the number is K. A timer that always runs is started by the first job, and each further
        job arrives before it fires with probability lambda / (lambda + tau).
        """
        size, timer = self.effective_batch_size, self.timer_rate
        if self.timer == "idle" or timer == 0 or size == 1:
            return size
        ratio = timer / self.arrival_rate
        if ratio == 0:  # underflow
            return size
        before_timer = -math.expm1(-(size - 1) * math.log1p(ratio))  # 1 - q^(K-1)
        return 1 + before_timer / ratio

    @property
    def slack(self) -> float:
        """The unused fraction of the processor: 1 - rho - rho xi / K, equation (26); positive if the server is stable.

        The subtractions are exact, so that a server close to its limit keeps its digits.
        """
        if self._never_transfers:
            return -math.inf
        arrival, service = Fraction(self.arrival_rate), Fraction(self.service_rate)
        idle = (service - arrival) / service
        if math.isinf(self.transfer_rate) or math.isinf(self.busy_jobs_per_transfer):
            return float(idle)
        blocked = arrival * arrival / (service * Fraction(self.transfer_rate) * Fraction(self.busy_jobs_per_transfer))
        return float(idle - blocked)

    @property
    def is_stable(self) -> bool:
        """Whether the queues stay finite: equation (1), (26), or its counterpart for the timer that always runs."""
        return self.slack > 0

    @property
    def max_arrival_rate(self) -> float:
        """The arrival rate, in jobs per second, at and above which the server is unstable."""
        if self._never_transfers:
            return 0.0
        if math.isinf(self.transfer_rate):
            return self.service_rate
        if self.timer == "idle" or self.timer_rate == 0 or self.effective_batch_size == 1:
            # The positive root of lambda/mu + lambda^2/(mu gamma K) = 1.
            blocking = 4 * self.service_rate / (self.transfer_rate * self.effective_batch_size)
            return 2 * self.service_rate / (1 + math.sqrt(1 + blocking))
        from scipy.optimize import brentq

        low = self.service_rate * 1e-12
        return float(brentq(lambda rate: replace(self, arrival_rate=rate).slack, low, self.service_rate, xtol=1e-300))

    @property
    def min_batch_size(self) -> float | None:
        """The smallest stable batch size, possibly ``math.inf``; ``None`` if no batch size is stable."""
        # An infinite batch size is unstable without a timer, because nothing is ever sent; a large one may be stable.
        if not replace(self, batch_size=math.inf).is_stable and (self.timer_rate > 0 or self.load >= 1):
            return None
        if replace(self, batch_size=1).is_stable:
            return 1
        low, high = 1, 2
        while not replace(self, batch_size=high).is_stable:
            low, high = high, high * 2
            if high > 2**60:
                return math.inf
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if replace(self, batch_size=middle).is_stable else (middle, high)
        return high

    @property
    def _never_transfers(self) -> bool:
        return math.isinf(self.batch_size) and self.timer_rate == 0

    def require_stable(self) -> None:
        """Raise unless the server is stable.

        Raises:
            UnstableServerError: says by how much, and what would make it stable.
        """
        if self.is_stable:
            return
        if self._never_transfers:
            raise UnstableServerError(
                "batch_size is infinite and timer_rate is 0, so no job is ever transferred; "
                "give a finite batch_size or a positive timer_rate."
            )
        mends = [f"an arrival_rate below {self.max_arrival_rate:.6g}"]
        least = self.min_batch_size
        if self.load >= 1:
            mends.append(f"a service_rate above {self.arrival_rate:.6g}")
        elif least is not None:
            mends.append(f"a batch_size of {least} or more")
        else:
            mends.append("a smaller timer_rate with a larger batch_size" if self.timer == "always" else "faster transfers")
        needed = 1 - self.slack
        raise UnstableServerError(
            f"The server is unstable: it would need {needed:.6g} of its processor's time for services and transfers "
            f"(arrival_rate {self.arrival_rate:g} per second, at most {self.max_arrival_rate:.6g}); "
            f"give {' or '.join(mends)}."
        )
