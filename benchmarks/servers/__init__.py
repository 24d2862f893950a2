"""Real servers that tests and benchmarks start, each on a port of its own, and stop."""
