"""Moving a stopped run to other groups or partitions, with all instances in its checkpoints."""
