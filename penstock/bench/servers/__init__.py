"""Server processes on this machine for experiments, such as Kafka; each is a context manager."""
