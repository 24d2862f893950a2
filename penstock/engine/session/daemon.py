"""What Spark forks its Python workers from: its own daemon, with everything that workers import loaded beforehand.

A worker then begins in milliseconds, and shares what is loaded with the others. Spark has Python import PySpark from
an archive that holds no compiled code, so that each process would compile it anew; where the archive is that of the installed
PySpark, the installed one is taken.
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

Worker = Callable[[socket.socket, bool], int]
"""Runs a task that comes by a socket, of which Spark may have been told the secret; returns its exit code."""


def ignored(number: int, frame: Any) -> None:
    """What is done of a request to stop: nothing, for who stops a run may ask all its processes, and Spark ends this one by
    closing its input, and that one its workers. What a worker starts itself can be stopped all the same."""


class Deaf:
    """Python's signals for the daemon and its workers, which leave that one as it is."""

    def __getattr__(self, name: str) -> Any:
        return getattr(signal, name)

    def signal(self, number: int, handler: Any) -> Any:
        """Set a handler."""
        return None if number == signal.SIGTERM else signal.signal(number, handler)


def leave_out_archive() -> None:
    """Take the archive of the installed PySpark from the path on which modules are looked for."""
    archives = [entry for entry in sys.path if Path(entry).name == "pyspark.zip"]
    sys.path[:] = [entry for entry in sys.path if entry not in archives]
    installed = find_spec("pyspark")
    home = Path(installed.origin).parent if installed is not None and installed.origin else None
    sys.path[:0] = [entry for entry in archives if home is None or home not in Path(entry).parents]


def at_once(worker: Worker) -> Worker:
    """A worker whose messages travel when they are written.

    Spark writes a task in several pieces. TCP keeps a small piece back until the one before is acknowledged, and the
    acknowledgement for 40 ms, lest there be an answer that it may go with.
    """

    def work(sock: socket.socket, authenticated: bool) -> int:
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if sys.platform == "linux":
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # for a while only: so at each task
        return worker(sock, authenticated)

    return work


if __name__ == "__main__":
    leave_out_archive()
    from pyspark import daemon

    if sys.argv[1:] == ["pyspark.worker"]:  # and none of those that only ask a source for its offsets
        from pyspark import worker  # noqa: F401

        from penstock.engine.query import decode, stateful  # noqa: F401

    vars(daemon)["signal"] = Deaf()
    signal.signal(signal.SIGTERM, ignored)
    daemon.worker = at_once(daemon.worker)  # type: ignore[assignment] # as the manager finds it
    gc.freeze()  # so that a worker's search for garbage does not copy the pages that it shares
    daemon.manager()
