"""The embedded log: for each stream one SQLite file of events, durable when `append` returns."""

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
from penstock.connectors.log.request import CONFLICT, Request, Verdict, prefix_of
from penstock.errors import SinkError, SourceError
from penstock.storage import durable

SUFFIX = ".log.sqlite"
VERSION = 5
"""Of the files' layout; files of layout 4 are brought to it when they are opened."""

BLOCK_EVENTS, BLOCK_BYTES = 2_000, 1 << 20
"""Events lie in blocks of at most so many events and bytes; one that is larger lies in a block by itself."""

PATIENCE_S = 30.0
"""How long to wait for another process that is writing to the same stream."""

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

FROM_LAYOUT_4 = (
    "ALTER TABLE log ADD COLUMN others INTEGER NOT NULL DEFAULT 0",
    "UPDATE log SET others = owner IS NOT NULL",  # nobody knows
    f"PRAGMA user_version = {VERSION}",
)

KNOWN = "SELECT json_group_array(value) FROM json_each(?) WHERE value IN (SELECT id FROM ids)"
"""Those of a list of names that are noted, as a list."""


BEGINNING = (
    "SELECT json_group_array(ids.id) FROM json_each(?) AS wanted CROSS JOIN ids "
    "ON ids.id >= wanted.value AND ids.id < wanted.value || char(1114111)"
)
"""The names that are noted under some prefixes, as a list."""


class LogRecord(NamedTuple):
    """An event in the log; ``born`` is its intended send time in microseconds since the epoch."""

    offset: int
    born: int
    payload: bytes


class Parcel(msgspec.Struct):
    """Events to be appended together.

    Parameters
    ----------
    payloads: the events, as JSON; a `JsonArray` is kept as it is, if all of it is new.
    born: their intended send times in microseconds since the epoch; the time of writing, unless given.
    ids: names of the events; one whose name the stream knows is not appended again.
    request: the name that a client has given to them together, in place of ``ids``.
    result_keys: for each event the key under which `latest` is to find it.
    """

    payloads: Sequence[bytes]
    born: Sequence[int] | None = None
    ids: Sequence[str] | None = None
    request: Request | None = None
    result_keys: Sequence[str] | None = None

    def judge(self, known: "KnownNames", *, each: bool = False) -> Verdict | None:
        """What of it is new; None, if its request's name stands for another. Its names are known from then on.

        Parameters
        ----------
        each: note every event of a request by itself.
        """
        if self.request is not None:
            verdict = self.request.judge(self.payloads, known.of_request(self.request.prefix), each=each)
            if verdict is not None:
                known.add(verdict.names)
            return verdict
        every = range(len(self.payloads))
        if self.ids is None:
            return Verdict(every, ())
        rows = []
        for row, name in zip(every, self.ids, strict=True):
            if name not in known.ids:
                rows.append(row)
                known.ids.add(name)
        return Verdict(rows, [self.ids[row] for row in rows])


