"""What a process and all that it has started use."""

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from penstock.engine.session.descendants import descendants

TICKS = os.sysconf("SC_CLK_TCK")
EVERY_S = 0.5


class Tree:
    """A process with its descendants; a context in which their memory is watched."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Tree":
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def processor_seconds(self) -> float:
        """Used so far, by those that have ended, too, where they were waited for."""
        return sum(map(_processor, self._all()))

    def pause(self) -> None:
        """Stop all of them, so that they do nothing while a topic is filled."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._all():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _all(self) -> list[int]:
        return [self._pid, *descendants(self._pid)]

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_S):
            self.peak_bytes = max(self.peak_bytes, sum(map(memory_of, self._all())))


def _processor(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS  # of its own, and of children that have ended


def memory_of(pid: int) -> int:
    """Its share of the memory: pages that several processes hold are divided among them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)
