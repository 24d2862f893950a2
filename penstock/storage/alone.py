"""Locks on a disk: what one process at a time does, of those of a machine."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import RunLockedError
from penstock.storage import durable
from penstock.storage.place import is_local

PATIENCE_S = 30.0
"""How long another process may take."""


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Within the block no other process that asks for it changes a file, or what is in a directory; a store has no such locks.

    Raises
    ------
    RunLockedError: another has been about it for too long.
    """
    if not is_local(path):
        yield
        return
    if path.is_dir():
        handle = os.open(path, os.O_RDONLY)
    else:
        handle = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, durable.PRIVATE)
    try:
        _wait(handle, path)
        yield
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)  # for a process that was forked meanwhile, too
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
                    f"Another driver has had {path} to itself for {PATIENCE_S:g} s, and may be paused: go on with that one, "
                    "or kill it."
                ) from None
            time.sleep(0.01)
