"""Compiles a group of elements to a Spark query. Has the code for Spark's Python workers, which import little else."""