class KnownNames:
    """The names that a stream knows, of those that some parcels may go by."""

    def __init__(self, names: Iterable[str]) -> None:
        self.ids: set[str] = set()
        self._requests: dict[str, set[str]] = {}
        self.add(names)

    def add(self, names: Iterable[str]) -> None:
        """Know some more."""
        for name in names:
            if name.startswith("request "):
                self._requests.setdefault(prefix_of(name), set()).add(name)
            else:
                self.ids.add(name)

    def of_request(self, prefix: str) -> set[str]:
        """What is noted under a request's prefix."""
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

    It is SQLite in write-ahead mode with full synchronisation: what `append` has returned for is on
    disk, and a torn write is rolled back when the file is opened next. A thread has it to itself
    while it calls one of its methods.

    Raises
    ------
    SinkError: it cannot be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._patience = PATIENCE_S
        with self._open("opened"):
            pass

    def append(self, entries: Sequence[Parcel], positions: Mapping[str, int] | None = None) -> list[int]:
        """Append entries, all or none; returns for each how many of its events are new.

        Parameters
        ----------
        positions: how far the origins have been copied from, where the events are a copy; see `positions`.

        Raises
        ------
        SinkError: the disk is full or read-only; nothing was appended.
        """
        with self._transaction() as connection:
            return self._insert(connection, entries, positions or {})

    def deliver(self, run: str, results: Parcel, origin: str, number: int) -> bool:
        """Append a run's results, unless their origin has been copied up to a number; returns whether the stream is the
        run's.
        """
        with self._transaction() as connection:
            if connection.execute("SELECT owner FROM log").fetchone() != (run,):
                return False
            held = connection.execute("SELECT number FROM positions WHERE origin = ?", (origin,)).fetchone()
            if held is None or held[0] < number:
                self._insert(connection, [results], {origin: number}, run)
            return True

    def begin(self, entries: Sequence[Parcel]) -> Callable[[], list[int]]:
        """Begin to append; what is returned makes it durable, in any one thread, and returns what `append` does.

        Two steps, because a thread that needs the interpreter for more than the last statement, the
        one that waits for the disk, has to wait for it again and again while an event loop is busy.
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
        return partial(self.append, entries)  # and so with patience

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
        """Append within a transaction; who is not the run that a stream belongs to is noted."""
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
        """The names that the stream knows, of those that some parcels may go by."""
        with self._open("read") as connection:
            return self._known(connection, parcels)

    def _known(self, connection: sqlite3.Connection, parcels: Sequence[Parcel]) -> KnownNames:
        ids = [name for parcel in parcels for name in parcel.ids or ()]
        prefixes = [parcel.request.prefix for parcel in parcels if parcel.request is not None]
        if not ids and not prefixes:
            return KnownNames(())
        told = connection.execute(f"SELECT ({KNOWN}), ({BEGINNING})", (_json(ids), _json(prefixes))).fetchone()
        return KnownNames(name for names in told for name in msgspec.json.decode(names))

    def note_ids(self, ids: Iterable[str], positions: Mapping[str, int]) -> None:
        """Know ids of events that are kept elsewhere, in the order of their origins up to some positions."""
        now = time.time_ns() // 1000
        with self._transaction():
            self._note_names(ids, now)
            self._note_positions(positions)

    def positions(self) -> dict[str, int]:
        """How far each origin has been copied, or its ids been noted."""
        with self._open("read") as connection:
            return dict(connection.execute("SELECT origin, number FROM positions").fetchall())

    def bounds(self) -> tuple[int, int]:
        """The offset of the oldest event kept, and the one that the next event will get."""
        with self._open("read") as connection:
            start, end = connection.execute("SELECT start, next FROM log").fetchone()
        return int(start), int(end)

    def read(self, start: int, end: int, most: int | None = None) -> list[LogRecord]:
        """The events with offsets in [start, end).

        Parameters
        ----------
        most: bytes, after which a block is the last that is read.

        Raises
        ------
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
        """The last event of a key; its birth is not kept."""
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
        """The run whose results the stream holds, if they are some run's."""
        with self._open("read") as connection:
            (owner,) = connection.execute("SELECT owner FROM log").fetchone()
        return None if owner is None else str(owner)

    def mixed(self) -> bool:
        """Whether others than the run have appended to its stream."""
        with self._open("read") as connection:
            return bool(connection.execute("SELECT owner IS NOT NULL AND others FROM log").fetchone()[0])

    def identity(self) -> str:
        """What tells this stream from any other that may come to lie in its place."""
        with self._open("read") as connection:
            return str(connection.execute("SELECT identity FROM log").fetchone()[0])

    def own(self, run: str, discarded: Collection[str] = ()) -> bool:
        """Make the stream a run's; returns whether it is that now.

        Events of a discarded run are forgotten, and offsets go on; where others have appended, too, nothing is done.
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
        """Forget the events with offsets below one, but for those that a noted reader has yet to pass.

        Parameters
        ----------
        keep_unread: whether to forget nothing as long as no reader has been noted.
        """
        with self._transaction() as connection:
            (slowest,) = connection.execute("SELECT min(number) FROM readers").fetchone()
            if slowest is None and keep_unread:
                return
            before = before if slowest is None else min(before, slowest)
            connection.execute("UPDATE log SET start = max(start, min(?, next))", (before,))
            connection.execute("DELETE FROM blocks WHERE next <= (SELECT start FROM log)")

    def expire(self, written_before: float, noted_before: float, *, keep_unread: bool = False) -> None:
        """Trim the events that were written before a time, and forget the names noted before another (seconds)."""
        with self._open("read") as connection:
            (kept,) = connection.execute(
                "SELECT max(next) FROM blocks WHERE written < ?", (round(written_before * 1e6),)
            ).fetchone()
        if kept is not None:
            self.trim(kept, keep_unread=keep_unread)
        with self._transaction() as connection:
            connection.execute("DELETE FROM ids WHERE noted < ?", (round(noted_before * 1e6),))

    def size(self) -> int:
        """Bytes on disk."""
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
        """The connection, for this thread alone."""
        with self._lock, self._explained(what):
            yield self._connected()

    def _connected(self, patience: float = PATIENCE_S) -> sqlite3.Connection:
        """The connection, that waits for so long while another process writes."""
        if self._connection is None:
            self._connection, self._patience = _connect(self.path), PATIENCE_S
        if patience != self._patience:
            self._connection.execute(f"PRAGMA busy_timeout = {round(patience * 1000)}")
            self._patience = patience
        return self._connection

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Within the block, failures are ours; the connection is made anew after one, of which it may not recover."""
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
    """A directory of streams, for one machine.

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
        self.directory = Path(directory)
        self._create = create
        self._streams: dict[str, StreamLog] = {}
        if not create and not self.directory.is_dir():
            raise SourceError(f"{directory} holds no event log; append to it first, or check the path.")
        try:
            durable.make(self.directory, 0o700)  # for its owner alone, unless it was made otherwise
        except OSError as error:
            raise SinkError(f"The event log in {directory} cannot be opened: {error.strerror}.") from error

    def streams(self) -> list[str]:
        """The streams that something has been appended to, or that have been opened for it."""
        return sorted(map(_stream, self.directory.glob(f"*{SUFFIX}")))

    def stream(self, name: str) -> StreamLog:
        """One stream; made, if it is not there and the log may be created.

        Raises
        ------
        SourceError: it is not there, and is not to be made.
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
        """Append events, all or none; returns how many are new. See `Parcel` and `StreamLog.append`."""
        return self.stream(stream).append([Parcel(payloads, born, ids)])[0]

    def start(self, stream: str) -> int:
        """The offset of the oldest event kept."""
        return self.stream(stream).bounds()[0]

    def end(self, stream: str) -> int:
        """The offset that the next event will get."""
        return self.stream(stream).bounds()[1]

    def read(self, stream: str, start: int, end: int) -> list[LogRecord]:
        """The events with offsets in [start, end); see `StreamLog.read`."""
        return self.stream(stream).read(start, end)

    def trim(self, stream: str, before: int) -> None:
        """Forget the events below an offset that every noted reader has passed."""
        self.stream(stream).trim(before)

    def close(self) -> None:
        """Close all files."""
        for stream in self._streams.values():
            stream.close()


