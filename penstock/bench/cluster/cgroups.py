"""Control groups, version 1 or 2: limits of a node's processor and memory, and counters of their use."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from penstock.errors import ClusterError

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "memory")
"""Controllers of version 1, each of which has a tree of its own."""
PERIOD_US = 100_000
TRIED_BYTES = 64 << 20


def available() -> bool:
    """Whether groups with limits can be made on this machine, which is tried."""
    if os.geteuid() != 0 or not (_second() or all((ROOT / name / "cgroup.procs").exists() for name in CONTROLLERS)):
        return False
    try:
        group = ControlGroup(f"ps{os.getpid()}-try", TRIED_BYTES)
        group.limit_processor(1.0)
    except (ClusterError, OSError):
        return False
    group.remove()
    return True


def _second() -> bool:
    """Whether version 2 is mounted, with the controllers that we need."""
    listed = ROOT / "cgroup.controllers"
    return listed.exists() and {"cpu", "memory"} <= set(listed.read_text().split())


class ControlGroup:
    """The control group of a node.

    Args:
        memory: limit of its processes' memory, in bytes; None for no limit.

    Raises:
        ClusterError: the group cannot be made.
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
        """Limit the processor time of its processes to that of ``cores`` cores; None for no limit."""
        if self._version2:
            self._write("cpu", "cpu.max", f"{'max' if cores is None else round(cores * PERIOD_US)} {PERIOD_US}")
        else:
            self._write("cpu", "cpu.cfs_quota_us", -1 if cores is None else round(cores * PERIOD_US))

    @property
    def entrances(self) -> Sequence[Path]:
        """Files into which a process writes its id to join the group."""
        return [place / "cgroup.procs" for place in self._places]

    def processor_seconds(self) -> float:
        """Processor time used so far by all processes of the group, ended ones included."""
        if self._version2:
            stated = dict(line.split() for line in self._read("cpu", "cpu.stat").splitlines())
            return int(stated["usage_usec"]) / 1e6
        return int(self._read("cpuacct", "cpuacct.usage")) / 1e9

    def memory_bytes(self) -> int:
        """Memory that the processes hold now, without the kernel's cache of files."""
        stated = dict(line.split()[:2] for line in self._read("memory", "memory.stat").splitlines())
        return int(stated["anon" if self._version2 else "rss"])

    def processes(self) -> list[int]:
        """Ids of the group's processes."""
        with suppress(OSError):
            return [int(number) for number in (self._places[0] / "cgroup.procs").read_text().split()]
        return []

    def kill(self) -> None:
        """``kill -9`` all processes of the group, also those started meanwhile."""
        for _ in range(200):
            remaining = self.processes()
            if not remaining:
                return
            for number in remaining:
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            time.sleep(0.05)

    def remove(self) -> None:
        """Kill the group's processes, and remove the group."""
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
    """The names of all existing groups."""
    tree = ROOT if _second() else ROOT / "cpu"
    return [place.name for place in tree.iterdir() if place.is_dir()] if tree.exists() else []
