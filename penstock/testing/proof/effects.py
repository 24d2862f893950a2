"""Detects side effects of elements, outside of state and emissions, by Python's audit events."""

import logging
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from penstock.runtime.letters import NOT_THE_USERS
from penstock.runtime.log import element_at_work

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
SAFE_METHODS = (b"GET ", b"HEAD ", b"OPTIONS ")
HERE = {
    "os.remove": "removes a file",
    "os.rename": "renames a file",
    "os.rmdir": "removes a directory",
    "os.link": "links a file",
    "os.symlink": "links a file",
    "os.truncate": "cuts a file",
    "os.putenv": "sets a variable of the environment",
    "os.unsetenv": "removes a variable of the environment",
    "os.kill": "sends a signal",
}
"""Audit events that are effects on this machine, whatever their arguments; with a description."""
FAR = {
    "os.system": "starts a process",
    "subprocess.Popen": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.exec": "starts a process",
    "smtplib.send": "sends mail",
    "ftplib.sendcmd": "sends a command",
    "socket.sendto": "sends a datagram",
}
"""Audit events whose effects may reach anywhere; after one of these, the prover does not run the application again."""
REQUEST = "sends a request that is no GET"

BEGUN_BY = "penstock_begun_by"
"""The attribute of a thread with the name of the element that began it."""

HARMLESS = (str(Path(logging.__file__).parent), tempfile.__file__)
"""Paths of code whose effects may be repeated without harm: logging, and temporary files."""


class Effect(msgspec.Struct, frozen=True):
    """A side effect of an element, which is repeated whenever its micro-batch is replayed."""

    element: str
    file: str
    line: int
    what: str
    far: bool = False
    """Whether the effect may reach beyond this machine's files and this process."""


class Effects:
    """Records the effects of elements from now on. Audit hooks cannot be removed, so use a process of its own."""

    def __init__(self) -> None:
        self._found: dict[Effect, None] = {}
        self._databases: dict[Effect, tuple[Path, Any]] = {}
        sys.addaudithook(self._hear)
        _note_who_begins_threads()

    def found(self) -> list[Effect]:
        """Return the effects so far. Opening a database file counts only if the file has changed since."""
        changed = [effect for effect, (file, before) in self._databases.items() if _state_of(file) != before]
        return [*self._found, *changed]

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        action = _effect(event, arguments)
        if action is None:
            return
        element = element_at_work() or getattr(threading.current_thread(), BEGUN_BY, None)
        if element is None:
            return
        place = _own_line(sys._getframe(1))
        if place is None:
            return
        effect = Effect(element, *place, action, action == REQUEST or event in FAR)
        if event == "sqlite3.connect":
            file = Path(os.fsdecode(arguments[0]))
            self._databases.setdefault(effect, (file, _state_of(file)))
        else:
            self._found[effect] = None


def _note_who_begins_threads() -> None:
    """From now on, note on each thread the element that begins it: what the thread does is its effect."""
    begin = threading.Thread.start

    def noted(self: threading.Thread) -> None:
        setattr(self, BEGUN_BY, element_at_work() or getattr(threading.current_thread(), BEGUN_BY, None))
        begin(self)

    threading.Thread.start = noted  # type: ignore[method-assign]


def _effect(event: str, arguments: tuple[Any, ...]) -> str | None:
    """Describe the effect of an audit event; None where it has none that matters."""
    if event in HERE or event in FAR:
        return HERE.get(event) or FAR[event]
    if event == "os.mkdir":
        return None if Path(os.fsdecode(arguments[0])).exists() else "makes a directory"
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, str) and (path.endswith(".pyc") or "__pycache__" in path or path == os.devnull):
            return None
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & WRITES)
        return "writes a file" if writes else None
    if event == "http.client.send":
        data = bytes(arguments[1]) if isinstance(arguments[1], bytes | bytearray) else b""
        words = data.split(b"\r\n", 1)[0]
        return REQUEST if words.endswith(b"HTTP/1.1") and not words.startswith(SAFE_METHODS) else None
    if event == "urllib.Request":
        return None if arguments[3] in ("GET", "HEAD", "OPTIONS") else REQUEST
    return "writes to a database" if event == "sqlite3.connect" and str(arguments[0]) != ":memory:" else None


def _own_line(frame: FrameType | None) -> tuple[str, int] | None:
    """Find the innermost line of the application on the stack; None inside an import, logging or `tempfile`."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(("<frozen importlib", *HARMLESS)):
            return None
        if not file.startswith(NOT_THE_USERS):
            return file, frame.f_lineno
        frame = frame.f_back
    return None


def _state_of(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
