"""What every model of a server can do, so that the command line, sweeps and planners take a new one unseen.

A model is one module with a class that has these members, and a row in `MODELS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, overload

from penstock.errors import ConfigurationError

if TYPE_CHECKING:
    from penstock.queueing.distribution import Distribution
    from penstock.queueing.estimate import Estimate
    from penstock.queueing.microbatch import MicroBatchServer
    from penstock.queueing.microbatch_simulation import MicroBatchSimulation
    from penstock.queueing.microbatch_solution import MicroBatchState
    from penstock.queueing.server import StreamServer
    from penstock.queueing.simulation import Progress, Simulation
    from penstock.queueing.steadystate import SteadyState

MODELS = {"server": "penstock.queueing.server:StreamServer", "micro_batch": "penstock.queueing.microbatch:MicroBatchServer"}
"""Each model by the name of its table in a file, as the command line reads it."""

Figures = Mapping[str, str]
"""Names of attributes, and their units, in the order in which they are shown."""

Result = TypeVar("Result", covariant=True)


class Solution(Protocol[Result]):
    """What a model predicts, or a simulation of it found; ``Result`` is a number, or one with an interval."""

    FIGURES: ClassVar[Figures]
    BRIEF: ClassVar[Sequence[str]]
    """Those of the figures that a table over many settings has."""

    def quantile(self, p: float) -> Result:
        """The time that a fraction ``p`` of events, from arrival to the end, does not exceed, in seconds."""

    def cost(self, holding_cost: float, transfer_cost: float) -> float:
        """Per second: ``holding_cost`` per event and second, ``transfer_cost`` per transfer or batch."""


class Model(Protocol):
    """A server: parameters that describe it, and what follows from them."""

    NEEDED: ClassVar[Sequence[str]]
    """The parameters without a default."""
    PARAMETERS: ClassVar[Sequence[str]]
    """All that a table in a file may hold."""
    NUMERIC: ClassVar[Sequence[str]]
    """Those that a sweep may go over."""

    @property
    def arrival_rate(self) -> float:
        """Events per second."""

    @property
    def is_stable(self) -> bool:
        """Whether the queues stay bounded."""

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Self:
        """The server that a table of a file describes."""

    def solve(self, method: str = "auto", **options: Any) -> Solution[float]:
        """See `penstock.queueing.solve`."""

    def simulate(self, *, jobs: int = 2_000_000, seed: int = 0, **options: Any) -> Solution[Estimate]:
        """See `penstock.queueing.simulate`."""


def model_of(table: str) -> type[Model]:
    """The model whose table in a file has a name."""
    module, _, name = MODELS[table].partition(":")
    found: type[Model] = getattr(import_module(module), name)
    return found


def figures_of(solution: Solution[Any], names: Sequence[str] | None = None) -> dict[str, Any]:
    """A solution's figures by name: all, or some."""
    return {name: getattr(solution, name) for name in (names or solution.FIGURES)}


@overload
def solve(
    server: StreamServer, method: str = ..., tolerance: float = ..., *, truncation: int | None = ..., digits: int | None = ...
) -> SteadyState: ...
@overload
def solve(server: MicroBatchServer, method: str = ...) -> MicroBatchState: ...
@overload
def solve(server: Model, method: str = ...) -> Solution[float]: ...
def solve(server: Any, method: str = "auto", tolerance: float | None = None, **options: Any) -> Any:
    """Find the steady state of a server with Poisson arrivals.

    Parameters
    ----------
    server: the server; it must be stable.
    method: ``"auto"``, arithmetic modulo omega, fast and to about 1e-12 for every K and tau, their limits included;
        ``"spectral"``, the paper's sections 3 and 5 in arbitrary precision; ``"iterative"``, its sections 4 and 5;
        ``"chain"``, a truncated Markov chain. A :class:`MicroBatchServer` has one method, ``"auto"``.
    tolerance: relative error allowed to ``"iterative"`` and ``"chain"``, 1e-10 unless given.
    truncation: m of ``"iterative"`` or ``"chain"``: at most this many jobs in the internal queue.
    digits: precision of ``"spectral"``; 30 + K decimal digits unless given.

    Raises
    ------
    UnstableServerError: the queues would grow without bound.
    NotSolvableError: the method cannot do this server.

    Examples
    --------
    >>> from penstock.queueing import StreamServer
    >>> steady = solve(StreamServer(750, 1000, batch_size=25, timer_rate=573))
    >>> round(steady.cost(holding_cost=1, transfer_cost=0.05), 3)  # Figure 2 of the paper
    14.536
    """
    _require_model("solve", server)
    return server.solve(method, **({} if tolerance is None else {"tolerance": tolerance}), **options)


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
@overload
def simulate(server: Model, *, jobs: int = ..., seed: int = ..., **options: Any) -> Solution[Estimate]: ...
def simulate(server: Any, *, jobs: int = 2_000_000, seed: int = 0, **options: Any) -> Any:
    """Simulate a server, event by event, with any distributions.

    Parameters
    ----------
    server: the server; it must be stable.
    jobs: jobs (or rows) to simulate, warm-up included.
    seed: equal seeds give equal results.
    interarrival, service, transfer, timer: distributions with the means that the server's rates say; exponential
        unless given. ``Recorded`` plays measured arrivals back. A ``MicroBatchServer`` has only the first; its batch
        durations are its own.
    confidence: of the intervals, 0.95 unless given, by batch means after the warm-up that the MSER-5 rule finds.
    progress: called with (jobs done, jobs in all) from time to time.

    Raises
    ------
    UnstableServerError: the queues would grow without bound.
    ConfigurationError: a distribution's mean contradicts the server, or it has no such distribution.

    Examples
    --------
    >>> from penstock.queueing import StreamServer
    >>> run = simulate(StreamServer(750, 1000, batch_size=25, timer_rate=573), jobs=200_000, seed=1)
    >>> abs(run.mean_jobs.value - 8.1352) < 3 * run.mean_jobs.half_width
    True
    """
    _require_model("simulate", server)
    return server.simulate(jobs=jobs, seed=seed, **options)


def _require_model(function: str, server: Any) -> None:
    if not hasattr(server, "solve") or isinstance(server, type):
        known = " or a ".join(path.rpartition(":")[2] for path in MODELS.values())
        raise ConfigurationError(f"{function}() takes a {known}, not {type(server).__name__}.")
