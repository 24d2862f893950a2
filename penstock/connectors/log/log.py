"""The embedded log: one SQLite file of events per stream. Events are durable once `append` has returned."""

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice, starmap
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

import msgspec

from penstock.connectors.log.arrays import JsonArray, divide
from penstock.connectors.log.request import CONFLICT, Request, RequestVerdict, prefix_of
from penstock.errors import SinkError, SourceError
from penstock.storage import durable

SUFFIX = ".log.sqlite"
VERSION = 5
"""The version of the files' layout; files of another one are refused."""

BLOCK_EVENTS, BLOCK_BYTES = 2_000, 1 << 20
"""Events are stored in blocks of at most so many events and bytes; a larger event has a block by itself."""

PATIENCE_S = 30.0
"""Seconds to wait for another process that is writing to the same stream."""

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS log (
    one INTEGER PRIMARY KEY CHECK (one = 1), start INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0,
    identity TEXT NOT NULL DEFAULT '', owner TEXT, others INTEGER NOT NULL DEFAULT 0
);
INSERT OR IGNORE INTO log (one, identity) VALUES (1, lower(hex(randomblob(16))));
CREATE TABLE IF NOT EXISTS blocks (
    first INTEGER PRIMARY KEY, next INTEGER NOT NULL, written INTEGER NOT NULL, content BLOB NOT NULL
);
CREATE TRIGGER IF NOT EXISTS appended AFTER INSERT ON blocks BEGIN UPDATE log SET next = NEW.next; END;
CREATE TABLE IF NOT EXISTS ids (id TEXT PRIMARY KEY, noted INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS latest (key TEXT PRIMARY KEY, number INTEGER NOT NULL, payload BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS readers (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (origin TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""

KNOWN = "SELECT json_group_array(value) FROM json_each(?) WHERE value IN (SELECT id FROM ids)"
"""Selects those of a JSON list of names that are noted, as a JSON list."""

BEGINNING = (
    "SELECT json_group_array(ids.id) FROM json_each(?) AS wanted CROSS JOIN ids "
    "ON ids.id >= wanted.value AND ids.id < wanted.value || char(1114111)"
)
"""Selects the noted names that begin with one of a JSON list of prefixes, as a JSON list."""


class LogRecord(NamedTuple):
    """An event in the log; ``born`` is its intended send time in microseconds since the epoch."""

    offset: int
    born: int
    payload: bytes


class Parcel(msgspec.Struct):
    """Events to be appended together.

    Args:
        payloads: the events, as JSON; a `JsonArray` is stored undivided if all its events are new.
        born: their intended send times in microseconds since the epoch; the time of writing by default.
        ids: names of the events; an event whose name the stream knows is not appended again.
        request: a client's name for all the events together, in place of ``ids``.
        result_keys: for each event the key by which `StreamLog.latest` finds it.
    """

    payloads: Sequence[bytes]
    born: Sequence[int] | None = None
    ids: Sequence[str] | None = None
    request: Request | None = None
    result_keys: Sequence[str] | None = None

    def judge(self, known: "KnownNames", *, each: bool = False) -> RequestVerdict | None:
        """Return which events are new, and add their names to ``known``; None if the request's name stands for another request.

        Args:
            each: give every event of a request a name of its own.
        """
        if self.request is not None:
            verdict = self.request.judge(self.payloads, known.of_request(self.request.prefix), each=each)
            if verdict is not None:
                known.add(verdict.names)
            return verdict
        every = range(len(self.payloads))
        if self.ids is None:
            return RequestVerdict(every, ())
        rows = []
        for row, name in zip(every, self.ids, strict=True):
            if name not in known.ids:
                rows.append(row)
                known.ids.add(name)
        return RequestVerdict(rows, [self.ids[row] for row in rows])


class KnownNames:
    """The names of events and requests that a stream knows, as far as they matter for some parcels."""

    def __init__(self, names: Iterable[str]) -> None:
        self.ids: set[str] = set()
        self._requests: dict[str, set[str]] = {}
        self.add(names)

    def add(self, names: Iterable[str]) -> None:
        """Add names."""
        for name in names:
            if name.startswith("request "):
                self._requests.setdefault(prefix_of(name), set()).add(name)
            else:
                self.ids.add(name)

    def of_request(self, prefix: str) -> set[str]:
        """Return the names that begin with a request's prefix."""
        return self._requests.get(prefix, set())


class _Block(msgspec.Struct, array_like=True):
    """Events in pieces: a piece of one event is its payload, and one of several is a JSON array."""

    born: list[int]
    pieces: list[bytes]
    sizes: list[int]
    """How many events each piece has; an array has two or more."""

    def payloads(self) -> list[bytes]:
        if len(self.pieces) == len(self.born):  # no arrays
            return self.pieces
        pieces = zip(self.pieces, self.sizes, strict=True)
        return [payload for piece, size in pieces for payload in (divide(piece) if size > 1 else (piece,))]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Block).decode


class StreamLog:
    """One stream of a log: one writer at a time, any number of readers, in any number of processes.

    SQLite in write-ahead mode with full synchronisation: once `append` returns, the events are on
    disk, and a torn write is rolled back when the file is next opened. Threads may share it: its
    methods exclude each other.

    Raises:
        SinkError: the file cannot be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """The file that was opened first, by its number: another one of its name is another log."""
        self._patience = PATIENCE_S
        with self._open("opened"):
            pass

    def append(self, entries: Sequence[Parcel], positions: Mapping[str, int] | None = None) -> list[int]:
        """Append entries, all or none. Returns for each the number of its events that are new, or `CONFLICT`.

        Args:
            positions: for events that are copies, how far each origin has been copied; see `positions`.

        Raises:
            SinkError: the disk is full or read-only; nothing was appended.
        """
        with self._transaction() as connection:
            return self._insert(connection, entries, positions or {})

    def deliver(self, run: str, results: Parcel, origin: str, number: int) -> bool:
        """Append a run's results, unless the position of their origin is at ``number`` already. Returns whether the run owns
        the stream; if not, nothing is appended.
        """
        with self._transaction() as connection:
            if connection.execute("SELECT owner FROM log").fetchone() != (run,):
                return False
            delivered = connection.execute("SELECT number FROM positions WHERE origin = ?", (origin,)).fetchone()
            if delivered is None or delivered[0] < number:
                self._insert(connection, [results], {origin: number}, run)
            return True

    def begin(self, entries: Sequence[Parcel]) -> Callable[[], list[int]]:
        """Begin to append. The returned function, which any thread may call, makes it durable and returns `append`'s result.

        An event loop calls this itself and leaves only the wait for the disk to a thread: a thread that did more would have to
        wait for the interpreter's lock again and again while the loop is busy.
        """
        if self._lock.acquire(blocking=False):
            try:
                connection = self._connected(patience=0.0)
                connection.execute("BEGIN IMMEDIATE")
                counts = self._insert(connection, entries, {})
            except BaseException as error:
                self._forget_connection()
                self._lock.release()
                if not isinstance(error, OSError | sqlite3.Error):
                    raise
            else:
                return partial(self._commit, connection, counts)
        return partial(self.append, entries)  # another writes: all of it is left to the thread, which waits for that

    def _commit(self, connection: sqlite3.Connection, counts: list[int]) -> list[int]:
        try:
            with self._explained("written"):
                connection.execute("COMMIT")
            return counts
        finally:
            self._lock.release()

    def _insert(
        self, connection: sqlite3.Connection, entries: Sequence[Parcel], positions: Mapping[str, int], run: str | None = None
    ) -> list[int]:
        """Append within a transaction. If ``run`` is not the stream's owner, it is noted that others have appended."""
        now = time.time_ns() // 1000
        first, owner, others = connection.execute("SELECT next, owner, others FROM log").fetchone()
        if owner != run and not others:
            connection.execute("UPDATE log SET others = 1")
        known, named = self._known(connection, entries), list[str]()
        pieces: list[bytes] = []
        sizes: list[int] = []
        born: list[int] = []
        counts = []
        for entry in entries:
            verdict = entry.judge(known)
            if verdict is None:
                counts.append(CONFLICT)
                continue
            rows = verdict.rows
            named.extend(verdict.names)
            whole = len(rows) == len(entry.payloads)
            # An array whose events are all new is stored undivided: it is divided only when it is read.
            if whole and isinstance(entry.payloads, JsonArray) and _is_piece(entry.payloads):
                pieces.append(entry.payloads.text)
                sizes.append(len(rows))
            else:
                pieces.extend(entry.payloads if whole else [entry.payloads[row] for row in rows])
                sizes.extend([1] * len(rows))
            born.extend([now] * len(rows) if entry.born is None else [entry.born[row] for row in rows])
            if entry.result_keys is not None:
                keys, start = entry.result_keys, first + len(born) - len(rows)
                self._note_latest([(keys[row], start + n, entry.payloads[row]) for n, row in enumerate(rows)])
            counts.append(len(rows))
        if named:
            self._note_names(named, now)
        for inside, low, high in _blocks(pieces, sizes):
            content = _encode(_Block(born[low:high], pieces[inside], sizes[inside]))
            connection.execute("INSERT INTO blocks VALUES (?, ?, ?, ?)", (first + low, first + high, now, content))
        self._note_positions(positions)
        return counts

    def known(self, parcels: Sequence[Parcel]) -> KnownNames:
        """Return the names that the stream knows, as far as they matter for some parcels."""
        with self._open("read") as connection:
            return self._known(connection, parcels)

    def _known(self, connection: sqlite3.Connection, parcels: Sequence[Parcel]) -> KnownNames:
        ids = [name for parcel in parcels for name in parcel.ids or ()]
        prefixes = [parcel.request.prefix for parcel in parcels if parcel.request is not None]
        if not ids and not prefixes:
            return KnownNames(())
        lists = connection.execute(f"SELECT ({KNOWN}), ({BEGINNING})", (_json(ids), _json(prefixes))).fetchone()
        return KnownNames(name for names in lists for name in msgspec.json.decode(names))

    def note_ids(self, ids: Iterable[str], positions: Mapping[str, int]) -> None:
        """Note the ids of events that are stored elsewhere, and up to which positions of their origins they have been noted."""
        now = time.time_ns() // 1000
        with self._transaction():
            self._note_names(ids, now)
            self._note_positions(positions)

    def positions(self) -> dict[str, int]:
        """Return by origin (a Kafka partition, or a run's group) the number up to which it was copied or its ids noted."""
        with self._open("read") as connection:
            return dict(connection.execute("SELECT origin, number FROM positions").fetchall())

    def bounds(self) -> tuple[int, int]:
        """Return the offset of the oldest event kept, and the offset that the next event will get."""
        with self._open("read") as connection:
            start, end = connection.execute("SELECT start, next FROM log").fetchone()
        return int(start), int(end)

    def read(self, start: int, end: int, most: int | None = None) -> list[LogRecord]:
        """Return the events with offsets in [start, end).

        Args:
            most: if given, stop after the block with which the blocks' size reaches so many bytes.

        Raises:
            SourceError: some of them have been trimmed.
        """
        with self._open("read") as connection:
            (oldest,) = connection.execute("SELECT start FROM log").fetchone()
            if start < min(end, oldest):
                raise SourceError(
                    f"Events {start} to {oldest} of {_stream(self.path)} have been trimmed from {self.path.parent}."
                )
            blocks = connection.execute(
                "SELECT first, content FROM blocks WHERE first < ? AND next > ? ORDER BY first", (end, start)
            )
            records: list[LogRecord] = []
            size = 0
            for first, content in blocks:
                block = _decode(content)
                offsets = range(first, first + len(block.born))
                every = zip(offsets, block.born, block.payloads(), strict=True)
                records.extend(starmap(LogRecord, islice(every, max(0, start - first), end - first)))
                size += len(content)
                if most is not None and size >= most:
                    break
            blocks.close()
        return records

    def latest(self, key: str) -> LogRecord | None:
        """Return the last event of a key, with 0 as its birth, which is not kept; None if there is none."""
        with self._open("read") as connection:
            row = connection.execute("SELECT number, 0, payload FROM latest WHERE key = ?", (key,)).fetchone()
        return LogRecord(*row) if row else None

    def note_reader(self, name: str, before: int) -> None:
        """Note that a reader is done with the events below an offset; `trim` waits for the slowest reader."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO readers VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET number = excluded.number", (name, before)
            )

    def owner(self) -> str | None:
        """Return the run that owns the stream, so that its results are in it; None if no run does."""
        with self._open("read") as connection:
            (owner,) = connection.execute("SELECT owner FROM log").fetchone()
        return None if owner is None else str(owner)

    def mixed(self) -> bool:
        """Whether others than the owning run have appended to the stream; False if no run owns it."""
        with self._open("read") as connection:
            return bool(connection.execute("SELECT owner IS NOT NULL AND others FROM log").fetchone()[0])

    def identity(self) -> str:
        """Return a random text that tells this stream from another that is put in its place."""
        with self._open("read") as connection:
            return str(connection.execute("SELECT identity FROM log").fetchone()[0])

    def own(self, run: str, discarded: Collection[str] = ()) -> bool:
        """Make a run the stream's owner; returns whether it is.

        It is refused if another run owns the stream, or if it has events and no owner. A discarded run is replaced: its events
        are removed and offsets go on, but it is refused if others have appended, too.
        """
        with self._transaction() as connection:
            owner, others, end = connection.execute("SELECT owner, others, next FROM log").fetchone()
            if owner == run:
                return True
            clear = owner in discarded
            if (clear and others) or (not clear and (owner is not None or end)):
                return False
            if clear:
                connection.execute("UPDATE log SET start = next")
                for table in ("blocks", "ids", "latest", "positions"):
                    connection.execute(f"DELETE FROM {table}")
            connection.execute("UPDATE log SET owner = ?, others = 0", (run,))
            return True

    def trim(self, before: int, *, keep_unread: bool = False) -> None:
        """Remove the events with offsets below ``before``, except those that a noted reader has yet to pass.

        Args:
            keep_unread: whether to remove nothing as long as no reader has been noted.
        """
        with self._transaction() as connection:
            (slowest,) = connection.execute("SELECT min(number) FROM readers").fetchone()
            if slowest is None and keep_unread:
                return
            before = before if slowest is None else min(before, slowest)
            connection.execute("UPDATE log SET start = max(start, min(?, next))", (before,))
            connection.execute("DELETE FROM blocks WHERE next <= (SELECT start FROM log)")

    def expire(self, written_before: float, noted_before: float, *, keep_unread: bool = False) -> None:
        """Trim the events written before a time, and remove names noted before another (both in seconds since the epoch)."""
        with self._open("read") as connection:
            (expired_end,) = connection.execute(
                "SELECT max(next) FROM blocks WHERE written < ?", (_micros(written_before),)
            ).fetchone()
        if expired_end is not None:
            self.trim(expired_end, keep_unread=keep_unread)
        with self._transaction() as connection:
            connection.execute("DELETE FROM ids WHERE noted < ?", (_micros(noted_before),))

    def size(self) -> int:
        """Return the size of the stream's files in bytes."""
        files = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._forget_connection()

    def _note_names(self, names: Iterable[str], now: int) -> None:
        assert self._connection is not None
        self._connection.execute("INSERT OR IGNORE INTO ids SELECT value, ? FROM json_each(?)", (now, _json(names)))

    def _note_positions(self, positions: Mapping[str, int]) -> None:
        assert self._connection is not None
        self._connection.executemany(
            "INSERT INTO positions VALUES (?, ?) ON CONFLICT (origin) DO UPDATE SET number = max(number, excluded.number)",
            list(positions.items()),
        )

    def _note_latest(self, rows: list[tuple[str, int, bytes]]) -> None:
        assert self._connection is not None
        self._connection.executemany(
            "INSERT INTO latest VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE "
            "SET number = excluded.number, payload = excluded.payload",
            rows,
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._open("written") as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _open(self, what: str) -> Iterator[sqlite3.Connection]:
        """Provide the connection to one thread at a time. ``what`` completes the message "cannot be ..." of an error."""
        with self._lock, self._explained(what):
            yield self._connected()

    def _connected(self, patience: float = PATIENCE_S) -> sqlite3.Connection:
        """Return the connection, set to wait so many seconds while another process writes."""
        if self._file is not None and self._file != _number_of(self.path):
            raise SinkError(
                f"The log of stream {_stream(self.path)} was removed from {self.path.parent}, or replaced while it was in use, "
                "so nothing more is taken: put the file back, or stop what has it open, and start it again."
            )
        if self._connection is None:
            self._connection, self._patience = _connect(self.path), PATIENCE_S
            self._file = _number_of(self.path)
        if patience != self._patience:
            self._connection.execute(f"PRAGMA busy_timeout = {round(patience * 1000)}")
            self._patience = patience
        return self._connection

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Within the block, turn errors into `SinkError`. The connection, which may not recover, is closed and opened anew."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            self._forget_connection()
            if isinstance(error, SourceError | SinkError):
                raise
            busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            mend = (
                "end the program that has it open in a transaction, which may be one that is paused"
                if busy
                else "free space on the disk, or mend the directory's permissions"
            )
            raise SinkError(
                f"The log of stream {_stream(self.path)} in {self.path.parent} cannot be {what}: {error}; {mend}."
            ) from error

    def _forget_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class EventLog:
    """A directory of streams on one machine's disk.

    >>> from tempfile import mkdtemp
    >>> log = EventLog(mkdtemp())
    >>> log.append("Words", [b'{"text": "a"}', b'{"text": "b"}'])
    2
    >>> [record.payload for record in log.read("Words", 1, 2)]
    [b'{"text": "b"}']

    Raises:
        SourceError: the log does not exist, and ``create`` is False.
        SinkError: the directory cannot be made.
    """

    def __init__(self, directory: str | Path, *, create: bool = True) -> None:
        self.directory = Path(directory)
        self._create = create
        self._streams: dict[str, StreamLog] = {}
        if not create and not self.directory.is_dir():
            raise SourceError(f"{directory} holds no event log; append to it first, or check the path.")
        try:
            durable.make(self.directory, 0o700)  # private to its owner, unless it exists with another mode
        except OSError as error:
            raise SinkError(
                f"The event log in {directory} cannot be opened ({error.strerror}): choose another directory."
            ) from error

    def streams(self) -> list[str]:
        """Return the names of the streams that have a file, sorted; a stream may have a file and no events."""
        return sorted(map(_stream, self.directory.glob(f"*{SUFFIX}")))

    def stream(self, name: str) -> StreamLog:
        """Return a stream; it is made if it does not exist and ``create`` is True.

        Raises:
            SourceError: it does not exist, and ``create`` is False.
        """
        if name not in self._streams:
            path = self.directory / f"{quote(name, safe='')}{SUFFIX}"
            if not self._create and not path.exists():
                raise SourceError(
                    f"The event log in {self.directory} has no stream {name} (it has {', '.join(self.streams()) or 'none'}); "
                    "append to it first, or check the path."
                )
            self._streams[name] = StreamLog(path)
        return self._streams[name]

    def append(
        self, stream: str, payloads: Sequence[bytes], *, born: Sequence[int] | None = None, ids: Sequence[str] | None = None
    ) -> int:
        """Append events, all or none; returns how many of them are new. See `Parcel` and `StreamLog.append`."""
        return self.stream(stream).append([Parcel(payloads, born, ids)])[0]

    def start(self, stream: str) -> int:
        """Return the offset of the oldest event kept."""
        return self.stream(stream).bounds()[0]

    def end(self, stream: str) -> int:
        """Return the offset that the next event will get."""
        return self.stream(stream).bounds()[1]

    def read(self, stream: str, start: int, end: int) -> list[LogRecord]:
        """Return the events with offsets in [start, end); see `StreamLog.read`."""
        return self.stream(stream).read(start, end)

    def trim(self, stream: str, before: int) -> None:
        """Remove the events below an offset that every noted reader has passed; see `StreamLog.trim`."""
        self.stream(stream).trim(before)

    def close(self) -> None:
        """Close all files."""
        for stream in self._streams.values():
            stream.close()


def _connect(path: Path) -> sqlite3.Connection:
    if not path.exists():
        durable.private(path, "ab").close()  # SQLite gives its mode to the files beside it
        durable.sync_names(path.parent)
    connection = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, VERSION):
        connection.close()
        raise SinkError(
            f"{path} has layout {version} of the event log, and this Penstock reads layout {VERSION}; let the version of "
            "Penstock that wrote it process its events, then choose another directory."
        )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    try:
        if version == 0:
            connection.executescript(SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def _micros(moment: float) -> int:
    """Return a time in microseconds since the epoch; before that, nothing was written."""
    return round(max(0.0, moment) * 1e6)


def _number_of(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from all others, under whatever name; None if there is no such file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _json(names: Iterable[str]) -> str:
    return msgspec.json.encode(list(names)).decode()


def _stream(path: Path) -> str:
    return unquote(path.name.removesuffix(SUFFIX))


def _is_piece(array: JsonArray) -> bool:
    """Whether an array may be stored undivided, as one piece of a block."""
    return 1 < len(array) <= BLOCK_EVENTS and len(array.text) <= BLOCK_BYTES


def _blocks(pieces: Sequence[bytes], sizes: Sequence[int]) -> Iterator[tuple[slice, int, int]]:
    """Divide pieces into blocks. Yields for each the slice of its pieces, and the first and the end index of its events."""
    events = sum(sizes)
    if 0 < events <= BLOCK_EVENTS and sum(map(len, pieces)) <= BLOCK_BYTES:  # one block; the loop takes five times as long
        yield slice(None), 0, events
        return
    first_piece = first_event = next_event = block_bytes = 0
    for number, (piece, size) in enumerate(zip(pieces, sizes, strict=True)):
        if number > first_piece and (next_event + size - first_event > BLOCK_EVENTS or block_bytes + len(piece) > BLOCK_BYTES):
            yield slice(first_piece, number), first_event, next_event
            first_piece, first_event, block_bytes = number, next_event, 0
        next_event += size
        block_bytes += len(piece)
    if pieces:
        yield slice(first_piece, None), first_event, next_event
