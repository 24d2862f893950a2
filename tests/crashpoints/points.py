"""Crash points: each operation by which a process touches the world, numbered in the order in which it comes.

`watch` puts itself between the process and the operations of files (create, write, sync, rename, link, unlink, ...), of SQLite
and PostgreSQL (statements and commits), of Kafka (messages, and each call of a transaction), of Delta tables (commits), of S3
and HDFS (requests). Before each of them, and after the last, the process may be killed, paused, or the power may fail.
"""

import builtins
import io
import os
import re
import signal
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import requests
import s3fs
from crashpoints.power import Power
from deltalake.table import TableAlterer, TableMerger

from penstock.connectors.kafka import courier, topic
from penstock.connectors.tables import delta, iceberg  # noqa: F401 - what is imported before a process forks need not be after it

KILL, TORN, POWER, PAUSE = "kill", "torn", "power", "pause"
HOWS = (KILL, TORN, POWER, PAUSE)
"""What befalls the process: it is killed before the operation; in the middle of what it writes; the power fails, so that what
was not synced may be lost; or it is paused, and another goes on in its place before it wakes."""

RANDOM_NAMES = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16}")


class Points:
    """The points of one process.

    Args:
        world: only what lies below it counts.
        at: the number of the point at which something befalls the process, None for none.
        power: what a failure of it would take.
    """

    def __init__(self, world: Path, power: Power, at: int | None = None, how: str = KILL) -> None:
        self._world, self.power, self._at, self._how = os.fspath(world) + os.sep, power, at, how
        self.names: list[str] = []

    def has(self, path: Any) -> bool:
        """Whether a file counts."""
        with suppress(TypeError):
            return (os.path.abspath(os.fsdecode(path)) + os.sep).startswith(self._world)
        return False

    def name(self, kind: str, path: Any = "") -> str:
        """A point's name, the same in each process: without what is random in names of files."""
        where = os.path.abspath(os.fsdecode(path)).removeprefix(self._world) if path else ""
        return f"{kind} {RANDOM_NAMES.sub('*', where)}".strip()

    def come(self, name: str, torn: Callable[[], object] | None = None) -> None:
        """Before an operation.

        Args:
            torn: does half of it.
        """
        self.names.append(name)
        if len(self.names) - 1 != self._at:
            return
        if self._how == PAUSE:
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        if self._how == POWER:
            self.power.fail()
        elif self._how == TORN and torn is not None:
            torn()
        os.kill(os.getpid(), signal.SIGKILL)


def watch(points: Points) -> None:
    """Number this process's operations from now on, for good."""
    _watch_files(points)
    _watch_sqlite(points)
    _watch_postgresql(points)
    _watch_delta(points)
    _watch_kafka(points)
    _watch_s3(points)
    _watch_hdfs(points)


# --- files ----------------------------------------------------------------------------------------------

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _watch_files(points: Points) -> None:
    for name in ("mkdir", "rmdir", "unlink", "remove", "truncate"):
        setattr(os, name, _of_one(points, name, getattr(os, name)))
    for name in ("rename", "replace", "link"):
        setattr(os, name, _of_two(points, name, getattr(os, name)))
    _watch_open(points)
    sync = os.fsync

    def fsync(file: Any) -> None:
        number = file if isinstance(file, int) else file.fileno()
        place = os.readlink(f"/proc/self/fd/{number}")
        if points.has(place):
            points.come(points.name("sync", place))
            points.power.synced(place)
        sync(file)

    os.fsync = fsync


def _of_one(points: Points, kind: str, do: Callable[..., Any]) -> Callable[..., Any]:
    def done(path: Any, *rest: Any, **more: Any) -> Any:
        if more.get("dir_fd") is not None:
            path_there = os.path.join(os.readlink(f"/proc/self/fd/{more['dir_fd']}"), os.fsdecode(path))
        else:
            path_there = path
        if not points.has(path_there) or os.path.lexists(path_there) == (kind == "mkdir"):  # else it changes nothing
            return do(path, *rest, **more)
        points.come(points.name(kind, path_there))
        with points.power.changing(kind, os.path.abspath(os.fsdecode(path_there))):
            return do(path, *rest, **more)

    return done


def _of_two(points: Points, kind: str, do: Callable[..., Any]) -> Callable[..., Any]:
    def done(path: Any, to: Any, *rest: Any, **more: Any) -> Any:
        if not points.has(to) or not os.path.lexists(path):
            return do(path, to, *rest, **more)
        points.come(points.name(kind, to))
        with points.power.changing(kind, os.path.abspath(os.fsdecode(to)), os.path.abspath(os.fsdecode(path))):
            return do(path, to, *rest, **more)

    return done


