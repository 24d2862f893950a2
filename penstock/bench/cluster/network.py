"""A network on one machine: a bridge, and per node a namespace with its own address and virtual cable (veth) to it."""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.bench.cluster import cgroups
from penstock.errors import ClusterError

OURS = re.compile(r"ps(\d+)[-bv]")
"""Names of namespaces, bridges, cables and groups that we make, with the id of the process that made them."""


@dataclass(frozen=True)
class Link:
    """Properties of a cable: delay in each direction in seconds, and megabits per second."""

    delay: float = 0.0
    megabits: float | None = None


@dataclass(frozen=True)
class Counters:
    """The traffic of a node's cable, from the node's point of view."""

    received_bytes: int
    received_packets: int
    sent_bytes: int
    sent_packets: int


def available() -> bool:
    """Whether network namespaces can be made on this machine, which is tried."""
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("nsenter")):
        return False
    name = f"ps{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return made


class NodeNetwork:
    """A context in which the network exists. It has no route to the outside, so that look-ups of names fail at once.

    Raises:
        ClusterError: the network cannot be made.
    """

    def __init__(self, link: Link | None = None) -> None:
        self.notes: list[str] = []
        self._prefix = f"ps{os.getpid()}"
        self._link = link
        self._cables: dict[str, str] = {}

    def __enter__(self) -> "NodeNetwork":
        sweep()
        self._subnet = _free_subnet()
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self._subnet}.1/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for node in list(self._cables):
            self.remove(node)
        with suppress(ClusterError):
            _ip("link", "del", self._bridge)

    @property
    def _bridge(self) -> str:
        return f"{self._prefix}b"

    def namespace(self, node: str) -> str:
        """The name of a node's namespace."""
        return f"{self._prefix}-{node}"

    def add(self, node: str) -> str:
        """Make a node's namespace and cable, and return its address."""
        number = len(self._cables) + 1
        namespace, cable = self.namespace(node), f"{self._prefix}v{number}"
        address = f"{self._subnet}.{10 + number}"
        _ip("netns", "add", namespace)
        self._cables[node] = cable
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _ip("link", "set", cable, "master", self._bridge, "up")
        _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", namespace, "link", "set", "eth0", "up")
        _ip("-n", namespace, "link", "set", "lo", "up")
        if self._link is not None:
            self._shape(namespace, cable, self._link)
        return address

    def remove(self, node: str) -> None:
        """Remove a node's namespace and cable."""
        with suppress(ClusterError):
            _ip("link", "del", self._cables.pop(node))
        with suppress(ClusterError):
            _ip("netns", "del", self.namespace(node))

    def counters(self, node: str) -> Counters:
        """Read a node's traffic, at the other end of its cable, which sends what the node receives."""
        statistics = Path(f"/sys/class/net/{self._cables[node]}/statistics")
        names = ("tx_bytes", "tx_packets", "rx_bytes", "rx_packets")
        return Counters(*(int((statistics / name).read_text()) for name in names))

    def _shape(self, namespace: str, cable: str, link: Link) -> None:
        """Set delay and bandwidth in both directions, or add a note if the kernel cannot."""
        rate = [] if link.megabits is None else ["rate", f"{link.megabits}mbit"]
        for inside, device in (("", cable), (namespace, "eth0")):
            tc = ["tc", *(["-n", inside] if inside else []), "qdisc", "add", "dev", device, "root"]
            shaped = [*tc, "netem", "delay", f"{link.delay * 1e3}ms", *rate]
            if subprocess.run(shaped, capture_output=True).returncode != 0:
                note = "The links have no delay or bandwidth of their own: this kernel has no netem."
                if note not in self.notes:
                    self.notes.append(note)
                return


def sweep() -> None:
    """Remove leftovers of processes that were killed: namespaces, bridges, and control groups with their processes."""
    for name in cgroups.names():
        if _abandoned(name):
            cgroups.ControlGroup(name).remove()
    for line in _ip("netns", "list").splitlines():
        if line and _abandoned(line.split()[0]):
            _ip("netns", "del", line.split()[0])
    for place in Path("/sys/class/net").iterdir():
        if _abandoned(place.name) and place.exists():
            with suppress(ClusterError):
                _ip("link", "del", place.name)


def _abandoned(name: str) -> bool:
    """Whether a name is one of ours, and the process that made it has ended."""
    match = OURS.match(name)
    return match is not None and not Path(f"/proc/{match[1]}").exists()


def _free_subnet() -> str:
    addresses = _ip("-4", "-o", "addr", "show")
    for number in range(1, 255):
        if f" 10.213.{number}." not in addresses:
            return f"10.213.{number}"
    raise ClusterError("No network of 10.213.0.0/16 is free; end other clusters on this machine.")


def _ip(*arguments: str) -> str:
    ran = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if ran.returncode != 0:
        raise ClusterError(f"ip {' '.join(arguments)} has failed ({ran.stderr.strip()}); run without isolation.")
    return ran.stdout
