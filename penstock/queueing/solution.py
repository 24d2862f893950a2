"""Solving and simulating any server: the doors to the methods."""

import math
from dataclasses import replace
from typing import overload

from penstock.errors import ConfigurationError, NotSolvableError
from penstock.queueing import parameter
from penstock.queueing.boundary import Boundary, solve_boundary
from penstock.queueing.chain import solve_chain
from penstock.queueing.distribution import Distribution
from penstock.queueing.iterative import solve_iterative
from penstock.queueing.limits import infinite_batch
from penstock.queueing.microbatch import MicroBatchServer
from penstock.queueing.microbatch_simulation import MicroBatchSimulation, simulate_micro_batches
from penstock.queueing.microbatch_solution import MicroBatchState, solve_micro_batches
from penstock.queueing.moments import moments
from penstock.queueing.server import StreamServer
from penstock.queueing.simulation import Progress, Simulation, simulate_stream_server
from penstock.queueing.spectral import solve_spectral
from penstock.queueing.steadystate import SteadyState

METHODS = ("auto", "spectral", "iterative", "chain")


@overload
def solve(
    server: StreamServer,
    method: str = ...,
    tolerance: float = ...,
    *,
    truncation: int | None = ...,
    digits: int | None = ...,
) -> SteadyState: ...
@overload
def solve(server: MicroBatchServer, method: str = ...) -> MicroBatchState: ...
def solve(
    server: StreamServer | MicroBatchServer,
    method: str = "auto",
    tolerance: float = 1e-10,
    *,
    truncation: int | None = None,
    digits: int | None = None,
) -> SteadyState | MicroBatchState:
    """Find the steady state of a server with Poisson arrivals.

    Parameters
    ----------
    server: the server; it must be stable.
    method: ``"auto"``, arithmetic modulo omega, fast and to about 1e-12 for every K and tau, their limits included;
        ``"spectral"``, the paper's sections 3 and 5 in arbitrary precision; ``"iterative"``, its sections 4 and 5;
        ``"chain"``, a truncated Markov chain. A :class:`MicroBatchServer` has one method, ``"auto"``.
    tolerance: relative error allowed to ``"iterative"`` and ``"chain"``.
    truncation: m of ``"iterative"`` or ``"chain"``: at most this many jobs in the internal queue.
    digits: precision of ``"spectral"``; 30 + K decimal digits unless given.

    Raises
    ------
    UnstableServerError: the queues would grow without bound.
    NotSolvableError: the method cannot do this server.

    Examples
    --------
    >>> steady = solve(StreamServer(750, 1000, batch_size=25, timer_rate=573))
    >>> round(steady.cost(holding_cost=1, transfer_cost=0.05), 3)  # Figure 2 of the paper
    14.536
    """
    if isinstance(server, MicroBatchServer):
        parameter.one_of("method", method, ("auto",))
        return solve_micro_batches(server)
    if not isinstance(server, StreamServer):
        raise ConfigurationError(f"solve() takes a StreamServer or a MicroBatchServer, not {type(server).__name__}.")
    parameter.one_of("method", method, METHODS)
    parameter.rate("tolerance", tolerance)
    truncation = None if truncation is None else int(parameter.count("truncation", truncation))
    digits = None if digits is None else int(parameter.count("digits", digits, least=15))
    server.require_stable()
    if math.isinf(_without_extremes(server).effective_batch_size):
        if method != "auto":
            raise NotSolvableError(f"method={method!r} takes a finite batch_size; use method='auto'.")
        return SteadyState.of(server, method, infinite_batch(_without_extremes(server)), None)
    if method == "chain":
        chain = solve_chain(server, tolerance, truncation)
        flows = server.timer_rate * chain.ready[0]
        flows[0] = 0.0
        boundary = Boundary(chain.ready[0].copy(), flows)
        return SteadyState.of(server, method, chain.moments(server), boundary)
    boundary = {
        "auto": lambda: solve_boundary(_without_extremes(server)),
        "spectral": lambda: solve_spectral(server, digits),
        "iterative": lambda: solve_iterative(server, tolerance, truncation),
    }[method]()
    return SteadyState.of(server, method, moments(_without_extremes(server), boundary), boundary)


def _without_extremes(server: StreamServer) -> StreamServer:
    """A timer 10^15 times as fast as all else is infinitely fast, and its square would not fit into a double."""
    fastest = server.arrival_rate + server.service_rate
    return replace(server, timer_rate=math.inf) if server.timer_rate > 1e15 * fastest else server


@overload
def simulate(
    server: StreamServer,
    *,
    jobs: int = ...,
    seed: int = ...,
    interarrival: Distribution | None = ...,
    service: Distribution | None = ...,
    transfer: Distribution | None = ...,
    timer: Distribution | None = ...,
    confidence: float = ...,
    progress: Progress | None = ...,
) -> Simulation: ...
@overload
def simulate(
    server: MicroBatchServer,
    *,
    jobs: int = ...,
    seed: int = ...,
    interarrival: Distribution | None = ...,
    confidence: float = ...,
) -> MicroBatchSimulation: ...
def simulate(
    server: StreamServer | MicroBatchServer,
    *,
    jobs: int = 2_000_000,
    seed: int = 0,
    interarrival: Distribution | None = None,
    service: Distribution | None = None,
    transfer: Distribution | None = None,
    timer: Distribution | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> Simulation | MicroBatchSimulation:
    """Simulate a server, event by event, with any distributions.

    Parameters
    ----------
    server: the server; it must be stable.
    jobs: jobs (or rows) to simulate, warm-up included.
    seed: equal seeds give equal results.
    interarrival, service, transfer, timer: distributions with the means that the server's rates say; exponential
        unless given. ``Recorded`` plays measured arrivals back. A ``MicroBatchServer`` has only the first; its batch
        durations are its own.
    confidence: of the intervals, by batch means after the warm-up that the MSER-5 rule finds.
    progress: called with (jobs done, jobs in all) from time to time.

    Raises
    ------
    UnstableServerError: the queues would grow without bound.
    ConfigurationError: a distribution's mean contradicts the server.

    Examples
    --------
    >>> run = simulate(StreamServer(750, 1000, batch_size=25, timer_rate=573), jobs=200_000, seed=1)
    >>> abs(run.mean_jobs.value - 8.1352) < 3 * run.mean_jobs.half_width
    True
    """
    confidence, seed = parameter.fraction("confidence", confidence), parameter.seed(seed)
    if isinstance(server, MicroBatchServer):
        return simulate_micro_batches(server, jobs=jobs, seed=seed, interarrival=interarrival, confidence=confidence)
    if not isinstance(server, StreamServer):
        raise ConfigurationError(f"simulate() takes a StreamServer or a MicroBatchServer, not {type(server).__name__}.")
    return simulate_stream_server(
        server,
        jobs=jobs,
        seed=seed,
        interarrival=interarrival,
        service=service,
        transfer=transfer,
        timer=timer,
        confidence=confidence,
        progress=progress,
    )
