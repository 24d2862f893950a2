"""The engine: topologies compiled to Spark Structured Streaming. The only package that imports pyspark."""

from typing import TYPE_CHECKING, Any

from penstock.extras import needs

if TYPE_CHECKING:
    from penstock.engine.running.execution import RunResult, rescale, run
    from penstock.engine.running.options import RunOptions

__all__ = ["RunOptions", "RunResult", "rescale", "run"]


def __getattr__(name: str) -> Any:
    """Import the engine on first use. Spark's Python workers import this package too, and need only two of its modules."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needs():
        from penstock.engine.session.versions import installed

        installed()
        from penstock.engine.running import execution

    globals()[name] = value = getattr(execution, name)
    return value
