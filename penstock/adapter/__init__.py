"""The door for clients in any language: HTTP/JSON and WebSockets in and out, on the embedded log or on Kafka.

`penstock.adapter.server` is the process, `penstock.adapter.log` the log that it shares with the engine.
"""

from penstock.adapter.log import EventLog

__all__ = ["EventLog"]
