"""Servers on this machine that are started, killed and started again."""

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
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def spawn(command: Sequence[Any], log: Path, environment: Mapping[str, str] | None = None) -> Process:
    """Start a process in a session of its own; what it says is appended to a file."""
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
    """``kill -9`` a process, its session and all that it has started."""
    if process.poll() is None:
        started = descendants(process.pid)
        os.killpg(process.pid, signal.SIGKILL)
        kill_all(started)  # those that have made a session of their own
    process.wait()


class Server(ABC):
    """A context in which a server runs, until it is killed."""

    _process: Process | None = None

    @abstractmethod
    def __enter__(self) -> Self:
        """Make its data, and start it."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def kill(self) -> None:
        """``kill -9`` it, and all that it has started."""
        if self._process is not None:
            kill(self._process)


def await_ready(name: str, process: Process, log: Path, ready: Callable[[], bool]) -> None:
    """Wait until a process is ready.

    Raises
    ------
    ClusterError: it ends, or takes too long; names its log.
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
