"""Processes on this machine, for experiments: each a context; and Kafka among them."""
