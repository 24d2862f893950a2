"""Clusters of nodes on one machine, for tests and experiments."""

from penstock.bench.cluster import StandaloneCluster

__all__ = ["StandaloneCluster"]
