"""Control groups: what a node may use of the processor and the memory, and what it has used; version 1 or 2."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from penstock.errors import ClusterError

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "memory")
"""Of version 1, where each has a tree of its own."""
PERIOD_US = 100_000
TRIED_BYTES = 64 << 20


def available() -> bool:
    """Whether groups with limits can be made here."""
    if os.geteuid() != 0 or not (_second() or all((ROOT / name / "cgroup.procs").exists() for name in CONTROLLERS)):
        return False
    try:
        tried = ControlGroup(f"ps{os.getpid()}-try", TRIED_BYTES)
        tried.limit_processor(1.0)
    except (ClusterError, OSError):
        return False
    tried.remove()
    return True


def _second() -> bool:
    """Whether there is version 2 with what we need."""
    listed = ROOT / "cgroup.controllers"
    return listed.exists() and {"cpu", "memory"} <= set(listed.read_text().split())


class ControlGroup:
    """The group of a node.

    Parameters
    ----------
    memory: bytes that its processes may hold; None for no limit.

    Raises
    ------
    ClusterError: it cannot be made.
    """

    def __init__(self, name: str, memory: int | None = None) -> None:
        self._version2 = _second()
        self._places = [ROOT / name] if self._version2 else [ROOT / controller / name for controller in CONTROLLERS]
        try:
            if self._version2:
                (ROOT / "cgroup.subtree_control").write_text("+cpu +memory")
            for place in self._places:
                place.mkdir(exist_ok=True)
            if memory is not None:
                self._write("memory", "memory.max" if self._version2 else "memory.limit_in_bytes", memory)
        except OSError as error:
            raise ClusterError(f"The control group {name} cannot be made ({error}); run without isolation.") from error

    def limit_processor(self, cores: float | None) -> None:
        """Give its processes so many cores' worth of processor, and no more; None for no limit."""
        if self._version2:
            self._write("cpu", "cpu.max", f"{'max' if cores is None else round(cores * PERIOD_US)} {PERIOD_US}")
        else:
            self._write("cpu", "cpu.cfs_quota_us", -1 if cores is None else round(cores * PERIOD_US))

    @property
    def entrances(self) -> Sequence[Path]:
        """Files that a process writes its number into to be of the group."""
        return [place / "cgroup.procs" for place in self._places]

    def processor_seconds(self) -> float:
        """Used so far by all processes of the group, those that have ended too."""
        if self._version2:
            stated = dict(line.split() for line in self._read("cpu", "cpu.stat").splitlines())
            return int(stated["usage_usec"]) / 1e6
        return int(self._read("cpuacct", "cpuacct.usage")) / 1e9

    def memory_bytes(self) -> int:
        """What the processes hold now, without files that the kernel keeps for them."""
        stated = dict(line.split()[:2] for line in self._read("memory", "memory.stat").splitlines())
        return int(stated["anon" if self._version2 else "rss"])

    def processes(self) -> list[int]:
        """Those of the group."""
        with suppress(OSError):
            return [int(number) for number in (self._places[0] / "cgroup.procs").read_text().split()]
        return []

    def kill(self) -> None:
        """``kill -9`` all of them, and those that they have started meanwhile."""
        for _ in range(200):
            left = self.processes()
            if not left:
                return
            for number in left:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.05)

    def remove(self) -> None:
        """Kill what is left, and remove the group."""
        self.kill()
        for place in self._places:
            with suppress(OSError):
                place.rmdir()

    def _read(self, controller: str, name: str) -> str:
        return (self._place(controller) / name).read_text()

    def _write(self, controller: str, name: str, value: object) -> None:
        (self._place(controller) / name).write_text(str(value))

    def _place(self, controller: str) -> Path:
        return self._places[0] if self._version2 else ROOT / controller / self._places[0].name


def names() -> list[str]:
    """The groups that there are."""
    tree = ROOT if _second() else ROOT / "cpu"
    return [place.name for place in tree.iterdir() if place.is_dir()] if tree.exists() else []
