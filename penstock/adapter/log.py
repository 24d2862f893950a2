"""The embedded log: named sequences of events in one SQLite file, durable when `append` returns."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from penstock.errors import SinkError, SourceError

FILE = "log.sqlite"
SCHEMA = """
CREATE TABLE IF NOT EXISTS streams (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE NOT NULL, start INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS events (
    stream INTEGER NOT NULL, offset INTEGER NOT NULL, born INTEGER NOT NULL, payload BLOB NOT NULL,
    PRIMARY KEY (stream, offset)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ids (stream INTEGER NOT NULL, id TEXT NOT NULL, PRIMARY KEY (stream, id)) WITHOUT ROWID;
"""


class LogRecord(NamedTuple):
    """An event in the log; ``born`` is its intended send time in microseconds since the epoch."""

    offset: int
    born: int
    payload: bytes


class EventLog:
    """A log in a directory, for one machine: one writer at a time, any number of readers.

    It is SQLite in write-ahead mode with full synchronisation: what `append` has returned for is on
    disk, and a torn write is rolled back when the log is opened next.

    >>> from tempfile import mkdtemp
    >>> log = EventLog(mkdtemp())
    >>> log.append("Words", [b'{"text": "a"}', b'{"text": "b"}'])
    2
    >>> [record.payload for record in log.read("Words", 1, 2)]
    [b'{"text": "b"}']

    Raises
    ------
    SourceError: the log does not exist, and is not to be created.
    SinkError: it cannot be written.
    """

    def __init__(self, directory: str | Path, *, create: bool = True) -> None:
        self.path = Path(directory) / FILE
        if not create and not self.path.exists():
            raise SourceError(f"{directory} holds no event log ({FILE}); append to it first, or check the path.")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.executescript(SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise SinkError(f"The event log in {directory} cannot be opened: {error}.") from error

    def append(
        self,
        stream: str,
        payloads: Sequence[bytes],
        *,
        born: Sequence[int] | None = None,
        ids: Sequence[str] | None = None,
    ) -> int:
        """Append events, all or none; returns how many are new.

        Parameters
        ----------
        born: intended send times in microseconds since the epoch; now, unless given.
        ids: names of the events; one whose name the stream has seen is not appended again.

        Raises
        ------
        SinkError: the disk is full or read-only; nothing was appended.
        """
        births = born if born is not None else [time.time_ns() // 1000] * len(payloads)
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            try:
                execute("INSERT OR IGNORE INTO streams (name) VALUES (?)", (stream,))
                number, offset = execute("SELECT id, next FROM streams WHERE name = ?", (stream,)).fetchone()
                rows = list(zip(births, payloads, strict=True))
                if ids is not None:
                    rows = [row for row, name in zip(rows, ids, strict=True) if self._is_new(number, name)]
                self._connection.executemany(
                    "INSERT INTO events VALUES (?, ?, ?, ?)",
                    ((number, offset + index, *row) for index, row in enumerate(rows)),
                )
                execute("UPDATE streams SET next = next + ? WHERE id = ?", (len(rows), number))
                execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise SinkError(f"The event log in {self.path.parent} cannot be written: {error}.") from error
        return len(rows)

    def end(self, stream: str) -> int:
        """The offset that the next event will get."""
        row = self._connection.execute("SELECT next FROM streams WHERE name = ?", (stream,)).fetchone()
        return int(row[0]) if row else 0

    def start(self, stream: str) -> int:
        """The offset of the oldest event kept."""
        row = self._connection.execute("SELECT start FROM streams WHERE name = ?", (stream,)).fetchone()
        return int(row[0]) if row else 0

    def read(self, stream: str, start: int, end: int) -> Iterator[LogRecord]:
        """The events with offsets in [start, end).

        Raises
        ------
        SourceError: some of them have been trimmed.
        """
        if start < min(end, self.start(stream)):
            raise SourceError(
                f"Events {start} to {self.start(stream)} of {stream} have been trimmed from {self.path.parent}."
            )
        rows = self._connection.execute(
            "SELECT offset, born, payload FROM events JOIN streams ON stream = id "
            "WHERE name = ? AND offset >= ? AND offset < ? ORDER BY offset",
            (stream, start, end),
        )
        return map(LogRecord._make, rows)

    def trim(self, stream: str, before: int) -> None:
        """Forget the events with offsets below one that every reader has passed."""
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        execute("UPDATE streams SET start = max(start, min(?, next)) WHERE name = ?", (before, stream))
        execute(
            "DELETE FROM events WHERE stream = (SELECT id FROM streams WHERE name = ?) AND offset < ?", (stream, before)
        )
        execute("COMMIT")

    def close(self) -> None:
        """Close the log."""
        self._connection.close()

    def _is_new(self, stream: int, name: str) -> bool:
        return self._connection.execute("INSERT OR IGNORE INTO ids VALUES (?, ?)", (stream, name)).rowcount == 1
