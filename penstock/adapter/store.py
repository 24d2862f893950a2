"""Stores: where the events of a stream are kept, as the adapter sees it."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from penstock.connectors.log.log import BLOCK_BYTES, Parcel, StreamLog
from penstock.errors import ConfigurationError


class Stored(NamedTuple):
    """An event as a consumer gets it; reading on from ``next`` gets the one after it."""

    next: str
    payload: bytes


class Store(Protocol):
    """What is written to by one thread at a time, and read by any."""

    def begin(self, parcels: Sequence[Parcel]) -> Callable[[], list[int]]:
        """Begin to append, without waiting for anything.

        Returns what makes the parcels durable, all or none, and returns for each how many of its
        events are new. It waits, and raises SinkError if the store cannot be written; with parcels
        that carry ids, trying again does no harm.
        """

    def expire(self, written_before: float, noted_before: float) -> None:
        """Forget old events, and older ids (seconds since the epoch)."""

    def stop(self) -> None:
        """No longer wait for what does not answer: appends fail instead."""

    def size(self) -> int:
        """Bytes that it takes on this machine's disk."""

    def close(self) -> None:
        """Release files and connections."""


class LogStore:
    """A stream of the embedded log.

    Parameters
    ----------
    keep_unread: whether events are kept, however old, until some reader has been noted to have passed them.
    """

    def __init__(self, log: StreamLog, *, keep_unread: bool = False) -> None:
        self._log = log
        self.begin = log.begin
        self.expire = partial(log.expire, keep_unread=keep_unread)
        self.size = log.size
        self.close = log.close
        self.latest = log.latest

    def stop(self) -> None:
        """See `Store`; a disk is always waited for."""

    def end(self) -> int:
        """The offset of what comes next."""
        return self._log.bounds()[1]

    def position(self, text: str) -> int:
        """The offset that a consumer asks for: a number, ``earliest`` or ``latest`` (what comes from now on).

        Raises
        ------
        ConfigurationError: it is none of these, or beyond the end.
        LookupError: the events there have been trimmed.
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
        """Events from a position on, at most so many, or some megabytes; none where there are none yet."""
        records = self._log.read(position, position + limit, BLOCK_BYTES)
        return [Stored(str(record.offset + 1), record.payload) for record in records]
