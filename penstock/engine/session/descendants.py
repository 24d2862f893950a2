"""Finding and killing the child processes of a process, and their children."""

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress


def descendants(number: int | None = None) -> list[int]:
    """Return the identifiers of all processes below one (by default this one), each before its children."""
    command = ["ps", "-o", "pid=", "--ppid", str(number or os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ps:
        listing = ps.stdout.read() if ps.stdout else ""
    children = [child for child in map(int, listing.split()) if child != ps.pid]
    return [process for child in children for process in (child, *descendants(child))]


def kill_all(processes: Iterable[int]) -> None:
    """Kill processes with SIGKILL; those that have ended already are ignored."""
    for number in processes:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
