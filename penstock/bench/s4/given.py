"""An existing cluster as a testbed: its nodes cannot be chosen in number, killed or observed."""

import socket
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from penstock.bench.cluster import Node, executor_conf
from penstock.bench.servers.process import HOST


class GivenCluster:
    """An existing cluster, with the members that a testbed needs.

    Args:
        master: its URL.
        memory: megabytes of a node; executors ask for the share that they have on a :class:`Cluster`.
    """

    isolated = False

    def __init__(self, master: str, memory: int) -> None:
        self.master = master
        self._memory = memory
        self.nodes: list[Node] = []
        self.notes = [f"The cluster {master} was given: its nodes are not seen, limited or killed."]
        self._stack = ExitStack()

    def __enter__(self) -> "GivenCluster":
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        address = _own_address(self.master)
        self.driver, self.broker, self.client = (
            Node(name, address, directory / name) for name in ("driver", "broker", "client")
        )
        for node in self.everything:
            self._stack.callback(node.close)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    @property
    def everything(self) -> Sequence[Node]:
        """The nodes on this machine, for driver, broker and client."""
        return [self.driver, self.broker, self.client]

    @property
    def conf(self) -> dict[str, str]:
        """Spark settings of a driver."""
        address = self.driver.address
        return {"spark.driver.host": address, "spark.driver.bindAddress": address, **executor_conf(self._memory)}


def _own_address(master: str) -> str:
    """The address of this machine by which the cluster can reach it."""
    host = urlsplit(master).hostname
    if host is None:
        return HOST
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        return str(probe.getsockname()[0])