def _watch_open(points: Points) -> None:
    open_number, open_file = os.open, io.open

    def opened_number(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        if not (flags & WRITES) or more.get("dir_fd") is not None or not points.has(path):
            return open_number(path, flags, *rest, **more)
        place = os.path.abspath(os.fsdecode(path))
        new = not os.path.exists(place)
        if new or flags & os.O_TRUNC:
            points.come(points.name("create" if new else "empty", path))
        with points.power.changing("create" if new else "open", place):
            return open_number(path, flags, *rest, **more)

    class Watched(io.FileIO):
        """A file whose writes are points."""

        def write(self, data: Any) -> int:
            place = os.path.abspath(os.fsdecode(self.name))
            whole, write = memoryview(data).cast("B"), super().write
            points.come(points.name("write", place), lambda: write(whole[: len(whole) // 2]))
            points.power.written(place)
            return write(data)

    def opened(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: Any = None,
        errors: Any = None,
        newline: Any = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if isinstance(file, int) or not set(mode) & set("wax+") or not points.has(file):
            return open_file(file, mode, buffering, encoding, errors, newline, closefd, opener)
        plain = mode.replace("b", "").replace("t", "")
        raw = Watched(file, plain, opener=opener or (lambda name, flags: opened_number(name, flags, 0o666)))
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        buffered = io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1)

    os.open = opened_number
    builtins.open = io.open = opened


# --- databases ------------------------------------------------------------------------------------------

READS = re.compile(r"\s*(select|pragma|explain)", re.IGNORECASE)


def _watch_sqlite(points: Points) -> None:
    connect = sqlite3.connect

    def come(statement: str) -> None:
        if not READS.match(statement):
            points.come(f"sql {' '.join(statement.split())[:60]}")

    class Watched:
        def execute(self, statement: str, *rest: Any) -> Any:
            come(statement)
            return super().execute(statement, *rest)

        def executemany(self, statement: str, rows: Any) -> Any:
            come(statement)
            return super().executemany(statement, rows)

        def executescript(self, statements: str) -> Any:
            come(statements)
            return super().executescript(statements)

    class Cursor(Watched, sqlite3.Cursor):
        pass

    class Connection(Watched, sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def commit(self) -> None:
            if self.in_transaction:
                points.come("sql commit")
            super().commit()

    def connected(database: Any, *rest: Any, **more: Any) -> Any:
        if not points.has(re.sub(r"^file:(//)?|\?.*$", "", os.fsdecode(database))):
            return connect(database, *rest, **more)
        return connect(database, *rest, **{"factory": Connection, **more, "timeout": 0.3})

    sqlite3.connect = sqlite3.dbapi2.connect = connected


def _watch_postgresql(points: Points) -> None:
    execute, commit = psycopg.Cursor.execute, psycopg.Connection.commit

    def executed(self: Any, statement: Any, *rest: Any, **more: Any) -> Any:
        text = statement if isinstance(statement, str) else "a statement"
        if not READS.match(text):
            points.come(f"sql {' '.join(text.split())[:60]}")
        return execute(self, statement, *rest, **more)

    def committed(self: Any) -> None:
        points.come("sql commit")
        commit(self)

    psycopg.Cursor.execute = executed
    psycopg.Connection.commit = committed


# --- what is asked of others ------------------------------------------------------------------------------


def _watch_delta(points: Points) -> None:
    """Commits of Delta tables: each is there whole or not at all, which is the library's promise."""

    delta.write_deltalake = _watched(points, "delta append", delta.write_deltalake)
    for owner, names in (
        (deltalake.DeltaTable, ("create", "delete", "create_checkpoint", "cleanup_metadata")),
        (TableMerger, ("execute",)),
        (TableAlterer, ("set_table_properties", "add_columns")),
    ):
        for name in names:
            setattr(owner, name, _watched(points, f"delta {name}", getattr(owner, name)))


def _watch_kafka(points: Points) -> None:
    """Each call that changes a topic, a transaction, or what a group has read."""

    def watching(base: type, names: tuple[str, ...]) -> type:
        own = {name: _watched(points, f"kafka {name}", getattr(base, name)) for name in names}
        return type(base.__name__, (base,), own)

    producing = (
        "init_transactions",
        "begin_transaction",
        "send_offsets_to_transaction",
        "commit_transaction",
        "abort_transaction",
    )
    courier.Producer = watching(courier.Producer, ("produce", "flush", *producing))
    topic.Consumer = watching(topic.Consumer, ("commit",))
    topic.AdminClient = watching(topic.AdminClient, ("create_topics",))


def _watch_s3(points: Points) -> None:
    """Each request that changes something."""
    ask = s3fs.S3FileSystem._call_s3

    async def asked(self: Any, method: str, *given: Any, **more: Any) -> Any:
        if not method.startswith(("get_", "head_", "list_")):
            points.come(f"s3 {method}")
        return await ask(self, method, *given, **more)

    s3fs.S3FileSystem._call_s3 = asked


def _watch_hdfs(points: Points) -> None:
    """Each request to a NameNode or a DataNode that changes something."""
    ask = requests.Session.request

    def asked(self: Any, method: str, url: str, **more: Any) -> Any:
        if method.lower() != "get":
            data = more.get("data")
            half = {**more, "data": data and data[: len(data) // 2]}
            points.come(f"hdfs {method.lower()}", data and (lambda: ask(self, method, url, **half)))
        return ask(self, method, url, **more)

    requests.Session.request = asked  # type: ignore[method-assign]


def _watched(points: Points, name: str, do: Callable[..., Any]) -> Callable[..., Any]:
    def done(*given: Any, **more: Any) -> Any:
        points.come(name)
        return do(*given, **more)

    return done
