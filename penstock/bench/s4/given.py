"""A cluster that exists already: its nodes are neither counted nor killed, nor is their use seen."""

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
    """What a testbed needs of it.

    Parameters
    ----------
    master: its URL. memory: megabytes of a node, of which executors ask for their share as on a cluster of our own.
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
        """The nodes that are ours."""
        return [self.driver, self.broker, self.client]

    @property
    def conf(self) -> dict[str, str]:
        """Settings that a driver needs."""
        address = self.driver.address
        return {"spark.driver.host": address, "spark.driver.bindAddress": address, **executor_conf(self._memory)}


def _own_address(master: str) -> str:
    """By which address the cluster sees this machine."""
    host = urlsplit(master).hostname
    if host is None:
        return HOST
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))  # sends nothing
        return str(probe.getsockname()[0])
