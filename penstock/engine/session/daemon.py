"""The daemon from which Spark forks its Python workers: Spark's own, but with all modules that workers need imported before.

A worker then starts in milliseconds, and shares the memory of the modules. Spark makes Python import PySpark from an archive
without compiled code, which each process would compile again. If the archive belongs to the installed PySpark, that is
imported instead.
"""

import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NEW_OBJECTS = 200_000
"""A worker looks for cycles among its objects once so many are new (Python: 700). Instances that a micro-batch has touched are
many, hold no cycles, and live until its end."""

Worker = Callable[[socket.socket, bool], int]
"""Runs a task that Spark sends by a socket, which may be authenticated already; returns the exit code."""


def ignored(number: int, frame: Any) -> None:
    """Ignore SIGTERM. A request to stop a run may go to all its processes, but Spark ends the daemon by closing its input, and
    the daemon ends its workers. Processes that a worker starts do get SIGTERM's default handler."""


class Deaf:
    """Replaces the module `signal` in Spark's daemon and workers, so that they cannot change the handler of SIGTERM."""

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    def signal(self, number: int, handler: Any) -> Any:
        """Set a handler, unless it is for SIGTERM."""
        return None if number == signal.SIGTERM else signal.signal(number, handler)


def leave_out_archive() -> None:
    """Remove the archive of the installed PySpark from `sys.path`; an archive of another one is moved to the front."""
    archives = [entry for entry in sys.path if Path(entry).name == "pyspark.zip"]
    sys.path[:] = [entry for entry in sys.path if entry not in archives]
    installed = find_spec("pyspark")
    home = Path(installed.origin).parent if installed is not None and installed.origin else None
    sys.path[:0] = [entry for entry in archives if home is None or home not in Path(entry).parents]


def at_once(worker: Worker) -> Worker:
    """Wrap a worker so that its socket sends each piece, and each acknowledgement, at once.

    Spark writes a task in several pieces. TCP delays a small piece until the one before is acknowledged, and delays the
    acknowledgement for 40 ms, to send it with an answer.
    """

    def work(sock: socket.socket, authenticated: bool) -> int:
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if sys.platform == "linux":
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # the system resets it, so it is set for each task
        return worker(sock, authenticated)

    return work


if __name__ == "__main__":
    leave_out_archive()
    from pyspark import daemon

    if sys.argv[1:] == ["pyspark.worker"]:  # not for processes that only poll a source for its offsets
        import pandas  # noqa: F401
        from pyspark import worker  # noqa: F401

        from penstock.engine.query import decode, stateful  # noqa: F401
        from penstock.engine.session.memory import give_back

        give_back()
    vars(daemon)["signal"] = Deaf()
    signal.signal(signal.SIGTERM, ignored)
    daemon.worker = at_once(daemon.worker)  # type: ignore[assignment] # as the manager finds it
    gc.freeze()  # so that garbage collection in a worker does not copy the shared memory pages
    gc.set_threshold(NEW_OBJECTS)
    daemon.manager()
