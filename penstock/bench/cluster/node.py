"""A node of a cluster: an address, and processes that can be killed together."""

import os
import shlex
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.bench.cluster.cgroups import ControlGroup
from penstock.bench.cluster.network import NodeNetwork
from penstock.bench.cluster.usage import Usage
from penstock.bench.servers.process import Process, kill, spawn
from penstock.engine.session.descendants import descendants

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Node:
    """A node of a cluster.

    Args:
        name, address: name and address.
        directory: directory for scratch files.
        network, group: its network and control group if it is isolated; otherwise it consists of its processes only.
        disk: a directory in whose place each process started on the node sees an empty disk of its own.
    """

    def __init__(
        self,
        name: str,
        address: str,
        directory: Path,
        network: NodeNetwork | None = None,
        group: ControlGroup | None = None,
        disk: Path | None = None,
    ) -> None:
        self.name, self.address, self.directory = name, address, directory
        self._network, self._group, self._disk = network, group, disk
        self._processes: list[Process] = []
        self._counters: dict[str, dict[int, float]] = {}
        self._sums: dict[str, float] = {}
        directory.mkdir(parents=True, exist_ok=True)

    def spawn(self, command: Sequence[Any], log: Path, environment: Mapping[str, str] | None = None) -> Process:
        """Start a process on the node; its output is appended to ``log``. It is killed when this process ends."""
        parts = list(command)
        scratch = self.directory if self._disk is None else self._disk
        if self._disk is not None:
            mounted = f'mount -t tmpfs -o mode=1777 tmpfs {shlex.quote(str(self._disk))} && exec "$@"'
            parts = ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounted, "sh", *parts]
        if self._network is not None:
            parts = ["nsenter", f"--net=/run/netns/{self._network.namespace(self.name)}", *parts]
        if shutil.which("setpriv"):
            parts = ["setpriv", "--pdeathsig", "KILL", *parts]
        if self._group is not None:
            enter = " && ".join(f"echo $$ > {place}" for place in self._group.entrances)
            parts = ["sh", "-c", f'{enter} && exec "$@"', "sh", *parts]
        places = {"TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch)}
        process = spawn(parts, log, {**places, **(environment or {})})
        self._processes.append(process)
        return process

    def limit_processor(self, cores: float | None) -> None:
        """Limit the node's processor time to that of ``cores`` cores, if it is isolated; None for no limit."""
        if self._group is not None:
            self._group.limit_processor(cores)

    @property
    def alive(self) -> bool:
        """Whether any process of the node is alive."""
        return any(process.poll() is None for process in self._processes)

    def kill(self) -> None:
        """``kill -9`` all processes of the node."""
        if self._group is not None:
            self._group.kill()
        for process in self._processes:
            kill(process)
        self._processes.clear()

    def close(self) -> None:
        """Kill all processes of the node, and remove its control group."""
        self.kill()
        if self._group is not None:
            self._group.remove()

    def usage(self) -> Usage:
        """The node's use of resources until now."""
        processes = self._running()
        written = self._grown("written", {number: _written(number) for number in processes})
        if self._group is not None:
            processor, memory = self._group.processor_seconds(), float(self._group.memory_bytes())
        else:
            by_process = {number: _held(number) for number in processes}
            processor = self._grown("processor", {number: seconds for number, (seconds, _) in by_process.items()})
            memory = sum(resident for _, resident in by_process.values())
        if self._network is None:
            return Usage(time.time(), processor, memory, written)
        link = self._network.counters(self.name)
        return Usage(
            time.time(),
            processor,
            memory,
            written,
            link.received_bytes,
            link.received_packets,
            link.sent_bytes,
            link.sent_packets,
        )

    def _grown(self, what: str, counters: Mapping[int, float]) -> float:
        """The sum of a counter over all processes, including the last known values of those that have ended."""
        before = self._counters.get(what, {})
        grown = sum(max(0.0, value - before.get(number, 0.0)) for number, value in counters.items())
        self._counters[what] = dict(counters)
        self._sums[what] = self._sums.get(what, 0.0) + grown
        return self._sums[what]

    def _running(self) -> list[int]:
        """Ids of all processes of the node."""
        if self._group is not None:
            return self._group.processes()
        started = [process.pid for process in self._processes if process.poll() is None]
        return [number for parent in started for number in (parent, *descendants(parent))]


def _held(process: int) -> tuple[float, float]:
    """Processor seconds and bytes of memory of a process; zeros if it has ended."""
    with suppress(OSError, IndexError, ValueError):
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS, float(int(words[21]) * PAGE)
    return 0.0, 0.0


def _written(process: int) -> float:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{process}/io").read_text().splitlines():
            if line.startswith("write_bytes:"):
                return float(line.split()[1])
    return 0.0
