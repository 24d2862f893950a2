"""From a group of elements to a query of Spark, and what of it runs in Spark's Python workers, which import little else."""
