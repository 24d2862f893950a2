"""The door for clients: for now the embedded log, which producers append to and the engine follows."""

from penstock.adapter.log import EventLog

__all__ = ["EventLog"]
