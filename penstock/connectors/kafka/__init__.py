"""Kafka topics: as sources and sinks of runs, and behind the adapter."""
