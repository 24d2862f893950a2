"""Processes that this one has started, and that those have started."""

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress


def descendants(number: int | None = None) -> list[int]:
    """The processes below one, or below this one, children before grandchildren."""
    command = ["ps", "-o", "pid=", "--ppid", str(number or os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as asked:
        said = asked.stdout.read() if asked.stdout else ""
    children = [child for child in map(int, said.split()) if child != asked.pid]
    return [each for child in children for each in (child, *descendants(child))]


def kill_all(processes: Iterable[int]) -> None:
    """``kill -9`` whatever of them is left."""
    for number in processes:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
