"""A run, from its options to its report: binding, micro-batches, commits, and the events that end or change a run."""
