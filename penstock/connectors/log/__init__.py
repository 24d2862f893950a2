"""The embedded log: streams of events on one machine's disk, a source, a sink, and the adapter's store."""

from penstock.connectors.log.log import EventLog, LogRecord, Parcel, StreamLog

__all__ = ["EventLog", "LogRecord", "Parcel", "StreamLog"]
