"""A real Spark standalone cluster on one machine, each of whose nodes has its own address, limits and counters."""

from penstock.bench.cluster.node import Node
from penstock.bench.cluster.spark import Cluster, executor_conf
from penstock.bench.cluster.usage import Sampler, Usage

__all__ = ["Cluster", "Node", "Sampler", "Usage", "executor_conf"]
