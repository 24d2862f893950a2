"""Files that a run keeps: on a local disk, or in a store that Spark's Hadoop layer and Python both reach."""
