"""Solving a stream server by one of four methods; see :func:`penstock.queueing.solve`."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import NotSolvableError
from penstock.queueing import parameter
from penstock.queueing.boundary import Boundary, solve_boundary
from penstock.queueing.limits import infinite_batch
from penstock.queueing.moments import moments
from penstock.queueing.steadystate import SteadyState

if TYPE_CHECKING:
    from penstock.queueing.server import StreamServer

METHODS = ("auto", "spectral", "iterative", "chain")


def solve_stream_server(
    server: "StreamServer",
    method: str = "auto",
    tolerance: float = 1e-10,
    truncation: int | None = None,
    digits: int | None = None,
) -> SteadyState:
    """Find the steady state with Poisson arrivals; see :func:`penstock.queueing.solve`."""
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
        from penstock.queueing.chain import solve_chain

        chain = solve_chain(server, tolerance, truncation)
        flows = server.timer_rate * chain.ready[0]
        flows[0] = 0.0
        boundary = Boundary(chain.ready[0].copy(), flows)
        return SteadyState.of(server, method, chain.moments(server), boundary)
    boundary = _boundary(server, method, tolerance, truncation, digits)
    return SteadyState.of(server, method, moments(_without_extremes(server), boundary), boundary)


def _boundary(server: "StreamServer", method: str, tolerance: float, truncation: int | None, digits: int | None) -> Boundary:
    if method == "spectral":
        from penstock.queueing.spectral import solve_spectral

        return solve_spectral(server, digits)
    if method == "iterative":
        from penstock.queueing.iterative import solve_iterative  # imported here because compiled code is slow to load

        return solve_iterative(server, tolerance, truncation)
    return solve_boundary(_without_extremes(server))


def _without_extremes(server: "StreamServer") -> "StreamServer":
    """Replace an extremely fast timer by an infinitely fast one, and an extremely slow one by none, to avoid overflow.

    Extreme is 10^15 times the other rates: so slow a timer fires before a batch of K jobs is full with probability K / 10^15.

    Raises:
        NotSolvableError: the batch size is infinite, and the timer is too slow for a double to hold the jobs that wait for it.
    """
    rates = (server.arrival_rate, server.service_rate)
    if server.timer_rate > 1e15 * sum(rates):
        return replace(server, timer_rate=math.inf)
    if math.isinf(server.batch_size) and 0 < server.timer_rate < 1e-100 * min(rates):
        raise NotSolvableError(
            f"timer_rate={server.timer_rate:g} is too small beside the other rates for a batch of infinite size, which waits "
            "for the timer: give a larger timer_rate, or a finite batch_size."
        )
    if not math.isinf(server.batch_size) and server.timer_rate < 1e-15 * min(rates):
        return replace(server, timer_rate=0.0)
    return server
