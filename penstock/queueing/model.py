"""The protocol of server models, so that the command line, sweeps and planners work with any of them.

To add a model, write a class with these members in a module of its own, and add a row to `MODELS`.
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
"""Import paths of the models, by the name of a model's table in a configuration file for the command line."""

Figures = Mapping[str, str]
"""Units of a solution's attributes, by attribute name, in the order in which they are shown."""

Result = TypeVar("Result", covariant=True)


class Solution(Protocol[Result]):
    """The result of solving a model, where ``Result`` is a number, or of simulating it, where it is an estimate."""

    FIGURES: ClassVar[Figures]
    BRIEF: ClassVar[Sequence[str]]
    """Names of the figures that a table over many settings shows."""

    def quantile(self, p: float) -> Result:
        """The time from arrival to end that a fraction ``p`` of events does not exceed, in seconds."""

    def cost(self, holding_cost: float, transfer_cost: float) -> float:
        """Cost per second: ``holding_cost`` per event and second plus ``transfer_cost`` per transfer or batch."""


class Model(Protocol):
    """A server: its parameters, and the means to solve and to simulate it."""

    NEEDED: ClassVar[Sequence[str]]
    """Names of the parameters without a default."""
    PARAMETERS: ClassVar[Sequence[str]]
    """Names of all parameters that a table in a configuration file may hold."""
    NUMERIC: ClassVar[Sequence[str]]
    """Names of the parameters that a sweep may vary."""

    @property
    def arrival_rate(self) -> float:
        """Events per second."""

    @property
    def is_stable(self) -> bool:
        """Whether the queues stay bounded."""

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Self:
        """Make the server from a table of a configuration file, parameters by name."""

    def solve(self, method: str = "auto", **options: Any) -> Solution[float]:
        """Find the steady state; see `penstock.queueing.solve`."""

    def simulate(self, *, jobs: int = 2_000_000, seed: int = 0, **options: Any) -> Solution[Estimate]:
        """Simulate the server; see `penstock.queueing.simulate`."""


def model_of(table: str) -> type[Model]:
    """The class of a model, by the name of its table in a configuration file."""
    module, _, name = MODELS[table].partition(":")
    model: type[Model] = getattr(import_module(module), name)
    return model


def figures_of(solution: Solution[Any], names: Sequence[str] | None = None) -> dict[str, Any]:
    """A solution's figures by name: all of them, or those in ``names``."""
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

    Args:
        server: the server; it must be stable.
        method: ``"auto"``, arithmetic modulo a polynomial, fast and to about 1e-12 for every K and tau, 0 and infinity too;
            ``"spectral"``, the paper's sections 3 and 5 in arbitrary precision; ``"iterative"``, its sections 4 and 5;
            ``"chain"``, a truncated Markov chain. A :class:`MicroBatchServer` has one method, ``"auto"``.
        tolerance: relative error allowed to ``"iterative"`` and ``"chain"``, 1e-10 by default.
        truncation: m, for ``"iterative"`` and ``"chain"``: the largest number of jobs in the internal queue.
        digits: precision of ``"spectral"`` in decimal digits, 30 + K by default.

    Raises:
        UnstableServerError: the queues would grow without bound.
        NotSolvableError: the method cannot solve this server.

    Examples:
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

    Args:
        server: the server; it must be stable.
        jobs: jobs (or rows) to simulate, warm-up included.
        seed: equal seeds give equal results.
        interarrival, service, transfer, timer: distributions whose means agree with the server's rates; exponential by
            default. ``Recorded`` plays measured arrivals back. A ``MicroBatchServer`` takes only ``interarrival``; its
            parameters give the batch durations.
        confidence: level of the intervals, 0.95 by default; by batch means after the warm-up that the MSER-5 rule finds.
        progress: called with (jobs done, jobs in all) from time to time.

    Raises:
        UnstableServerError: the queues would grow without bound.
        ConfigurationError: a distribution's mean contradicts the server, or the server takes no such distribution.

    Examples:
        >>> from penstock.queueing import StreamServer
        >>> run = simulate(StreamServer(750, 1000, batch_size=25, timer_rate=573), jobs=200_000, seed=1)
        >>> abs(run.mean_jobs.value - 8.1352) < 3 * run.mean_jobs.half_width
        True
    """
    _require_model("simulate", server)
    return server.simulate(jobs=jobs, seed=seed, **options)


def _require_model(function: str, server: Any) -> None:
    if not hasattr(server, "solve") or isinstance(server, type):
        models = " or a ".join(path.rpartition(":")[2] for path in MODELS.values())
        raise ConfigurationError(f"{function}() takes a {models}, not {type(server).__name__}.")
