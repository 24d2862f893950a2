"""The engine: topologies compiled to Spark Structured Streaming. The only package that imports pyspark."""

from penstock.engine.options import RunOptions
from penstock.engine.run import RunResult, run

__all__ = ["RunOptions", "RunResult", "run"]
