"""Tools for experiments: clusters and servers on one machine, load generation, and the figures of the papers."""
