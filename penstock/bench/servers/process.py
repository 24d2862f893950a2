"""Server processes on this machine that can be started, killed and restarted."""

import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.engine.session.descendants import descendants, kill_all
from penstock.errors import ClusterError

HOST = "127.0.0.1"
PATIENCE_S = 60.0

Process = subprocess.Popen[bytes]


def free_port() -> int:
    """Find a port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def spawn(command: Sequence[Any], log: Path, environment: Mapping[str, str] | None = None) -> Process:
    """Start a process in a session of its own; its output is appended to the file ``log``."""
    with log.open("ab") as file:
        return subprocess.Popen(
            list(command),
            stdout=file,
            stderr=file,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )


def kill(process: Process) -> None:
    """``kill -9`` a process, its session and its descendants."""
    if process.poll() is None:
        started = descendants(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        kill_all(started)  # descendants in sessions of their own
    process.wait()


class ServerProcess(ABC):
    """A context in which a server runs; leaving it kills the server."""

    _process: Process | None = None

    @abstractmethod
    def __enter__(self) -> Self:
        """Prepare the server's data, and start it."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        """``kill -9`` the server and its descendants."""
        if self._process is not None:
            kill(self._process)


def await_ready(name: str, process: Process, log: Path, ready: Callable[[], bool]) -> None:
    """Wait until ``ready()`` says that a process is ready.

    Raises:
        ClusterError: the process ends, or takes longer than a minute; the error names its log.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise ClusterError(f"The {name} did not come up; {log} has the reason.")
        time.sleep(0.1)


def listens(port: int) -> bool:
    """Whether something accepts connections on a port of this machine."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False
