"""Locks on files: they let only one process of a machine at a time change a file or directory on its disk."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import RunLockedError
from penstock.storage import durable
from penstock.storage.place import is_local

PATIENCE_S = 30.0
"""Seconds to wait for another process to release a lock."""


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Hold an advisory lock on a file or directory within the block; does nothing on an object store, which has no locks.

    Raises:
        RunLockedError: another process has held the lock for more than `PATIENCE_S`.
    """
    if not is_local(path):
        yield
        return
    handle = _locked(path)
    try:
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # explicitly, because a process forked meanwhile would keep it
        os.close(handle)


def lock_of(path: Path) -> Path:
    """Return the file that is locked for another one. Only who holds the lock may remove it."""
    return path.with_name(f".{path.name}.lock")


def leads_to(path: Path, handle: int) -> bool:
    """Whether a path leads to the file with an open descriptor."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(handle), path.stat())
    return False


def _locked(path: Path) -> int:
    """Return a descriptor that holds the lock, on a lock file that is still there: who held it before may have removed it."""
    while True:
        file, flags = (path, os.O_RDONLY) if path.is_dir() else (lock_of(path), os.O_RDWR | os.O_CREAT)
        handle = os.open(file, flags, durable.PRIVATE)
        try:
            _wait(handle, path)
        except BaseException:
            os.close(handle)
            raise
        if leads_to(file, handle):
            return handle
        os.close(handle)


def _wait(handle: int, path: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise RunLockedError(
                    f"Another process has held the lock on {path} for {PATIENCE_S:g} s, and may be paused: let it go on, or "
                    "kill it."
                ) from None
            time.sleep(0.01)
