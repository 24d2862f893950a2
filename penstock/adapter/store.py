"""Stores: the interface by which the adapter stores a stream's events, and its implementation on the embedded log."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from penstock.connectors.log.log import BLOCK_BYTES, Parcel, StreamLog
from penstock.errors import ConfigurationError


class Stored(NamedTuple):
    """An event for consumers; ``next`` is the position of the event after it."""

    next: str
    payload: bytes


class Store(Protocol):
    """Stores a stream's events. One thread at a time may write, any may read."""

    def begin(self, parcels: Sequence[Parcel]) -> Callable[[], list[int]]:
        """Begin to append parcels, without waiting.

        Returns a function that waits until all parcels are durable, and returns for each the number of its new events. It makes
        all durable or none, and raises SinkError if the store cannot be written; parcels with ids can safely be appended again.
        """

    def expire(self, written_before: float, noted_before: float) -> None:
        """Delete events and ids from before these times, in seconds since the epoch."""

    def stop(self) -> None:
        """Stop waiting for a store that does not answer: appends fail instead."""

    def size(self) -> int:
        """Return the bytes taken on this machine's disk."""

    def close(self) -> None:
        """Release files and connections."""


class LogStore:
    """A store in a stream of the embedded log.

    Args:
        keep_unread: whether events are kept, however old, until a reader is recorded to have passed them.
    """

    def __init__(self, log: StreamLog, *, keep_unread: bool = False) -> None:
        self._log = log
        self.begin = log.begin
        self.expire = partial(log.expire, keep_unread=keep_unread)
        self.size = log.size
        self.close = log.close
        self.latest = log.latest

    def stop(self) -> None:
        """See `Store.stop`; does nothing, as writes to a disk are always awaited."""

    def end(self) -> int:
        """Return the offset of the next event."""
        return self._log.bounds()[1]

    def position(self, text: str) -> int:
        """Parse the offset that a consumer asks for: a number, ``earliest`` or ``latest`` (new events only).

        Raises:
            ConfigurationError: the text is none of these, or a number beyond the end.
            LookupError: the events at the offset have been trimmed.
        """
        oldest, end = self._log.bounds()
        if text in ("earliest", "latest"):
            return oldest if text == "earliest" else end
        if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) <= end):
            raise ConfigurationError(f"offset={text[:40]} is none of earliest, latest and a number up to {end}.")
        if int(text) < oldest:
            raise LookupError(f"The events before offset {oldest} have been trimmed; ask for offset={oldest} or earliest.")
        return int(text)

    def read(self, position: int, limit: int) -> list[Stored]:
        """Read events from a position on, up to a number and some megabytes; empty where there are none yet."""
        records = self._log.read(position, position + limit, BLOCK_BYTES)
        return [Stored(str(record.offset + 1), record.payload) for record in records]
