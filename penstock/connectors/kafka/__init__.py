"""Kafka topics, as sources and sinks of runs, and as the store behind the adapter."""
