"""Moving a run that is stopped to other groups or partitions, with the instances that its checkpoints hold."""
