"""Runs an adapter as a child process of a run: started with it, restarted when it dies, and stopped with it."""

import fcntl
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from penstock.errors import PortInUseError

STARTING_S = 30.0
LISTENS = "Listening on "
"""What an adapter writes to its log once it takes connections."""
LEAVING_S = 20.0


class AdapterProcess:
    """A context manager that runs an adapter. The adapter stops by itself when this process dies.

    Args:
        arguments: the arguments of ``penstock adapter``.
        log: the file for the adapter's output.
        say: takes a line about an adapter that has died and is started again.

    Raises:
        PortInUseError: the adapter does not start, for whatever reason; has its last line of output as message.
    """

    def __init__(
        self, arguments: Sequence[str], host: str, port: int, log: Path, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._command = [sys.executable, "-m", "penstock", "adapter", *arguments, "--until-stdin-closes"]
        self._address, self._log, self._say = (host, port), log, say
        self._before = 0
        """The size of the log before the present process wrote to it."""
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
        while not (LISTENS in self._output() and self._listens()):  # another run's adapter may listen there
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                self._process.wait()
                raise PortInUseError(self._last_line())
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
            self._before = self._log.stat().st_size
            fcntl.flock(log, fcntl.LOCK_SH)  # the child inherits the lock, and holds it until it ends
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def _keep_alive(self) -> None:
        told = None
        while not self._leaving.wait(0.2):
            assert self._process is not None
            if self._process.poll() is not None:
                if (why := self._last_line()) != told:
                    self._say(f"The adapter has ended, and is started again: {why}")
                    told = why
                try:
                    self._start()
                except OSError as error:  # as too many open files
                    self._say(f"The adapter cannot be started: {error}")
                self._leaving.wait(1.0)

    def _output(self) -> str:
        """Return what the present process has written to the log."""
        with self._log.open("rb") as log:
            log.seek(self._before)
            return log.read().decode(errors="replace")

    def _last_line(self) -> str:
        lines = self._output().strip().splitlines()
        return (lines or ["The adapter did not start."])[-1].removeprefix("penstock: ")

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