def _connect(path: Path) -> sqlite3.Connection:
    if not path.exists():
        durable.private(path, "ab").close()  # of whose mode SQLite makes the files beside it
        durable.sync_names(path.parent)
    connection = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, 4, VERSION):
        connection.close()
        raise SinkError(
            f"{path} has layout {version} of the event log, and this Penstock reads layout {VERSION}; let the Penstock that "
            "wrote it process what it holds, then choose another directory."
        )
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    try:
        if version == 0:
            connection.executescript(SCHEMA)
        elif version != VERSION:
            _renew(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _renew(connection: sqlite3.Connection) -> None:
    """Bring a file of layout 4 to ours, unless another process has done so meanwhile."""
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("PRAGMA user_version").fetchone() == (4,):
        for statement in FROM_LAYOUT_4:
            connection.execute(statement)
    connection.execute("COMMIT")


def _json(names: Iterable[str]) -> str:
    return msgspec.json.encode(list(names)).decode()


def _stream(path: Path) -> str:
    return unquote(path.name.removesuffix(SUFFIX))


def _is_piece(array: JsonArray) -> bool:
    """Whether it may lie in a block undivided."""
    return 1 < len(array) <= BLOCK_EVENTS and len(array.text) <= BLOCK_BYTES


def _blocks(pieces: Sequence[bytes], sizes: Sequence[int]) -> Iterator[tuple[slice, int, int]]:
    """How to divide pieces into blocks: which pieces, and from which event to which."""
    events = sum(sizes)
    if 0 < events <= BLOCK_EVENTS and sum(map(len, pieces)) <= BLOCK_BYTES:  # the loop takes five times as long
        yield slice(None), 0, events
        return
    first_piece = first_event = next_event = held = 0
    for here, (piece, size) in enumerate(zip(pieces, sizes, strict=True)):
        if here > first_piece and (next_event + size - first_event > BLOCK_EVENTS or held + len(piece) > BLOCK_BYTES):
            yield slice(first_piece, here), first_event, next_event
            first_piece, first_event, held = here, next_event, 0
        next_event += size
        held += len(piece)
    if pieces:
        yield slice(first_piece, None), first_event, next_event
