"""Real servers on this machine, for tests and experiments: each a context, a process to be killed."""
