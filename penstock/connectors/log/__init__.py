"""The embedded log: streams of events on one machine's disk, a source, a sink, and the adapter's store."""

from penstock.connectors.log.log import EventLog, LogRecord, Parcel, StreamLog
from penstock.connectors.log.request import CONFLICT, Request

__all__ = ["CONFLICT", "EventLog", "LogRecord", "Parcel", "Request", "StreamLog"]
