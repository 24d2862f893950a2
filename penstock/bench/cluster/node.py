"""A node: an address, and processes that can be killed together."""

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.bench.cluster.cgroups import ControlGroup
from penstock.bench.cluster.network import Network
from penstock.bench.cluster.usage import Usage, now
from penstock.bench.servers.process import Process, kill, spawn
from penstock.engine.session.descendants import descendants

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Node:
    """A node of a cluster.

    Parameters
    ----------
    name, address: its own. directory: its scratch disk.
    network, group: where it is isolated; otherwise it is no more than its processes.
    disk: a directory in whose place what is started on it sees an empty disk of its own.
    """

    def __init__(
        self,
        name: str,
        address: str,
        directory: Path,
        network: Network | None = None,
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
        """Start a process on it; what it says is appended to a file. It dies with the one that has started it."""
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
        """Give it so many cores' worth of processor from now on, where it is isolated; None for no limit."""
        if self._group is not None:
            self._group.limit_processor(cores)

    @property
    def alive(self) -> bool:
        """Whether any of its processes is."""
        return any(process.poll() is None for process in self._processes)

    def kill(self) -> None:
        """``kill -9`` all that runs on it."""
        if self._group is not None:
            self._group.kill()
        for process in self._processes:
            kill(process)
        self._processes.clear()

    def close(self) -> None:
        """Kill all that runs on it, and give back what the kernel has made for it."""
        self.kill()
        if self._group is not None:
            self._group.remove()

    def usage(self) -> Usage:
        """What it has used until now."""
        processes = self._running()
        written = self._grown("written", {number: _written(number) for number in processes})
        if self._group is not None:
            processor, memory = self._group.processor_seconds(), float(self._group.memory_bytes())
        else:
            held = {number: _held(number) for number in processes}
            processor = self._grown("processor", {number: seconds for number, (seconds, _) in held.items()})
            memory = sum(held_now for _, held_now in held.values())
        if self._network is None:
            return Usage(now(), processor, memory, written)
        seen = self._network.counters(self.name)
        return Usage(
            now(), processor, memory, written, seen.received_bytes, seen.received_packets, seen.sent_bytes, seen.sent_packets
        )

    def _grown(self, what: str, counters: Mapping[int, float]) -> float:
        """The sum of processes' counters over time: what those have counted that have ended since stays in it."""
        before = self._counters.get(what, {})
        grown = sum(max(0.0, value - before.get(number, 0.0)) for number, value in counters.items())
        self._counters[what] = dict(counters)
        self._sums[what] = self._sums.get(what, 0.0) + grown
        return self._sums[what]

    def _running(self) -> list[int]:
        if self._group is not None:
            return self._group.processes()
        started = [process.pid for process in self._processes if process.poll() is None]
        return [number for one in started for number in (one, *descendants(one))]


def _held(process: int) -> tuple[float, float]:
    """Seconds of the processor, and bytes of memory; nothing where it has ended."""
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
