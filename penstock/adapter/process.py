"""Runs an adapter as a child process of a run: started with it, restarted when it dies, and stopped with it."""

import fcntl
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from penstock.errors import PortInUseError

STARTING_S = 30.0
LEAVING_S = 20.0


class AdapterProcess:
    """A context manager that runs an adapter. The adapter stops by itself when this process dies.

    Args:
        arguments: the arguments of ``penstock adapter``.
        log: the file for the adapter's output.

    Raises:
        PortInUseError: the adapter does not start, for whatever reason; has its last line of output as message.
    """

    def __init__(self, arguments: Sequence[str], host: str, port: int, log: Path) -> None:
        self._command = [sys.executable, "-m", "penstock", "adapter", *arguments, "--until-stdin-closes"]
        self._address, self._log = (host, port), log
        self._run = log.with_suffix(".run")
        """A file that the run locks while it lives. The adapter, which may outlive the run, locks the log."""
        self._leaving = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._watch = threading.Thread(target=self._keep_alive, daemon=True)

    def __enter__(self) -> "AdapterProcess":
        deadline = time.monotonic() + LEAVING_S
        while self._listens() and self._is_left() and time.monotonic() < deadline:
            time.sleep(0.2)
        if self._listens():
            host, port = self._address
            raise PortInUseError(f"Something listens on {host}:{port} already; stop it, or choose another port with --port.")
        self._start()
        deadline = time.monotonic() + STARTING_S
        while not self._listens():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                output = self._log.read_text(errors="replace").strip().splitlines()
                raise PortInUseError((output or ["The adapter did not start."])[-1].removeprefix("penstock: "))
            time.sleep(0.05)
        self._lock = self._run.open("ab")
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._watch.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._leaving.set()
        self._watch.join()
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(LEAVING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._lock.close()

    def _start(self) -> None:
        with self._log.open("a+b") as log:
            fcntl.flock(log, fcntl.LOCK_SH)  # the child inherits the lock, and holds it until it ends
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def _keep_alive(self) -> None:
        while not self._leaving.wait(0.2):
            assert self._process is not None
            if self._process.poll() is not None:
                self._start()
                self._leaving.wait(1.0)

    def _is_left(self) -> bool:
        """Whether an adapter of a killed run is still here, about to stop."""
        return _is_locked(self._log) and not _is_locked(self._run)

    def _listens(self) -> bool:
        try:
            with socket.create_connection(self._address, timeout=1):
                return True
        except OSError:
            return False


def _is_locked(path: Path) -> bool:
    """Whether another process holds a lock on a file."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
