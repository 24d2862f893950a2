"""The adapter, for clients in any language: HTTP/JSON and WebSockets, on the embedded log or on Kafka.

`penstock.adapter.server` is the process; the log that it shares with the engine is `penstock.connectors.log`.
"""

from penstock.connectors.log import EventLog

__all__ = ["EventLog"]
