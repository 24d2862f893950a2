"""Simulating servers event by event: any distribution, seeded, with confidence intervals."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from penstock.errors import ConfigurationError
from penstock.queueing import parameter
from penstock.queueing.cost import cost_per_second
from penstock.queueing.distribution import Distribution, Exponential, Recorded, is_distribution
from penstock.queueing.estimate import Estimate, mean_estimate, quantile_estimate, ratio_estimate, warm_up

if TYPE_CHECKING:
    from penstock.queueing.server import StreamServer

Real = NDArray[np.float64]
Progress = Callable[[int, int], None]

_BATCHES = 1600
_POOL = 1 << 16


@dataclass(frozen=True)
class Simulation:
    """What a simulated server did after its warm-up.

    Args:
        mean_jobs: jobs present, time average.
        transfers_per_second, mean_response_time (seconds), idle_probability: defined as in ``SteadyState``.
        response_times: of every job that left after the warm-up, in the order of departure, in seconds.
        departures: times at which those jobs left, in seconds from the start.
        jobs: jobs that left, warm-up included.
        warm_up_jobs: jobs left out by the MSER-5 rule.
        events: arrivals, services and transfers that were simulated.
        seconds: wall-clock time that the simulation took.
    """

    mean_jobs: Estimate
    transfers_per_second: Estimate
    mean_response_time: Estimate
    idle_probability: Estimate
    response_times: Real
    departures: Real
    jobs: int
    warm_up_jobs: int
    events: int
    seconds: float

    FIGURES: ClassVar[Mapping[str, str]] = {
        "mean_jobs": "jobs",
        "transfers_per_second": "1/s",
        "idle_probability": "",
        "mean_response_time": "s",
    }
    BRIEF: ClassVar[Sequence[str]] = ("mean_jobs", "transfers_per_second", "mean_response_time")

    def quantile(self, p: float, confidence: float = 0.95) -> Estimate:
        """The response time that a fraction ``p`` of jobs does not exceed, in seconds."""
        return quantile_estimate(self.response_times, p, confidence)

    def cost(self, holding_cost: float, transfer_cost: float) -> float:
        """C = c1 L + c2 T, equation (2)."""
        return cost_per_second(self.mean_jobs.value, self.transfers_per_second.value, holding_cost, transfer_cost)


class Pool:
    """Random draws of one distribution, a chunk at a time; a ``Recorded`` one is replayed in its order."""

    def __init__(self, distribution: Distribution, random: np.random.Generator) -> None:
        self._distribution = distribution
        self._random = random
        self._played = 0
        self.values = np.empty(0)

    def refill(self, size: int = _POOL) -> Real:
        """Draw the next ``size`` values into ``values``, and return them."""
        if isinstance(self._distribution, Recorded):
            self.values = self._distribution.replay(self._played, size)
            self._played += size
        else:
            self.values = np.ascontiguousarray(self._distribution.sample(self._random, size), dtype=float)
        return self.values


@dataclass(frozen=True)
class Play:
    """The complete record of a run that starts with an empty server.

    Args:
        response_times, departures: of each job, in the order of arrival, in seconds.
        sums: per batch of jobs: elapsed time, its integral of the jobs present, transfers, idle time; shape (1600 or fewer, 4).
        events: arrivals, services and transfers.
    """

    response_times: Real
    departures: Real
    sums: Real
    events: int


def simulate_stream_server(
    server: "StreamServer",
    *,
    jobs: int = 2_000_000,
    seed: int = 0,
    interarrival: Distribution | None = None,
    service: Distribution | None = None,
    transfer: Distribution | None = None,
    timer: Distribution | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Simulation:
    """Simulate a stream server; see :func:`penstock.queueing.simulate`."""
    confidence, seed = parameter.fraction("confidence", confidence), parameter.seed(seed)
    require_same_mean("interarrival", server.arrival_rate, interarrival)
    require_same_mean("service", server.service_rate, service)
    require_same_mean("transfer", server.transfer_rate, transfer)
    require_same_mean("timer", server.timer_rate, timer)
    jobs = parameter.jobs(jobs, _BATCHES)
    server.require_stable()
    random = np.random.default_rng(seed)
    started = perf_counter()
    run = play(server, interarrival, service, transfer, timer, jobs, random, progress)
    seconds = perf_counter() - started
    first = warm_up(run.sums[:, 1] / run.sums[:, 0])
    time, area, transfers, idle = run.sums[first:].T
    skipped = math.ceil(first * jobs / len(run.sums))
    responses = run.response_times[skipped:]
    return Simulation(
        ratio_estimate(area, time, confidence),
        ratio_estimate(transfers, time, confidence),
        mean_estimate(responses, confidence),
        ratio_estimate(idle, time, confidence),
        responses,
        run.departures[skipped:],
        jobs,
        skipped,
        run.events,
        seconds,
    )


def play(
    server: "StreamServer",
    interarrival: Distribution | None,
    service: Distribution | None,
    transfer: Distribution | None,
    timer: Distribution | None,
    jobs: int,
    random: np.random.Generator,
    progress: Progress | None = None,
) -> Play:
    """Run the server, empty at first, until ``jobs`` jobs have left; a distribution of ``None`` is exponential."""
    streams = random.spawn(4)
    instant, timed = math.isinf(server.transfer_rate), 0 < server.timer_rate < math.inf
    pools = [
        Pool(interarrival or Exponential(1 / server.arrival_rate), streams[0]),
        Pool(service or Exponential(1 / server.service_rate), streams[1]),
        Pool(transfer or Exponential(1 if instant else 1 / server.transfer_rate), streams[2]),
        Pool(timer or Exponential(1 / server.timer_rate if timed else 1), streams[3]),
    ]
    timer_mode = 0 if server.timer_rate == 0 else (2 if server.timer == "always" else 1)
    size = int(min(server.effective_batch_size, 2**62))
    rules = _Rules(size, timer_mode, server.timer_rate == math.inf, instant)
    counts = np.zeros(8, dtype=np.int64)
    state = _State(np.array([0.0, np.inf, np.inf, np.inf, np.inf]), counts, np.array([0.0]))
    done = _Done(np.empty(jobs), np.empty(jobs), np.zeros((min(_BATCHES, jobs), 4)))
    arrivals = np.empty(1 << 12)
    used = np.zeros(4, dtype=np.int64)
    for pool in pools:
        pool.refill()
    # The compiled loop returns whenever an array runs dry or full; mend that, and call it again.
    while counts[_DONE] < jobs:
        draws = _Draws(pools[0].values, pools[1].values, pools[2].values, pools[3].values, used)
        outcome = _run(rules, draws, state, arrivals, done)
        if outcome == _FULL:
            arrivals = _grown(arrivals, counts)
        elif outcome < _FULL:
            pools[outcome].refill()
            used[outcome] = 0
            if progress is not None:
                progress(int(counts[_DONE]), jobs)
    return Play(done.responses, done.departures, done.sums, int(counts[_ARRIVED] + counts[_DONE] + counts[_TRANSFERS]))


def require_same_mean(name: str, rate: float, given: Distribution | None) -> None:
    """Raise ``ConfigurationError`` if a distribution's mean contradicts the server's rate."""
    if given is None:
        return
    if not is_distribution(given):
        raise ConfigurationError(f"The {name} distribution is {given!r}; give one of penstock.queueing, such as Gamma(1, 2).")
    if not math.isclose(given.mean * rate, 1, rel_tol=1e-6):
        raise ConfigurationError(
            f"The {name} distribution has mean {given.mean:g} s, but the server's rate of {rate:g} per second asks for "
            f"{1 / rate if rate else math.inf:g} s; give both the same."
        )


def _grown(arrivals: Real, counts: NDArray[np.int64]) -> Real:
    """A ring buffer of arrival times that is twice as large, with the oldest first."""
    head = counts[_HEAD]
    larger = np.empty(2 * len(arrivals))
    larger[: len(arrivals)] = np.roll(arrivals, -head)
    counts[_HEAD] = 0
    return larger


# positions in `counts`
_INSIDE, _OUTSIDE, _ARRIVED, _DONE, _TRANSFERS, _HEAD, _MOVING, _STARTED = range(8)
# outcomes of `_run`: the pool that ran dry (0-3), the ring buffer of arrival times is full (4), all jobs are done (5)
_FULL, _FINISHED = 4, 5


class _Rules(NamedTuple):
    """How the server works. ``timer_mode``: 0 without a timer, 1 while nothing is inside, 2 always."""

    size: int
    timer_mode: int
    timer_at_once: bool
    instant: bool


class _Draws(NamedTuple):
    """Values drawn in advance of each kind, and how many of each have been used."""

    interarrivals: Real
    services: Real
    transfers: Real
    timers: Real
    used: NDArray[np.int64]


class _State(NamedTuple):
    """Where the simulation is. ``clock``: now, and when the next arrival, service, timer and transfer end."""

    clock: Real
    counts: NDArray[np.int64]
    remaining: Real
    """Seconds of the service that a transfer has interrupted."""


class _Done(NamedTuple):
    """What has been measured: by job, and sums by batch of jobs."""

    responses: Real
    departures: Real
    sums: Real


@njit(cache=True)
def _run(rules, draws, state, arrivals, measured):  # type: ignore[no-untyped-def]
    """Go on until a pool of draws is used up, the ring buffer ``arrivals`` is full, or all jobs are done; say which."""
    # One long function: with a function for each kind of event, which change arrays and no variables, it took 2 to 3 times as
    # long (5 servers, 1,000,000 jobs each).
    size, timer_mode, timer_at_once, instant = rules
    interarrivals, services, transfers, timers, used = draws
    clock, counts, remaining = state
    responses, departures, sums = measured
    now, next_arrival, next_service, next_timer, next_ready = clock
    inside, outside, arrived, done, transferred, head, moving, started = counts
    capacity = len(arrivals)
    jobs = len(responses)
    batches = len(sums)
    interrupted = remaining[0]
    outcome = 5
    if started == 0:
        next_arrival = interarrivals[0]
        used[0] = 1
        started = 1
    batch = done * batches // jobs
    while done < jobs:
        # One step may use up to one draw of each kind, so each pool must hold one.
        if used[0] >= len(interarrivals):
            outcome = 0
            break
        if used[1] >= len(services):
            outcome = 1
            break
        if used[2] >= len(transfers):
            outcome = 2
            break
        if used[3] >= len(timers):
            outcome = 3
            break
        if inside + outside >= capacity:
            outcome = 4
            break
        upcoming = min(next_arrival, next_service, next_timer, next_ready)
        elapsed = upcoming - now
        sums[batch, 0] += elapsed
        sums[batch, 1] += elapsed * (inside + outside)
        if inside == 0 and moving == 0:
            sums[batch, 3] += elapsed
        now = upcoming
        send = False
        if upcoming == next_arrival:
            arrivals[(head + inside + outside) % capacity] = now
            outside += 1
            arrived += 1
            next_arrival = now + interarrivals[used[0]]
            used[0] += 1
            send = moving == 0 and outside >= size
        elif upcoming == next_service:
            response = now - arrivals[head]
            responses[done] = response
            departures[done] = now
            done += 1
            head += 1
            if head == capacity:
                head = 0
            inside -= 1
            batch = min(done * batches // jobs, batches - 1)
            if inside > 0:
                next_service = now + services[used[1]]
                used[1] += 1
            else:
                next_service = np.inf
        elif upcoming == next_timer:
            next_timer = np.inf
            send = True
        else:  # a transfer ends
            next_ready = np.inf
            moving = 0
            inside += outside
            outside = 0
            if interrupted > 0:
                next_service = now + interrupted
                interrupted = 0.0
            else:
                next_service = now + services[used[1]]
                used[1] += 1
        # The timer runs while a job waits outside and, in the paper's model, nothing is inside.
        waiting = moving == 0 and outside > 0 and (timer_mode == 2 or (timer_mode == 1 and inside == 0))
        if waiting and timer_at_once:
            send = True
        if send:
            next_timer = np.inf
            transferred += 1
            sums[batch, 2] += 1
            if instant:
                if inside == 0:
                    next_service = now + services[used[1]]
                    used[1] += 1
                inside += outside
                outside = 0
            else:
                moving = 1
                next_ready = now + transfers[used[2]]
                used[2] += 1
                interrupted = next_service - now if inside > 0 else 0.0  # the service resumes after the transfer
                next_service = np.inf
        elif not waiting:
            next_timer = np.inf
        elif next_timer == np.inf:
            next_timer = now + timers[used[3]]
            used[3] += 1
    clock[0], clock[1], clock[2], clock[3], clock[4] = now, next_arrival, next_service, next_timer, next_ready
    counts[0], counts[1], counts[2], counts[3] = inside, outside, arrived, done
    counts[4], counts[5], counts[6], counts[7] = transferred, head, moving, started
    remaining[0] = interrupted
    return outcome
