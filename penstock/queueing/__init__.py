"""Models of waiting: one server with an external and an internal queue, its variants, and networks of them.

>>> from penstock.queueing import StreamServer, solve, optimize
>>> server = StreamServer(arrival_rate=750, service_rate=1000, batch_size=100, timer_rate=500, transfer_rate=600)
>>> steady = solve(server)
>>> p99 = steady.response_time.quantile(0.99)
>>> f"{steady.mean_jobs:.3f} jobs, {steady.transfers_per_second:.2f} transfers/s, p99 {p99:.4f} s"
'13.329 jobs, 67.09 transfers/s, p99 0.0444 s'

The theory is in ``docs/background/queueing.md``; symbols and equation numbers are those of Cooper, Ezhilchelvan and
Mitrani, "A Stream-Processing Server with an Internal and an External Queue" (2020).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.errors import NotSolvableError, UnstableServerError
from penstock.extras import needs

if TYPE_CHECKING:
    from penstock.queueing.distribution import (
        Deterministic,
        Distribution,
        Empirical,
        Exponential,
        Gamma,
        HyperExponential,
        LogNormal,
        Recorded,
        with_scv,
    )
    from penstock.queueing.estimate import Estimate
    from penstock.queueing.gate_optimum import GateOptimum, optimize_gate
    from penstock.queueing.microbatch import LingerBatch, MicroBatchServer
    from penstock.queueing.microbatch_simulation import MicroBatchSimulation
    from penstock.queueing.microbatch_solution import MicroBatchState
    from penstock.queueing.model import Model, Solution, simulate, solve
    from penstock.queueing.network import Network, NetworkSimulation, NetworkState, NodeState
    from penstock.queueing.optimum import Optimum, OptimumSetting, optimize
    from penstock.queueing.response import ResponseTime
    from penstock.queueing.server import StreamServer
    from penstock.queueing.simulation import Simulation
    from penstock.queueing.steadystate import SteadyState

__all__ = [
    "Deterministic",
    "Distribution",
    "Empirical",
    "Estimate",
    "Exponential",
    "Gamma",
    "GateOptimum",
    "HyperExponential",
    "LingerBatch",
    "LogNormal",
    "MicroBatchServer",
    "MicroBatchSimulation",
    "MicroBatchState",
    "Model",
    "Network",
    "NetworkSimulation",
    "NetworkState",
    "NodeState",
    "NotSolvableError",
    "Optimum",
    "OptimumSetting",
    "Recorded",
    "ResponseTime",
    "Simulation",
    "Solution",
    "SteadyState",
    "StreamServer",
    "UnstableServerError",
    "optimize",
    "optimize_gate",
    "simulate",
    "solve",
    "with_scv",
]

_WHERE = {
    "distribution": (
        "Deterministic",
        "Distribution",
        "Empirical",
        "Exponential",
        "Gamma",
        "HyperExponential",
        "LogNormal",
        "Recorded",
        "with_scv",
    ),
    "estimate": ("Estimate",),
    "gate_optimum": ("GateOptimum", "optimize_gate"),
    "microbatch": ("LingerBatch", "MicroBatchServer"),
    "microbatch_simulation": ("MicroBatchSimulation",),
    "microbatch_solution": ("MicroBatchState",),
    "model": ("Model", "Solution", "simulate", "solve"),
    "network": ("Network", "NetworkSimulation", "NetworkState", "NodeState"),
    "optimum": ("Optimum", "OptimumSetting", "optimize"),
    "response": ("ResponseTime",),
    "server": ("StreamServer",),
    "simulation": ("Simulation",),
    "steadystate": ("SteadyState",),
}


def __getattr__(name: str) -> Any:
    """Import a module only when one of its names is first used: loading some takes longer than solving a server."""
    module = next((module for module, names in _WHERE.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs():
        globals()[name] = value = getattr(import_module(f"{__name__}.{module}"), name)
    return value
